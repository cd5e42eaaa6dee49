"""A cache for slow queries that many pages ask at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass
class TimedCache(Generic[K, V]):
    """Asks at most once in `fresh_s`, and once for all who want to know at the same time.

    What is a little older is shown once more while the new answer is found, so that nobody waits for it; what
    is older than `stale_s` is not.
    """

    ask: Callable[[K], Awaitable[V]]
    fresh_s: float = 2.0
    stale_s: float = 10.0
    most: int = 200
    clock: Callable[[], float] = time.monotonic
    _known: dict[K, tuple[float, V]] = field(default_factory=dict, repr=False)
    _asking: dict[K, asyncio.Task[V]] = field(default_factory=dict, repr=False)

    async def __call__(self, key: K) -> V:
        found = self._known.get(key)
        age_s = float("inf") if found is None else self.clock() - found[0]
        if found is not None and age_s < self.fresh_s:
            return found[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._find(key))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if found is not None and age_s < self.stale_s:
            return found[1]
        return await asyncio.shield(task)  # others may wait for it, too

    async def _find(self, key: K) -> V:
        began_s = self.clock()
        try:
            value = await self.ask(key)
            if len(self._known) >= self.most:
                self._known.clear()
            self._known[key] = (began_s, value)
            return value
        finally:
            self._asking.pop(key, None)
