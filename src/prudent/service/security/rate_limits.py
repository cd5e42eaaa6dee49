"""How many requests a user or an address may make: in a time, and at once."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class RateLimit:
    """A bucket of turns for each key: `burst` at once, then `per_s` a second.

    The clock is an argument, and the least recently used keys are forgotten: a stranger who invents addresses
    fills no memory.
    """

    per_s: float
    burst: float
    most_keys: int = 10_000
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict, repr=False)

    def wait_s(self, key: str, now_s: float) -> float:
        """Take a turn: 0 if there is one, else the seconds until there will be (and none is taken).

        >>> rate = RateLimit(per_s=1, burst=2)
        >>> [rate.wait_s("ada", now_s) for now_s in (0, 0, 0, 1)]
        [0.0, 0.0, 1.0, 0.0]
        """
        left, seen_s = self._left.pop(key, (self.burst, now_s))
        left = min(self.burst, left + max(now_s - seen_s, 0.0) * self.per_s)
        missing = 1.0 - left
        self._left[key] = (left if missing > 0 else left - 1.0, now_s)
        while len(self._left) > self.most_keys:
            self._left.popitem(last=False)
        return missing / self.per_s if missing > 1e-9 else 0.0


def retry_after(wait_s: float) -> str:
    """The header's value: whole seconds, at least one.

    >>> retry_after(0.2), retry_after(61.5)
    ('1', '62')
    """
    return str(max(1, math.ceil(wait_s)))


class TooManyWaiting(Exception):
    """The user has as many waiting requests as are allowed."""


@dataclass
class ConcurrencyLimit:
    """Each user has `at_once` turns; who asks for more waits for one of their own, first come, first served.

    So whoever sends hundreds of requests at once delays themselves: everybody else finds at most `at_once` of
    theirs before their own. No more than `waiting` of a user wait.
    """

    at_once: int = 8
    waiting: int = 50
    _taken: Counter[str] = field(default_factory=Counter, repr=False)
    _lines: defaultdict[str, deque[asyncio.Future[None]]] = field(
        default_factory=lambda: defaultdict(deque), repr=False
    )

    @asynccontextmanager
    async def slot(self, user: str) -> AsyncIterator[ConcurrencySlot]:
        """Wait for a turn; it ends with the block, or when `over` is called before."""
        await self._take(user)
        turn = ConcurrencySlot(self, user)
        try:
            yield turn
        finally:
            turn.release()

    async def _take(self, user: str) -> None:
        if self._taken[user] < self.at_once:
            self._taken[user] += 1
            return
        line = self._lines[user]
        if len(line) >= self.waiting:
            raise TooManyWaiting
        place = asyncio.get_running_loop().create_future()
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was handed a turn in the very moment it left
                self._give(user)
            raise

    def _give(self, user: str) -> None:
        """Hand the turn to who waits longest; a user without requests is forgotten."""
        line = self._lines[user]
        while line:
            place = line.popleft()
            if not place.done():
                place.set_result(None)
                return
        del self._lines[user]
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]


@dataclass
class ConcurrencySlot:
    """One request that is worked on."""

    concurrency: ConcurrencyLimit
    user: str
    _is_over: bool = False

    def release(self) -> None:
        """Give the turn to the next request, even if the rest of this answer is still being sent."""
        if not self._is_over:
            self._is_over = True
            self.concurrency._give(self.user)
