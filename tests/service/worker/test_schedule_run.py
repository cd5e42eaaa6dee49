"""Plans that a request wants followed within a budget and a deadline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.service.intake.refusal import Refused
from prudent.service.intake.schedule_request import ScheduleRequest
from prudent.service.worker.messages import RunTask
from prudent.service.worker.schedule_run import perform_schedule
from prudent.workflows import Activation, Workflow

FLEET = "2*m3.medium"


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "bag.json"
    Workflow("bag", tuple(Activation(f"a{at}", "work", 100.0) for at in range(6))).write(path)
    return {"workflow": json.loads(path.read_text()), "fleet": FLEET, "scheduler": "heft"}


def test_limits_are_kept_and_told(document: dict[str, Any], tmp_path: Path) -> None:
    """Rehearsed at a ten-thousandth of the time: 300 s on two machines at $0.067 an hour are about a cent."""

    def follow(**execute: Any) -> None:
        said = {**document, "execute": {"replay": 1e-4, **execute}}
        perform_schedule(RunTask("r1", "schedule", said, tmp_path), lambda message: None, ())

    with pytest.raises(BadInput, match=r"more than the budget of \$0\.001;"):
        follow(budget=0.001)
    with pytest.raises(RunFailed, match="activations remain"):
        follow(budget="$1", deadline=50, anyway=True)
    told = json.loads((tmp_path / "result.json").read_text())["execution"]
    assert not told["succeeded"]
    assert told["budget_usd"] == 1.0
    assert "activations remain" in told["stopped"]
    assert told["forecast"]["makespan_s"]["expected"] == pytest.approx(300.0)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"budget": "2 h"}, "execute.budget"),
        ({"budget": 0}, "execute.budget"),
        ({"budget": [1]}, "execute.budget"),
        ({"deadline": "$3"}, "execute.deadline"),
        ({"deadline": -1}, "execute.deadline"),
        ({"anyway": "yes"}, "execute.anyway"),
        ({"budgets": 1}, "execute.budgets"),
    ],
)
def test_limits_that_are_none(document: dict[str, Any], wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(Refused) as refused:
        ScheduleRequest.parse({**document, "execute": wrong}, ())
    assert [error.path for error in refused.value.errors] == [place]
