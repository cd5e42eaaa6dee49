"""Trials are counted for people: from 1, without holes."""

from __future__ import annotations

from prudent.core.space import Space
from prudent.reports.formatting import counted_trials
from prudent.tuning.study.study import Study
from prudent.tuning.tune import summary


def test_runs_that_could_not_start_leave_no_hole() -> None:
    space = Space.parse({"workers": [1, 2, 4, 8]})
    study = Study(space, "minimise cost_usd", lambda c: 1.0 * c["workers"], 10.0, "grid", seed=1)
    for place in range(3):
        ask = study.ask()
        assert ask is not None
        if place == 1:
            study.abandon(ask.number)
        else:
            study.tell(ask.number, time_s=100.0)
    told = counted_trials(summary(study, "job"))
    assert [trial.number for trial in study.trials] == [1, 3]
    assert [trial.number for trial in told.trials] == [1, 2]
    assert told.best in told.trials
