"""Before machines are rented, those that an earlier run has left are ended: the second of the three nets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prudent.cli.console import complain
from prudent.core.errors import PrudentError
from prudent.core.units import format_money

PERIOD_S = 300.0
"""How often a service looks for machines that nobody needs any more."""


def reap_leftovers(home: Path | None = None) -> None:
    """One round of the reaper at every place with leases in a home, told in a line each way.

    It is done in passing, so it never fails the command that it precedes: trouble is a warning.
    """
    from prudent.cloud.leases.reaper import reap_all
    from prudent.cloud.leases.register import Register

    try:
        done = reap_all(Register(home), time.time())
    except (PrudentError, OSError) as error:
        complain(f"leftover machines could not be looked for: {error}")
        return
    if done.ended:
        count = len(done.ended)
        names = ", ".join(sorted({one.instance.run for one in done.ended}))
        spent_usd = sum(one.cost_usd for one in done.ended)
        left = f"{count} machine{'s' if count > 1 else ''} of an earlier run ({names})"
        complain(f"ended {left}, which cost {format_money(spent_usd)}.")
    if done.complaints:
        more = f" (and {len(done.complaints) - 1} more)" if len(done.complaints) > 1 else ""
        complain(f"{done.complaints[0].rstrip('.')}{more}; see: prudent clusters reap.")


@contextmanager
def reaping(
    home: Path | None = None, period_s: float = PERIOD_S, also: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Reap now and every `period_s` while the body runs, beside it: what runs long starts nothing anew.

    `also` is done in each round: a service has leases elsewhere, too.
    """
    over = threading.Event()

    def work() -> None:
        while True:
            reap_leftovers(home)
            also()
            if over.wait(period_s):
                return

    thread = threading.Thread(target=work, name="prudent-reaper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
