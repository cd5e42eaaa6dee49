"""How many requests of one user are worked on at a time, so that others need not wait for them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


class TooMany(Exception):
    """As many requests of the user wait as may."""


@dataclass
class Turns:
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
    async def turn(self, user: str) -> AsyncIterator[Turn]:
        """Wait for a turn; it ends with the block, or when `over` is called before."""
        await self._take(user)
        turn = Turn(self, user)
        try:
            yield turn
        finally:
            turn.over()

    async def _take(self, user: str) -> None:
        if self._taken[user] < self.at_once:
            self._taken[user] += 1
            return
        line = self._lines[user]
        if len(line) >= self.waiting:
            raise TooMany
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
class Turn:
    """One request that is worked on."""

    turns: Turns
    user: str
    _is_over: bool = False

    def over(self) -> None:
        """Let the next one begin; what is still sent of an answer delays nobody."""
        if not self._is_over:
            self._is_over = True
            self.turns._give(self.user)
