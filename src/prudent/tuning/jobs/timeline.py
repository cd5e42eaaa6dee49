"""The events of a live run, each with the second in which it happened."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from prudent.tuning.trial import Outcome, Progress

_LONGEST_WAIT_S = 3600.0  # a condition refuses to wait for ever in one go


class Timeline:
    """Events that one thread adds and another waits for.

    The clock starts at `setup_s`: the set-up of a machine is billed like the run, so a run that
    begins to work has lasted that long already. Times never go back, however threads are scheduled.
    """

    def __init__(self, setup_s: float = 0.0) -> None:
        self._zero_s = time.monotonic() - setup_s
        self._latest_s = setup_s
        self._events: deque[tuple[float, Progress | Outcome]] = deque()
        self._changed = threading.Condition()
        self._wake: Callable[[], None] = lambda: None

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every event from here on, and at once if there is one."""
        with self._changed:
            self._wake = wake
            waiting = bool(self._events)
        if waiting:
            wake()

    def now_s(self) -> float:
        """How long the run has lasted."""
        return time.monotonic() - self._zero_s

    def add(self, event: Progress | Outcome) -> None:
        """Append what happened; an outcome that never started stands before everything."""
        at_s = event.elapsed_s if isinstance(event, Progress) else event.time_s
        with self._changed:
            self._latest_s = max(self._latest_s, at_s)
            self._events.append((at_s, event))
            self._changed.notify_all()
            wake = self._wake
        wake()

    def latest_s(self) -> float:
        """The time of the last event; later events cannot be earlier than this."""
        with self._changed:
            return self._latest_s

    def next(self, until_s: float) -> Progress | Outcome | None:
        """Wait for the next event at or before `until_s`; None once the run has lasted that long."""
        with self._changed:
            while not self._events:
                left_s = until_s - self.now_s()
                if left_s <= 0:
                    return None
                self._changed.wait(min(left_s, _LONGEST_WAIT_S))
            at_s, event = self._events[0]
            if at_s > until_s:
                return None
            self._events.popleft()
            return event
