"""One event loop in the background for all SSH connections of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run(work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Do asynchronous work on the background loop and wait for it; TimeoutError ends it.

    An interrupt (Ctrl-C) while waiting ends the work too: nobody would collect it.
    """
    future = submit(work)
    try:
        return future.result(timeout_s)
    except BaseException:
        future.cancel()
        raise


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin asynchronous work on the background loop."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process: a fork has none of its parent's threads, so it gets its own."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops.clear()
            _loops[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, name="prudent-ssh", daemon=True).start()
        return loop
