"""Money for the page: per day, per user against their limits, per kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from prudent.service.security.accounts import of_file
from prudent.service.settings import Settings
from prudent.service.store import charges, users
from prudent.service.store.charges import Sum
from prudent.service.store.users import User
from prudent.service.web import drawing

DAYS = 30


@dataclass(frozen=True)
class Share:
    """A user's or a kind's money, with a bar against the limit or the largest."""

    name: str
    today_usd: float
    days_usd: float
    limit_usd: float | None
    svg: str
    runs: int = 0


@dataclass(frozen=True)
class Ledger:
    """The money of the last days."""

    today_usd: float
    days_usd: float
    first_day: str
    last_day: str
    most_usd: float
    chart: str
    users: tuple[Share, ...]
    kinds: tuple[Share, ...]
    days: tuple[tuple[str, float, int], ...]


def look(connection: Connection, since_day: str) -> tuple[list[Sum], list[User]]:
    return charges.sums(connection, since_day), users.all_(connection)


def since(now_s: float) -> str:
    """The first of the days that are shown."""
    return (datetime.fromtimestamp(now_s, UTC).date() - timedelta(days=DAYS - 1)).isoformat()


def ledger_of(sums: Sequence[Sum], known: Sequence[User], settings: Settings, now_s: float) -> Ledger:
    today = datetime.fromtimestamp(now_s, UTC).date()
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    per_day: dict[str, float] = defaultdict(float)
    runs_of_day: dict[str, int] = defaultdict(int)
    for entry in sums:
        per_day[entry.day] += entry.usd
        runs_of_day[entry.day] += entry.runs
    limits = {user.name: user.daily_usd for user in (*known, *of_file(settings.tokens))}
    values = [(f"{day}: ${per_day[day]:,.2f}", per_day[day]) for day in days]
    return Ledger(
        today_usd=per_day[days[-1]],
        days_usd=sum(per_day.values()),
        first_day=days[0],
        last_day=days[-1],
        most_usd=max(per_day.values(), default=0.0),
        chart=drawing.columns(values),
        users=_shares(sums, "user", days[-1], limits),
        kinds=_shares(sums, "kind", days[-1], {}),
        days=tuple(
            (day, per_day[day], runs_of_day[day])
            for day in reversed(days)
            if per_day[day] or runs_of_day[day]
        ),
    )


def _shares(sums: Sequence[Sum], by: str, today: str, limits: dict[str, float | None]) -> tuple[Share, ...]:
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
        found.append(Share(name, now[name], whole[name], limit, drawing.meter(share, over), count[name]))
    return tuple(sorted(found, key=lambda one: (-one.days_usd, one.name)))
