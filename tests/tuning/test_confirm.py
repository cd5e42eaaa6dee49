"""One run of what was recommended: what it may cost, what its own meter says, how far it was off."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.core.ledger import LedgerEntry
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.confirm import allowance_usd, confirm, confirmation_of
from prudent.tuning.confirmation_file import ConfirmationFile, ConfirmationRun
from prudent.tuning.goal import Goal
from prudent.tuning.result import PredictedMeasure, Recommendation, Result, untested_recommendation
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Trial

from . import metered
from .metered import MeteredJob, MeteredRun

GOAL = Goal.parse("maximise accuracy at full data subject to cost_usd <= 0.3 at full data")
SPACE = Space.parse({"n": [1, 2], "s": [0.5, 1.0]})
CHOSEN = {"n": 2, "s": 1.0}
PRICE = Price(7.2, "2025-01-01", "the test")
PREDICTION = {
    **{"accuracy": 0.8, "accuracy_low": 0.7, "accuracy_high": 0.9},
    **{"cost_usd": 0.2, "cost_low_usd": 0.1, "cost_high_usd": 0.25},
    **{"time_s": 100.0, "probability_feasible": 0.5},
}


def job(time_s: float = 110.0, minimum_s: float = 0.0, **measures: float) -> MeteredJob:
    """It costs 0.002 $ a second at CHOSEN."""
    outcome = Outcome(FINISHED, time_s, measures or {"accuracy": 0.9})
    return MeteredJob(
        SPACE, lambda _: outcome, lambda chosen: 3.6 * chosen["n"], ["accuracy"], "s", minimum_s=minimum_s
    )


def result(**more: Any) -> Result:
    told: dict[str, Any] = {"recommended": CHOSEN, "prediction": PREDICTION, **more}
    return Result(**{"goal": GOAL, "best": None, "trials": (), "spent_usd": 0.4, "budget_usd": 1.0,
                     "strategy": "fabulinus", "seed": 1, **told})  # fmt: skip


def test_it_is_run_once_paid_by_its_meter_and_compared() -> None:
    measured = job()
    said = confirm(measured, result())
    assert list(measured.runs) == [0]
    assert said.spent_usd == pytest.approx(measured.used_usd) == pytest.approx(0.22)
    assert (said.trial.status, said.trial.configuration, said.trial.feasible) == (FINISHED, CHOSEN, True)
    assert said.errors == {
        "accuracy": pytest.approx(0.1), "time_s": pytest.approx(10.0), "cost_usd": pytest.approx(0.02)
    }  # fmt: skip
    assert said.within == {"accuracy": True, "cost_usd": True}  # no interval was told for the time
    assert said.to_dict()["spent_usd"] == said.spent_usd


@pytest.mark.parametrize(("value", "inside"), [(0.7, True), (0.9, True), (0.6999, False), (0.9001, False)])
def test_the_ends_of_an_interval_belong_to_it(value: float, inside: bool) -> None:
    trial = Trial(0, CHOSEN, FINISHED, 1.0, 0.2, 0.2, {"accuracy": value}, True)
    assert confirmation_of(trial, result()).within["accuracy"] is inside
    assert confirmation_of(replace(trial, status=CUT), result()).errors == {}


def test_a_run_dearer_than_its_money_is_cut_there() -> None:
    measured = job(time_s=100_000.0)
    said = confirm(measured, result(), budget_usd=0.5)
    assert measured.runs[0].lasted_s == pytest.approx(250.0)
    assert measured.used_usd == pytest.approx(0.5)
    assert (said.trial.status, said.trial.why, said.trial.feasible) == (CUT, OUT_OF_MONEY, False)
    assert said.spent_usd == pytest.approx(0.5)


def test_money_that_does_not_pay_for_the_prediction_starts_nothing() -> None:
    measured = job()
    for usd in (0.0, 0.199):
        with pytest.raises(BadInput, match=r"takes about \$0\.20, but"):
            confirm(measured, result(), budget_usd=usd)
    with pytest.raises(BadInput, match=r"takes about \$0\.24"):
        confirm(job(minimum_s=120.0), result(), budget_usd=0.23)
    assert measured.runs == {}
    assert confirm(measured, result(), budget_usd=0.2).trial.status == CUT


def test_the_allowance_is_twice_the_upper_end_or_what_was_left() -> None:
    assert allowance_usd(job(), result()) == 0.5
    assert allowance_usd(job(), result(prediction={})) == pytest.approx(0.6)
    assert allowance_usd(job(), result(prediction={}, spent_usd=2.0)) == 0.0
    assert allowance_usd(job(), result(prediction={}, budget_usd=None)) == math.inf


def test_what_was_run_in_full_costs_nothing_more() -> None:
    ran = Trial(3, CHOSEN, FINISHED, 100.0, 0.2, 0.2, {"accuracy": 0.85}, True)
    for where in ("trials", "known"):
        measured = job()
        said = confirm(measured, result(**{where: (ran,)}))
        assert (said.trial, said.charge, said.spent_usd, measured.runs) == (ran, None, 0.0, {})
    measured = job()
    assert confirm(measured, result(trials=(replace(ran, status=CUT),))).charge is not None
    assert len(measured.runs) == 1


def test_a_run_that_reports_nothing_has_failed() -> None:
    said = confirm(job(other=1.0), result())
    assert (said.trial.status, said.trial.why) == (FAILED, "it ended without reporting accuracy")
    assert said.spent_usd == pytest.approx(0.22)


def test_without_a_recommendation_there_is_nothing_to_confirm() -> None:
    with pytest.raises(BadInput, match="no recommendation"):
        confirm(job(), result(recommended=None))


def test_what_is_expected_of_what_was_not_run() -> None:
    told = untested_recommendation(result())
    assert told is not None
    assert told.expected == (
        PredictedMeasure("accuracy", 0.8, 0.7, 0.9),
        PredictedMeasure("cost_usd", 0.2, 0.1, 0.25),
        PredictedMeasure("time_s", 100.0, 100.0, 100.0),
    )
    assert (told.chance, told.likely) == (0.5, True)
    assert not Recommendation(CHOSEN, (), 0.4999).likely
    assert untested_recommendation(result(prediction={})) is None
    assert untested_recommendation(result(recommended=None)) is None
    ran = Trial(3, CHOSEN, FINISHED, 100.0, 0.2, 0.2, {"accuracy": 0.85}, True)
    assert untested_recommendation(result(trials=(ran,))) is None
    assert untested_recommendation(result(known=(ran,))) is None
    assert untested_recommendation(result(trials=(replace(ran, status=CUT),))) is not None


@pytest.mark.parametrize(
    ("goal", "missed"),
    [
        ("minimise cost_usd subject to accuracy >= 0.85", ["accuracy"]),  # the median breaks it
        ("minimise cost_usd subject to accuracy >= 0.75", ["accuracy"]),  # only its lower end does
        ("minimise cost_usd subject to accuracy >= 0.7", []),
        ("minimise cost_usd subject to cost_usd <= 0.24", ["cost_usd"]),
        ("minimise cost_usd subject to cost_usd <= 0.25", []),
        ("minimise cost_usd subject to accuracy >= 0.85 and cost_usd <= 0.24", ["accuracy"]),
        ("minimise cost_usd subject to memory_mb <= 1", []),  # of which nothing is told
    ],
)
def test_bounds_that_are_missed_or_in_doubt(goal: str, missed: list[str]) -> None:
    told = untested_recommendation(result())
    assert told is not None
    assert [bound.measure for bound, _ in told.missed(Goal.parse(goal).constraints)] == missed


class RentedJob(MeteredJob):
    """The same on machines: whoever rents them out keeps the bill, give-back included."""

    bill_usd = 0.0

    def confirming_usd(self) -> float:
        return self.bill_usd + self.used_usd + 0.01 * len(self.runs)


@dataclass
class OnMachines(MeteredRun):
    """It boots, and knows what its machines will have cost when they are gone."""

    overhead_s: float = 3.0

    def lasts_s(self, usd: float) -> float:
        return (usd - 0.01) / self.usd_per_h * 3600.0


class TestMoney:
    def rented(self) -> RentedJob:
        return RentedJob(SPACE, lambda _: Outcome(FINISHED, 1e5), lambda _: 3.6, ["accuracy"], "s")

    def test_what_it_cost_beyond_its_money_is_told(self) -> None:
        said = confirm(self.rented(), result(), budget_usd=0.3)
        assert said.spent_usd == pytest.approx(0.31)
        assert said.over_usd == said.to_dict()["over_usd"] == pytest.approx(0.01)
        assert confirm(job(), result(), budget_usd=0.3).over_usd == 0.0

    def test_giving_machines_back_is_paid_from_its_money(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metered, "MeteredRun", OnMachines)
        said = confirm(self.rented(), result(), budget_usd=0.3)
        assert (said.trial.status, said.over_usd) == (CUT, 0.0)
        assert said.spent_usd == pytest.approx(0.3)


class TestInterrupted:
    def begun(self, path: Path, lasted_s: float) -> ConfirmationFile:
        file = ConfirmationFile(path, SPACE)
        file.keep(ConfirmationRun("job", CHOSEN, PRICE, 0.5, lasted_s=lasted_s))
        return file

    @pytest.mark.parametrize(("outlived_s", "paid_s"), [(0.0, 40.0), (55.0, 55.0)])
    def test_it_is_charged_once_for_its_time(self, tmp_path: Path, outlived_s: float, paid_s: float) -> None:
        file = self.begun(tmp_path / "confirmation.json", 40.0)
        assert file.spent_usd == 0.0
        assert file.charge_interrupted(job(), outlived_s) == pytest.approx(0.002 * paid_s)
        assert file.charge_interrupted(job(), outlived_s) == 0.0
        assert file.spent_usd == file.interrupted_usd("job", CHOSEN) == pytest.approx(0.002 * paid_s)
        assert file.interrupted_usd("another job", CHOSEN) == 0.0
        found = file.find("job", CHOSEN)
        assert found is not None
        assert not found.settles(0.5)

    def test_what_cost_nothing_is_forgotten(self, tmp_path: Path) -> None:
        file = self.begun(tmp_path / "confirmation.json", 0.0)
        assert file.charge_interrupted(job()) == 0.0
        assert file.find("job", CHOSEN) is None

    def test_machines_are_charged_by_their_own_bill(self, tmp_path: Path) -> None:
        rented = RentedJob(SPACE, lambda _: Outcome(FINISHED, 1.0), lambda _: 3.6)
        file = self.begun(tmp_path / "confirmation.json", 40.0)
        rented.bill_usd = 0.03
        assert file.charge_interrupted(rented) == pytest.approx(0.03)
        file.keep(ConfirmationRun("job", CHOSEN, PRICE, 0.5))
        rented.bill_usd = 0.07
        assert file.charge_interrupted(rented) == pytest.approx(0.04)
        assert file.spent_usd == pytest.approx(0.07)

    def test_giving_machines_back_is_on_the_bill_of_the_run(self) -> None:
        rented = RentedJob(SPACE, lambda _: Outcome(FINISHED, 110.0), lambda _: 3.6, ["accuracy"], "s")
        rented.bill_usd = 0.5  # of earlier runs
        assert confirm(rented, result()).spent_usd == pytest.approx(0.11 + 0.01)


def trial(status: str = FINISHED, number: int = 0) -> Trial:
    return Trial(number, CHOSEN, status, 1.0, 0.2, 0.2, {"accuracy": 0.8}, True)


@pytest.mark.parametrize(
    ("kept", "most_usd", "settled"),
    [
        (None, 0.1, False),
        (FAILED, 0.1, False),
        (FINISHED, 9.0, True),
        (CUT, 0.5, True),
        (CUT, 0.4, True),
        (CUT, 0.501, False),
    ],
)
def test_a_run_settles_what_more_money_could_not_tell(
    kept: str | None, most_usd: float, settled: bool
) -> None:
    begun = ConfirmationRun("job", CHOSEN, PRICE, 0.5, None if kept is None else trial(kept))
    assert begun.settles(most_usd) is settled
    if kept == CUT:
        assert replace(begun, most_usd=None).settles(most_usd)


def test_the_file_of_confirmations_keeps_every_run(tmp_path: Path) -> None:
    path = tmp_path / "study" / "confirmation.json"
    file = ConfirmationFile(path, SPACE)
    assert file.find("job", CHOSEN) is None
    assert file.spent_usd == 0.0
    charge = LedgerEntry("confirmation", 0.25, 9.0, PRICE)
    cut = ConfirmationRun("job", CHOSEN, PRICE, 0.5, trial(CUT), charge)
    done = ConfirmationRun("job", CHOSEN, PRICE, None, trial(), charge)
    interrupted = ConfirmationRun("job", CHOSEN, PRICE, None, None, charge)
    other = ConfirmationRun("another job", CHOSEN, PRICE, 0.5, trial(CUT, 7), charge)
    for kept in (cut, interrupted, other):
        file.keep(kept)
    assert file.find("job", CHOSEN) == interrupted  # the last of those that did not finish
    file.keep(done)
    file.keep(replace(cut, trial=trial(CUT, 9)))
    assert file.find("job", CHOSEN) == done
    assert file.find("another job", CHOSEN) == other
    assert file.find("job", {"n": 1, "s": 1.0}) is None
    assert (file.spent_usd, file.interrupted_usd("job", CHOSEN)) == (1.25, 0.25)
    assert file.interrupted_usd("another job", CHOSEN) == 0.0
    begun = ConfirmationRun("job", CHOSEN, PRICE, 0.5)
    assert (begun.lasted_s, begun.spent_usd, begun.open, cut.open, interrupted.open) == (
        0.0, 0.0, True, False, False,
    )  # fmt: skip
    file.keep(begun)
    file.keep(replace(begun, lasted_s=5.0))  # how it stands now, not a second run
    said = json.loads(path.read_text())
    assert (said["format"], len(said["runs"])) == (1, 6)
    assert [one.name for one in path.parent.iterdir()] == ["confirmation.json"]
    assert file.find("job", CHOSEN) == done
    path.write_text("{}")
    with pytest.raises(BadInput, match="restore the file"):
        file.find("job", CHOSEN)
