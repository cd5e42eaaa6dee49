"""A study whose runs rent machines: what is paid beside the runs, and what it says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.study.limits import OUT_OF_MONEY, TOO_SLOW
from prudent.tuning.study.study import Study
from prudent.tuning.trial import FAILED, FINISHED, Outcome, Progress

SPACE = Space.parse({"n": [1, 2, 3, 4]})
FREE = Price(0.0, "", "leases")


def study(
    journal: Path | None = None, goal: str = "minimise cost_usd subject to time_s <= 300", **more: Any
) -> Study:
    return Study(SPACE, goal, lambda _: 3.6, budget_usd=1.0, strategy="grid", journal=journal, **more)


def ask(of: Study) -> int:
    asked = of.ask()
    assert asked is not None
    return asked.number


def test_booting_is_paid_for_and_says_nothing_about_the_configuration() -> None:
    one = study()
    outcome = Outcome(FINISHED, 150.0, {}, overhead_s=50.0, bill_usd=0.2)
    trial = one.tell(ask(one), outcome, [Progress(20.0, {}, 0.1), Progress(100.0, {}, 0.5)])
    assert (trial.time_s, trial.cost_usd, trial.spent_usd) == (100.0, pytest.approx(0.1), 0.2)
    assert one.spent_usd == 0.2


def test_progress_counts_from_the_end_of_the_boot() -> None:
    one = study()
    outcome = Outcome("cut", 150.0, {}, overhead_s=50.0, bill_usd=0.15)
    shown = [Progress(20.0, {}, 0.9), Progress(75.0, {}, 0.25), Progress(100.0, {}, 0.5)]
    trial = one.tell(ask(one), outcome, shown)
    assert trial.estimate["time_s"] == pytest.approx(100.0, rel=0.3)


def test_limits_on_the_run_are_later_by_the_boot_and_those_of_money_are_not() -> None:
    one = study()
    number = ask(one)
    money_s = one.limit(number).seconds
    assert one.limit(number).why == OUT_OF_MONEY
    booted = one.limit(number, overhead_s=40.0, lasts_s=lambda usd: usd * 100)
    assert booted.seconds == pytest.approx(one.pending[0].price.cost_usd(money_s) * 100)
    slow = study(goal="minimise cost_usd subject to time_s <= 10")
    number = ask(slow)
    assert slow.extend(number)
    limit = slow.limit(number, overhead_s=5.0, lasts_s=lambda usd: 1e3)
    assert (limit.why, limit.seconds) == (TOO_SLOW, pytest.approx(15.0))
    assert slow.limit(number, overhead_s=5.0, lasts_s=lambda usd: 9.0).why == OUT_OF_MONEY


def test_a_run_that_never_began_pays_for_its_machines() -> None:
    one = study()
    lost = Outcome(FAILED, 80.0, {}, "lost", started=False, overhead_s=80.0, bill_usd=0.08)
    trial = one.tell(ask(one), lost)
    assert (trial.time_s, trial.spent_usd) == (0.0, 0.08)
    free = Outcome(FAILED, 80.0, {}, "no host was free", started=False, overhead_s=80.0, bill_usd=0.0)
    assert one.tell(ask(one), free).spent_usd == 0.0
    assert len(one.ledger.entries) == 1


def test_machines_beside_the_trials_are_charged_once_and_remembered(tmp_path: Path) -> None:
    one = study(tmp_path / "j")
    one.charge("idle machines", 0.25, FREE)
    one.charge("idle machines", 0.0, FREE)
    one.close()
    again = study(tmp_path / "j", resume=True)
    assert again.spent_usd == 0.25
    again.charge("idle machines", 9.0, FREE)
    assert (again.spent_usd, again.ledger.over_usd) == (9.25, 8.25)  # it was paid
    again.charge("a machine that was gone", -0.25, FREE)
    again.close()
    last = study(tmp_path / "j", resume=True)
    assert last.spent_usd == 9.0
    last.close()


def test_a_trial_to_be_taken_up_waits_for_money_that_pays_for_its_start(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def opened(resume: bool, budget_usd: float) -> Study:
        price = Price(3.6, "", "test", minimum_s=60.0)
        goal = "minimise cost_usd"
        return Study(SPACE, goal, lambda _: price, budget_usd, "grid", journal=path, resume=resume)

    killed = opened(False, 0.1)
    assert killed.ask() is not None
    killed.close()
    taken_up = opened(True, 0.1)
    taken_up.charge("machines of the session that was killed", 0.06, FREE)
    assert taken_up.ask() is None
    assert taken_up.spent_usd == 0.06
    taken_up.close()
    richer = opened(True, 0.2)
    again = richer.ask()
    assert again is not None
    assert again.number == 1
    richer.close()
