"""Warm processes, ready for the next run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from prudent.service.work.hand import MOST_RUNS, Hand
from prudent.service.work.wall import Wall

_log = logging.getLogger("prudent.worker")
_PAUSE_S = 5.0


class Hands:
    """As many processes as runs at a time, started before they are needed.

    `make` starts one: for any run, or behind the wall for the run of a folder.
    """

    def __init__(self, make: Callable[[Path | None], Hand], size: int, wall: Wall | None = None) -> None:
        self._make, self._size, self.wall = make, size, wall
        self._lock = threading.Lock()
        self._spare: list[Hand] = []
        self._out: set[Hand] = set()
        self._closed = False
        self._not_before_s = 0.0

    def fill(self) -> None:
        """Have a spare process for every run that could begin; replaces those that died meanwhile."""
        with self._lock:
            dead = [hand for hand in self._spare if not hand.alive]
            self._spare = [hand for hand in self._spare if hand.alive]
            lacking = 0 if self._closed else self._size - len(self._out) - len(self._spare)
        for hand in dead:
            hand.close()
            if not hand.runs:  # it could not even begin; the next one most likely cannot either
                _log.warning("A process ended before it was ready; the next is started in %g s", _PAUSE_S)
                self._not_before_s = time.monotonic() + _PAUSE_S
        if time.monotonic() < self._not_before_s:
            return
        for _ in range(lacking):
            hand = self._make(None)
            with self._lock:
                self._spare.append(hand)

    def ready(self) -> bool:
        """Whether a run could begin at once."""
        with self._lock:
            return any(hand.ready for hand in self._spare)

    def take(self, walled: Path | None = None) -> Hand:
        """A process that is this run's alone; one that is ready before one that is not.

        For a run that is to be behind the wall, name its folder: it gets a new one, where there is a wall.
        """
        folder = None if self.wall is None else walled
        with self._lock:
            self._spare.sort(key=lambda hand: not hand.ready)
            while self._spare and folder is None:
                hand = self._spare.pop(0)
                if hand.alive:
                    self._out.add(hand)
                    return hand
        hand = self._make(folder)
        with self._lock:
            self._out.add(hand)
        return hand

    def give_back(self, hand: Hand, good: bool = True) -> None:
        """A run has ended; a process that was interrupted, or is old, is not used again."""
        with self._lock:
            self._out.discard(hand)
            keep = good and not self._closed and hand.alive and hand.runs < MOST_RUNS and not hand.walled
            if keep and len(self._spare) + len(self._out) < self._size:
                self._spare.append(hand)
                return
        hand.close()

    def tick(self) -> None:
        """Tell those at work that their worker lives."""
        with self._lock:
            out = list(self._out)
        for hand in out:
            hand.tick()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            every, self._spare = [*self._spare, *self._out], []
            self._out.clear()
        for hand in every:
            hand.close()
