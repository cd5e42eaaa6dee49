"""How much may wait: runs and the size of their documents, of one user and in all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prudent.core.errors import RunFailed
from prudent.service.intake.refusal import refusal
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.store import Store
from prudent.service.store.users import User

_FRESH_S = 1.0
_LATER_S = 30.0
_MB = 1e6


class BacklogFull(RunFailed):
    """The backlog is full; documents in folders, queues and buckets stay there until there is room."""


def check_room(store: Store, settings: Settings, user: User) -> None:
    """Raise BacklogFull if the sender has no room left; asked before a document is taken."""
    counts, sizes = store.read(runs.waiting)
    why = _over(settings, settings.intake_user or user.name, counts, sizes)
    if why:
        raise BacklogFull(why)


@dataclass
class Backlog:
    """The waiting runs: read from the database once a second at most, and counted here in between.

    So a submission costs no question to the database. A run that began since still counts for a second.
    """

    store: Store
    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _asked_s: float | None = None
    _counts: Counter[str] = field(default_factory=Counter)
    _sizes: Counter[str] = field(default_factory=Counter)
    _since: list[tuple[str, int]] = field(default_factory=list)
    """What was kept since the question that is under way was asked."""
    _under_way: list[tuple[str, int]] = field(default_factory=list)
    """What has a place and is not kept yet: no question finds it."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    async def check(self, user: str, size: int) -> None:
        """Raise Refused (429) if there is no room for one more run of a user."""
        await self._look()
        with self._lock:
            self._check(user, size)

    @asynccontextmanager
    async def reserve(self, user: str, size: int) -> AsyncIterator[None]:
        """Reserve room for one more run, to be stored in the block; Refused (429) if the backlog is full.

        It counts from here on, however long it takes to check and to keep it, unless the block fails.
        """
        await self._look()
        with self._lock:
            self._check(user, size)
            self._under_way.append((user, size))
        try:
            yield
        except BaseException:
            with self._lock:
                self._under_way.remove((user, size))
            raise
        with self._lock:
            self._under_way.remove((user, size))
            self._since.append((user, size))
            _add(self._counts, self._sizes, user, size)

    async def _look(self) -> None:
        if self._is_due():
            self._learn(*await self.store.read_async(runs.waiting))

    def _check(self, user: str, size: int) -> None:
        counts, sizes = Counter(self._counts), Counter(self._sizes)
        for whose, their_size in self._under_way:
            _add(counts, sizes, whose, their_size)
        sizes[user] += size if size >= runs.LARGE else 0
        why = _over(self.settings, user, counts, sizes)
        if why:
            error = refusal(why, status=429, title="Too much waits")
            error.retry_s = _LATER_S
            raise error

    def _is_due(self) -> bool:
        """Whether the caller should read the database; only one caller does at a time."""
        with self._lock:
            now_s = self.clock()
            if self._asked_s is not None and now_s - self._asked_s < _FRESH_S:
                return False
            self._asked_s, self._since = now_s, []
            return True

    def _learn(self, counts: dict[str, int], sizes: dict[str, int]) -> None:
        with self._lock:
            self._counts, self._sizes = Counter(counts), Counter(sizes)
            for user, size in self._since:
                _add(self._counts, self._sizes, user, size)


def _add(counts: Counter[str], sizes: Counter[str], user: str, size: int) -> None:
    counts[user] += 1
    if size >= runs.LARGE:
        sizes[user] += size


def _over(settings: Settings, user: str, counts: dict[str, int], sizes: dict[str, int]) -> str:
    """Why no more may wait; empty if more may."""
    mine_mb, all_mb = sizes.get(user, 0) / _MB, sum(sizes.values()) / _MB
    if counts.get(user, 0) >= settings.waiting_per_user:
        return f"{counts[user]:,} of your runs wait, as many as may; send more when some have begun."
    if mine_mb > settings.waiting_mb_per_user:
        return (
            f"Your waiting runs have documents of more than {settings.waiting_mb_per_user:g} MB; send more "
            "when some have begun, or put the data into files."
        )
    if sum(counts.values()) >= settings.waiting or all_mb > settings.waiting_mb:
        return "As much waits here as may; send it again in a while."
    return ""
