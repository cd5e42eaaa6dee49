"""Pages about all runs together: machines, and money."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import Connection

from prudent.cloud.spending import Spending, Spent
from prudent.core.errors import PrudentError
from prudent.service.store import workers
from prudent.service.store.users import ADMIN
from prudent.service.store.workers import Worker
from prudent.service.web import ledger
from prudent.service.web.api import user_of
from prudent.service.web.desk import Desk
from prudent.service.web.kept import Kept
from prudent.service.web.ledger import Ledger


def add(router: APIRouter, desk: Desk) -> None:
    """Routes /machines and /money."""
    books: Kept[str, Ledger] = Kept(lambda since_day: _books(desk, since_day))
    computer: Kept[str, list[Spent]] = Kept(lambda since_day: asyncio.to_thread(Spending().by_day, since_day))

    @router.get("/machines")
    async def machines(request: Request) -> HTMLResponse:
        """Workers by their heartbeats, and rented machines by their leases."""
        found, now_s = await desk.store.read_soon(_workers)
        leases, complaints = await asyncio.to_thread(_leases, desk)
        return desk.page(
            request,
            "machines.html.j2",
            workers=found,
            now_s=now_s,
            silent_s=desk.settings.takeover_s,
            leases=leases,
            complaints=complaints,
        )

    @router.get("/money")
    async def money(request: Request) -> HTMLResponse:
        """What the service's runs have cost; for admins also what other commands on its computer have."""
        since_day = ledger.since(time.time())
        spent = await computer(since_day) if user_of(request).may(ADMIN) else None
        return desk.page(request, "money.html.j2", ledger=await books(since_day), computer=spent)


async def _books(desk: Desk, since_day: str) -> Ledger:
    sums, known = await desk.store.read_soon(ledger.look, since_day)
    return await asyncio.to_thread(ledger.ledger_of, sums, known, desk.settings, time.time())


def _workers(connection: Connection) -> tuple[list[Worker], float]:
    return workers.all_(connection), workers.now_s(connection)


def _leases(desk: Desk) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Clusters that are rented now, as far as this home knows; nobody is asked over the network."""
    from prudent.cloud.leases.register import Register
    from prudent.cloud.leases.status import standing

    now_s = time.time()
    try:
        found, complaints = standing(Register(desk.settings.home), (), now_s)
    except PrudentError as error:
        return [], (str(error),)
    return [{**one.to_dict(now_s), "text": one.text} for one in found], complaints
