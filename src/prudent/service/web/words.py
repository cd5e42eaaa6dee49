"""How pages say numbers, times and states."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from prudent.core.units import format_duration, format_money

STATES = {
    "queued": "Waiting",
    "running": "Running",
    "succeeded": "Done",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "finished": "Finished",
    "cut": "Cut",
}
FRONTS = {
    "rest": "by REST",
    "form": "in the browser",
    "folder": "by the folder",
    "queue": "by the queue",
    "bucket": "by the bucket",
}
KINDS = {"train": "Train", "tune": "Tune", "schedule": "Schedule"}


def money(usd: float | None) -> str:
    """
    >>> money(None), money(0.5)
    ('—', '$0.50')
    """
    return "—" if usd is None else format_money(usd)


def length(seconds: float | None) -> str:
    """A duration for people, without fractions that change while one looks.

    >>> length(None), length(0.4), length(12.7), length(3700)
    ('—', '< 1 s', '12 s', '1 h 02 min')
    """
    if seconds is None:
        return "—"
    if seconds < 1:
        return "< 1 s"
    return f"{int(seconds)} s" if seconds < 59.5 else format_duration(seconds)


def exact(seconds: float | None) -> str:
    return "—" if seconds is None else format_duration(seconds)


def ago(moment_s: float | None, now_s: float | None = None) -> str:
    """How long ago, roughly.

    >>> ago(100.0, 130.0), ago(0.0, 7300.0), ago(0.0, 1.0), ago(None)
    ('30 s ago', '2 h ago', 'just now', '—')
    """
    if moment_s is None:
        return "—"
    past_s = max((time.time() if now_s is None else now_s) - moment_s, 0.0)
    for size_s, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if past_s >= size_s:
            return f"{int(past_s // size_s)} {unit} ago"
    return f"{int(past_s)} s ago" if past_s >= 5 else "just now"


def stamp(moment_s: float | None) -> str:
    """A moment for machines, in UTC.

    >>> stamp(0.0)
    '1970-01-01T00:00:00Z'
    """
    if moment_s is None:
        return ""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def number(value: Any) -> str:
    """A measured value, short.

    >>> number(0.123456), number(12), number(None), number(True), number("m5.large"), number(1e-7)
    ('0.1235', '12', '—', 'yes', 'm5.large', '1e-07')
    """
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measured(value: float | None, name: str) -> str:
    """A value with the unit that its name tells, in as many digits as its neighbours in a column.

    >>> measured(3.51, "rmse"), measured(0.0204, "cost_usd"), measured(95.0, "time_s"), measured(None, "rmse")
    ('3.510', '$0.0204', '1 min 35 s', '—')
    """
    if value is None:
        return "—"
    if name.endswith("_s") or name == "makespan":
        return format_duration(value)
    if name.endswith("_usd"):
        return column_money(value)
    return f"{value:#.4g}".rstrip(".")


def column_money(usd: float | None) -> str:
    """Money for a column: the points are one below the other.

    >>> column_money(0.0133), column_money(0.013), column_money(12.5)
    ('$0.0133', '$0.0130', '$12.5000')
    """
    return "—" if usd is None else f"${usd:,.4f}"


def rough_money(usd: float | None) -> str:
    """Money to the cent, for a list.

    >>> rough_money(0.386), rough_money(0.001), rough_money(0.0)
    ('$0.39', '< $0.01', '$0.00')
    """
    if usd is None:
        return "—"
    return "< $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def settings_text(configuration: Mapping[str, Any]) -> str:
    """
    >>> settings_text({"depth": 4, "rate": 0.05})
    'depth 4, rate 0.05'
    """
    parts = (
        number(value) if name == "why" else f"{name} {number(value)}" for name, value in configuration.items()
    )
    return ", ".join(parts)


def percent(share: float) -> str:
    """
    >>> percent(0.256)
    '26 %'
    """
    return f"{share * 100:.0f} %"
