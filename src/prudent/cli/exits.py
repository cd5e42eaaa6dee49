"""The exit codes of all commands, and the signals that end one."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

OK = 0
FAILED = 1
"""The request was right, but the run failed, or found nothing that keeps the goal."""
WRONG_REQUEST = 2
"""A file, a name or a value was wrong; nothing was run."""
OVER_LIMIT = 3
"""More was paid than the budget, or a limit ended the run before it was done."""
INTERRUPTED = 130
"""Ctrl-C or SIGTERM ended it; the number is what shells use."""


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """A polite request to end (SIGTERM, a closed terminal) ends a run as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    with handled_signals(interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def handled_signals(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Handle these signals in this way while the block runs."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
