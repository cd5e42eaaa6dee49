"""Requests that come by the web: whether there is room, whether they are right, and then they are kept."""

from __future__ import annotations

from prudent.service.intake import admission
from prudent.service.intake.admission import Accepted
from prudent.service.intake.backlog import Waiting
from prudent.service.settings import Settings
from prudent.service.store import disk
from prudent.service.store.runs import LARGE
from prudent.service.store.store import DiskFull, Store
from prudent.service.web.checking import MEMORY_MB, Checker, Order


class Admission:
    """One for REST and forms together, so that their limits are the same."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._waiting = Waiting(store, settings)
        self._checker = Checker(min(MEMORY_MB, settings.run_memory_mb))

    async def expect(self, user: str, size: int) -> None:
        """Refused (429) if there is no room for a large document; this is asked before it is read."""
        if size > LARGE:
            check_disk(self._settings)
            await self._waiting.check(user, size)
            self._checker.check_room(user)

    async def take(self, order: Order) -> Accepted:
        """Keep a request; when this returns it is on the disk. Refused if it is wrong or too much waits."""
        check_disk(self._settings)
        async with self._waiting.place(order.user.name, order.size):
            new = await self._checker.prepared(order) if order.is_large else order.prepared()
            return await admission.submit_soon(self._store, new)

    def close(self) -> None:
        self._checker.close()


def check_disk(settings: Settings) -> None:
    """DiskFull if there is no room for anything new where runs are kept."""
    if not disk.has_room(settings.home):
        raise DiskFull(
            f"Nothing new is taken: less than {disk.LEAST_MB:g} MB are free on the disk; the operator has to "
            "make room."
        )
