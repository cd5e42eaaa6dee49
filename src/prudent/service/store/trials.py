"""Trials: one row each; what ended is recorded once and never again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store import runs
from prudent.service.store.tables import RowQuery
from prudent.service.store.tables import trials as table

RUNNING = "running"
_OF_RUN = RowQuery(
    table.c,
    lambda all_: (
        all_.where(table.c.run == sa.bindparam("of"))
        .order_by(table.c.number)
        .limit(sa.bindparam("most", type_=sa.Integer))
    ),
)


@dataclass(frozen=True)
class TrialRow:
    """One try. `label` is the algorithm, the strategy's reason or the scheduler, for people."""

    run: str
    number: int
    label: str
    configuration: Mapping[str, Any]
    status: str
    """running, finished, cut or failed."""
    score: float | None = None
    cost_usd: float | None = None
    time_s: float | None = None
    spent_usd: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else there is to tell: measures, transforms, why it failed."""
    fence: int = 0
    at_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "label": self.label,
            "configuration": dict(self.configuration),
            "status": self.status,
            "score": self.score,
            "cost_usd": self.cost_usd,
            "time_s": self.time_s,
            "spent_usd": self.spent_usd,
            "details": dict(self.details),
        }


def record(connection: Connection, trial: TrialRow, fence: int) -> bool:
    """Keep a trial as it stands; False if its end is recorded already. Stale if the run is another's now."""
    runs.check_claim(connection, trial.run, fence)
    here = sa.and_(table.c.run == trial.run, table.c.number == trial.number)
    before = connection.execute(sa.select(table.c.status).where(here)).scalar()
    if before is not None and before != RUNNING:
        return False
    values = {
        "label": trial.label[:200],
        "configuration": _json(trial.configuration),
        "status": trial.status,
        "score": trial.score,
        "cost_usd": trial.cost_usd,
        "time_s": trial.time_s,
        "spent_usd": trial.spent_usd,
        "details": _json(trial.details),
        "fence": fence,
        "at_s": time.time(),
    }
    if before is None:
        connection.execute(table.insert().values(run=trial.run, number=trial.number, **values))
    else:
        connection.execute(table.update().where(here).values(**values))
    return True


def drop_unfinished(connection: Connection, run: str, fence: int) -> int:
    """Forget trials that a former worker had under way: they are begun again."""
    runs.check_claim(connection, run, fence)
    gone = table.delete().where(table.c.run == run, table.c.status == RUNNING)
    return int(connection.execute(gone).rowcount)


def of_run(connection: Connection, run: str, limit: int = 10_000) -> list[TrialRow]:
    """The trials of a run, by number."""
    return [_trial(row) for row in _OF_RUN(connection, of=run, most=limit)]


def counts(connection: Connection) -> dict[str, int]:
    """How many trials there are in each status."""
    question = sa.select(table.c.status, sa.func.count()).group_by(table.c.status)
    return {str(status): int(count) for status, count in connection.execute(question)}


def _trial(row: Mapping[Any, Any]) -> TrialRow:
    values = dict(row)
    return TrialRow(
        **{
            **values,
            "configuration": json.loads(values["configuration"]),
            "details": json.loads(values["details"]),
        }
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, default=str, separators=(",", ":"))
