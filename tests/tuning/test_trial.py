"""What is recorded of a run, and what it says where nobody said anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Constraint, Goal
from prudent.tuning.journal import earlier_trials
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, PendingTrial, Proposal, Trial

SPACE = Space.parse({"n": [1, 2, 3, 4]})


def test_what_nobody_said() -> None:
    outcome = Outcome(FINISHED, 1.0)
    assert (outcome.measures, outcome.why, outcome.started) == ({}, "", True)
    assert (outcome.overhead_s, outcome.ending_s, outcome.bill_usd) == (0.0, 0.0, None)
    assert PendingTrial(1, {}, Price(1.0, "", ""), "", 0.0, Proposal({})).at_s == 0.0
    trial = Trial(1, {}, FINISHED, 1.0, 2.0, 3.0, {}, True)
    assert (trial.decision_s, trial.why, trial.chosen, trial.estimate, trial.known) == (
        0.0,
        "",
        "",
        {},
        False,
    )
    assert not Constraint("time_s", "<=", 3.0).at_full_data
    assert Goal() == Goal("cost_usd", True, (), False)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ({"status": "gone", "time_s": 1.0}, "is not a way to end"),
        ({"time_s": -0.1}, "cannot last"),
        ({"time_s": float("inf")}, "cannot last"),
        ({"time_s": 0.0, "ending_s": -0.1}, "to end"),
        ({"time_s": 0.0, "ending_s": float("nan")}, "to end"),
        ({"time_s": 0.0, "measures": {"x": float("inf")}}, "finite number"),
        ({"time_s": 0.0, "ending_s": 0.0, "measures": {"x": -1.0}}, None),
    ],
)
def test_an_outcome_is_possible(said: dict[str, Any], remedy: str | None) -> None:
    if remedy is None:
        assert Outcome(**{"status": CUT, **said}).time_s == 0.0
        return
    with pytest.raises(BadInput, match=remedy):
        Outcome(**{"status": CUT, **said})


def test_a_trial_comes_back_from_its_record() -> None:
    trial = Trial(3, {"n": 2}, CUT, 5.0, 0.1, 0.2, {"a": 1.0}, False, 0.3, "why", "chosen", {"a": 2.0}, True)
    assert Trial.from_dict(json.loads(json.dumps(trial.to_dict()))) == trial
    assert trial.values == {"a": 1.0, "time_s": 5.0, "cost_usd": 0.1}
    assert not trial.finished
    with pytest.raises(BadInput, match="damaged"):
        Trial.from_dict({**trial.to_dict(), "colour": "red"})


def journal(folder: Path, *outcomes: Outcome) -> Path:
    path = folder / "journal.jsonl"
    study = Study(SPACE, "minimise cost_usd", lambda _: 3.6, 10.0, "grid", journal=path)
    for outcome in outcomes:
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, outcome)
    study.close()
    return path


def test_what_could_not_start_teaches_nothing(tmp_path: Path) -> None:
    unstarted = Outcome(FAILED, 0.0, why="not found", started=False)
    path = journal(tmp_path, unstarted, Outcome(FAILED, 3.0, why="oh"), Outcome(FINISHED, 5.0),
                   Outcome(CUT, 0.0, why="too dear"))  # fmt: skip
    assert [trial.configuration["n"] for trial in earlier_trials(path, SPACE)] == [2, 3, 4]
    with pytest.raises(BadInput, match="n"):
        earlier_trials(path, Space.parse({"n": [1, 2]}))


def test_a_study_without_a_trial_has_nothing_to_teach(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to learn"):
        earlier_trials(journal(tmp_path, Outcome(FAILED, 0.0, why="oh", started=False)), SPACE)


def test_a_damaged_trial_is_named(tmp_path: Path) -> None:
    path = journal(tmp_path, Outcome(FINISHED, 5.0))
    path.write_text(path.read_text().replace('"trial"', '"tryal"'))
    with pytest.raises(BadInput, match="trial"):
        earlier_trials(path, SPACE)


def test_readings_are_in_the_record_only_where_there_are_some() -> None:
    plain = Trial(1, {"n": 2}, FINISHED, 1.0, 2.0, 3.0, {}, True)
    assert "readings" not in plain.to_dict()  # records of earlier versions have none
    read = Trial(1, {"n": 2}, FINISHED, 1.0, 2.0, 3.0, {}, True, readings=Readings(cpu_share=0.5))
    assert json.loads(json.dumps(read.to_dict()))["readings"] == {"cpu_share": 0.5}
    assert [Trial.from_dict(trial.to_dict()) for trial in (plain, read)] == [plain, read]


@pytest.mark.parametrize("said", [[1], {"cpu_share": "x"}, "much"])
def test_damaged_readings_are_refused(said: Any) -> None:
    record = Trial(1, {"n": 2}, FINISHED, 1.0, 2.0, 3.0, {}, True).to_dict()
    with pytest.raises(BadInput):
        Trial.from_dict({**record, "readings": said})


def test_readings_come_back_from_the_journal(tmp_path: Path) -> None:
    study = Study(SPACE, "minimise cost_usd", lambda c: 1.0, 1.0, "grid", journal=tmp_path / "study.jsonl")
    for readings in (Readings(memory_share=0.9, others={"gpu_share": 0.1}), None):
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, Outcome(FINISHED, 9.0, readings=readings))
    study.close()
    told = earlier_trials(tmp_path / "study.jsonl", SPACE)
    assert [trial.readings for trial in told] == [trial.readings for trial in study.trials]
    assert told[0].readings == Readings(memory_share=0.9, others={"gpu_share": 0.1})
