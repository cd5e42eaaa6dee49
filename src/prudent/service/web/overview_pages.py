"""Pages about the whole service: machines, money, and the description of the API."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import Connection

from prudent.cloud.spending import DailySpending, SpendingLog
from prudent.core.errors import PrudentError
from prudent.service.security.accounts import of_file
from prudent.service.security.authentication import user_of
from prudent.service.settings import Settings
from prudent.service.store import charges, users, workers
from prudent.service.store.charges import ChargeTotal
from prudent.service.store.users import ADMIN, User
from prudent.service.store.workers import WorkerRow
from prudent.service.web import display
from prudent.service.web.display import Drawing
from prudent.service.web.page_context import PageContext
from prudent.service.web.timed_cache import TimedCache


def add(router: APIRouter, context: PageContext) -> None:
    """Routes /machines and /money."""
    books: TimedCache[str, SpendingOverview] = TimedCache(lambda since_day: _books(context, since_day))
    computer: TimedCache[str, list[DailySpending]] = TimedCache(
        lambda since_day: asyncio.to_thread(SpendingLog().by_day, since_day)
    )

    @router.get("/machines")
    async def machines(request: Request) -> HTMLResponse:
        """Workers by their heartbeats, and rented machines by their leases."""
        found, now_s = await context.store.read_async(_workers)
        leases, complaints = await asyncio.to_thread(_leases, context)
        return context.page(
            request,
            "machines.html.j2",
            workers=found,
            now_s=now_s,
            silent_s=context.settings.takeover_s,
            leases=leases,
            complaints=complaints,
        )

    @router.get("/money")
    async def money(request: Request) -> HTMLResponse:
        """What the service's runs have cost; for admins also what other commands on its computer have."""
        since_day = first_day(time.time())
        spent = await computer(since_day) if user_of(request).may(ADMIN) else None
        return context.page(request, "money.html.j2", ledger=await books(since_day), computer=spent)


async def _books(context: PageContext, since_day: str) -> SpendingOverview:
    sums, known = await context.store.read_async(read_spending, since_day)
    return await asyncio.to_thread(spending_overview, sums, known, context.settings, time.time())


def _workers(connection: Connection) -> tuple[list[WorkerRow], float]:
    return workers.all_(connection), workers.now_s(connection)


def _leases(context: PageContext) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Clusters that are rented now, as far as this home knows; nobody is asked over the network."""
    from prudent.cloud.leases.register import LeaseRegister
    from prudent.cloud.leases.status import cluster_statuses

    now_s = time.time()
    try:
        found, complaints = cluster_statuses(LeaseRegister(context.settings.home), (), now_s)
    except PrudentError as error:
        return [], (str(error),)
    return [{**one.to_dict(now_s), "text": one.text} for one in found], complaints


_METHODS = ("get", "post", "put", "delete")


@dataclass(frozen=True)
class ApiOperation:
    """One thing that programs can ask for."""

    method: str
    path: str
    about: str
    group: str
    parameters: tuple[tuple[str, str, str], ...]
    body: str


def add_api_page(router: APIRouter, context: PageContext) -> None:
    """The route /docs."""

    @router.get("/docs")
    async def page(request: Request) -> HTMLResponse:
        found = tuple(api_operations(request.app.openapi()))
        groups = {call.group: [each for each in found if each.group == call.group] for call in found}
        return context.page(request, "api.html.j2", groups=groups)


def api_operations(described: dict[str, Any]) -> Iterator[ApiOperation]:
    """Every call of an OpenAPI description, in its order."""
    for path, methods in described.get("paths", {}).items():
        for method in _METHODS:
            said = methods.get(method)
            if said is None:
                continue
            parameters = tuple(
                (str(each["name"]), str(each["in"]), _kind(each.get("schema", {})))
                for each in said.get("parameters", ())
            )
            body = str(said.get("requestBody", {}).get("description", ""))
            about = str(said.get("description") or said.get("summary", ""))
            yield ApiOperation(
                method.upper(), path, about, str((said.get("tags") or ["other"])[0]), parameters, body
            )


def _kind(schema: dict[str, Any]) -> str:
    """What a parameter may be, in a few words.

    >>> _kind({"type": "integer", "minimum": 1, "maximum": 500}), _kind({"enum": ["a", "b"]})
    ('integer, 1 to 500', 'a | b')
    >>> _kind({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]})
    'string'
    """
    for part in schema.get("anyOf", ()):
        if part.get("type") != "null":
            return _kind(part)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    word = str(schema.get("type", ""))
    if "minimum" in schema and "maximum" in schema:
        return f"{word}, {schema['minimum']} to {schema['maximum']}"
    return word


DAYS = 30


@dataclass(frozen=True)
class SpendingShare:
    """A user's or a kind's money, with a bar against the limit or the largest."""

    name: str
    today_usd: float
    days_usd: float
    limit_usd: float | None
    svg: str
    runs: int = 0


@dataclass(frozen=True)
class SpendingOverview:
    """The money of the last days."""

    today_usd: float
    days_usd: float
    most_usd: float
    chart: Drawing
    users: tuple[SpendingShare, ...]
    kinds: tuple[SpendingShare, ...]
    days: tuple[tuple[str, float, int], ...]


def read_spending(connection: Connection, since_day: str) -> tuple[list[ChargeTotal], list[User]]:
    return charges.totals(connection, since_day), users.all_(connection)


def first_day(now_s: float) -> str:
    """The first of the days that are shown."""
    return (datetime.fromtimestamp(now_s, UTC).date() - timedelta(days=DAYS - 1)).isoformat()


def spending_overview(
    sums: Sequence[ChargeTotal], known: Sequence[User], settings: Settings, now_s: float
) -> SpendingOverview:
    today = datetime.fromtimestamp(now_s, UTC).date()
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    per_day: dict[str, float] = defaultdict(float)
    runs_of_day: dict[str, int] = defaultdict(int)
    for entry in sums:
        per_day[entry.day] += entry.usd
        runs_of_day[entry.day] += entry.runs
    limits = {user.name: user.daily_usd for user in (*known, *of_file(settings.tokens))}
    values = [(day, per_day[day], f"{day}: ${per_day[day]:,.2f}") for day in days]
    return SpendingOverview(
        today_usd=per_day[days[-1]],
        days_usd=sum(per_day.values()),
        most_usd=max(per_day.values(), default=0.0),
        chart=display.columns(values),
        users=_shares(sums, "user", days[-1], limits),
        kinds=_shares(sums, "kind", days[-1], {}),
        days=tuple(
            (day, per_day[day], runs_of_day[day])
            for day in reversed(days)
            if per_day[day] or runs_of_day[day]
        ),
    )


def _shares(
    sums: Sequence[ChargeTotal], by: str, today: str, limits: dict[str, float | None]
) -> tuple[SpendingShare, ...]:
    whole, now = defaultdict[str, float](float, dict.fromkeys(limits, 0.0)), defaultdict[str, float](float)
    count = defaultdict[str, int](int)
    for entry in sums:
        name = str(getattr(entry, by))
        whole[name] += entry.usd
        now[name] += entry.usd if entry.day == today else 0.0
        count[name] += entry.runs
    most = max(whole.values(), default=0.0) or 1.0
    found = []
    for name in sorted(whole):
        limit = limits.get(name)
        share = now[name] / limit if limit else (1.0 if limit == 0 and now[name] else whole[name] / most)
        over = limit is not None and now[name] >= limit > 0
        found.append(
            SpendingShare(name, now[name], whole[name], limit, display.meter(share, over), count[name])
        )
    return tuple(sorted(found, key=lambda one: (-one.days_usd, one.name)))
