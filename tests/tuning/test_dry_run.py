"""What a study would do and what its budget buys, told before anything runs."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from prudent.core.space import Space
from prudent.tuning.dry_run import SAMPLED, SHOWN, DryRun, dry_run, endless
from prudent.tuning.study.study import Study
from prudent.tuning.trial import FINISHED, Outcome, Trial

from .metered import MeteredJob

FIVE = {"n": [1, 2, 3, 4, 5]}
GOAL = "minimise cost_usd subject to time_s <= 100"


def look(
    parameters: dict[str, Any] = FIVE,
    goal: str = GOAL,
    budget_usd: float | None = 10.0,
    strategy: str = "grid",
    usd_per_h: float = 3.6,
    minimum_s: float = 0.0,
    setup_s: float | None = None,
    **more: Any,
) -> DryRun:
    """A second of configuration n costs n / 1000 dollars; nothing may be run."""
    job = _job(parameters, usd_per_h, minimum_s)
    if setup_s is not None:
        job.setup_s = setup_s  # type: ignore[attr-defined]
    study = Study(job.space, goal, job.price, budget_usd, strategy, **more)
    said = dry_run(job, study)
    assert (job.runs, study.spent_usd, study.trials) == ({}, 0.0, ())
    return said


def _job(parameters: dict[str, Any], usd_per_h: float, minimum_s: float = 0.0) -> MeteredJob:
    return MeteredJob(
        Space.parse(parameters),
        lambda _: Outcome(FINISHED, 1.0),
        lambda chosen: usd_per_h * chosen["n"],
        minimum_s=minimum_s,
    )


def test_prices_are_those_of_the_cheapest_the_middle_and_the_dearest() -> None:
    said = look()
    assert [(point.which, point.configuration["n"], point.usd_per_h) for point in said.prices] == [
        ("cheapest", 1, pytest.approx(3.6)),
        ("median", 3, pytest.approx(10.8)),
        ("dearest", 5, pytest.approx(18.0)),
    ]
    assert [point.hours for point in said.prices] == pytest.approx([10 / 3.6, 10 / 10.8, 10 / 18])
    # 100 s, as long as the goal allows, cost n / 10 dollars.
    assert [point.runs for point in said.prices] == pytest.approx([100.0, 100 / 3, 20.0])
    assert look({"n": [4, 1, 3, 2]}).prices[1].configuration == {"n": 2}
    assert (said.size, said.sampled, said.budget_usd, said.bound_s) == (5, False, 10.0, 100.0)
    assert said.goal == "minimise cost_usd subject to time_s <= 1 min 40 s"
    assert (said.strategy, len(said.parameters)) == ("grid", 1)


def test_a_billing_minimum_is_in_the_price_of_a_run() -> None:
    assert [point.runs for point in look(minimum_s=400.0).prices] == pytest.approx([25.0, 25 / 3, 5.0])


def test_without_an_end_it_says_so_and_json_has_none() -> None:
    said = look(goal="minimise cost_usd", budget_usd=None)
    assert [(point.hours, point.runs) for point in said.prices] == [(math.inf, math.inf)] * 3
    plain = said.to_dict()
    assert (plain["time_bound_s"], plain["budget_usd"]) == (None, None)
    assert plain["prices"][0] == {
        **{"which": "cheapest", "configuration": {"n": 1}, "usd_per_h": pytest.approx(3.6)},
        **{"hours": None, "runs": None},
    }
    bounded = look().to_dict()
    assert (bounded["time_bound_s"], bounded["configurations"], bounded["prices_sampled"]) == (100, 5, False)
    assert bounded["prices"][2]["runs"] == pytest.approx(20.0)
    assert bounded["first"][0] == {"configuration": {"n": 1}, "usd_per_h": pytest.approx(3.6)}


def test_what_is_free_lasts_for_ever() -> None:
    said = look(usd_per_h=0.0)
    assert [(point.hours, point.runs) for point in said.prices] == [(math.inf, math.inf)] * 3
    assert said.warnings == (
        'Every configuration is free, so the budget limits nothing; say what a run costs with "price".',
    )


def test_of_a_space_that_cannot_be_listed_prices_are_sampled() -> None:
    said = look({"n": {"real": [1.0, 2.0]}}, strategy="random")
    assert said.sampled
    assert said.size is None
    assert SAMPLED == 2000
    # Of 2000 draws the ends come near, and the middle is the middle.
    assert [point.usd_per_h for point in said.prices] == pytest.approx([3.6, 5.4, 7.2], rel=0.03)


@pytest.mark.parametrize(("parameters", "shown"), [(FIVE, 4), ({"n": [1, 2]}, 2)])
def test_the_first_trials_are_shown_as_they_would_be_asked(parameters: dict[str, Any], shown: int) -> None:
    said = look(parameters)
    assert SHOWN == 4
    assert [chosen["n"] for chosen, _ in said.first] == [1, 2, 3, 4][:shown]
    assert [usd for _, usd in said.first] == pytest.approx([3.6 * n for n in range(1, shown + 1)])


@pytest.mark.parametrize(("start_trials", "shown"), [(2, 2), (3, 3), (5, 4)])
def test_a_strategy_that_learns_shows_what_it_chooses_before(start_trials: int, shown: int) -> None:
    said = look(strategy="lynceus", options={"start_trials": start_trials})
    assert len(said.first) == shown
    assert len({chosen["n"] for chosen, _ in said.first}) == shown


def test_what_is_known_already_is_not_shown() -> None:
    known = Trial(1, {"n": 1}, FINISHED, 10.0, 0.01, 0.01, {}, True)
    assert [chosen["n"] for chosen, _ in look(warm_start=[known]).first] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("case", "warning"),
    [
        # The first four cost 0.1 + 0.2 + 0.3 + 0.4 dollars: half of the budget is no reason to warn.
        ({"budget_usd": 2.0}, None),
        ({"budget_usd": 1.99}, r"The first 4 trials may cost up to \$1\.00 of the \$1\.99"),
        ({"budget_usd": 0.1}, "The first 4 trials may cost up to"),
        ({"budget_usd": 0.0999}, r"too small for even one run: 1 min 40 s on the cheapest .* cost \$0\.1"),
        ({"budget_usd": None}, "There is no budget"),
        ({"goal": "minimise cost_usd"}, "the first runs can only be cut when the money is gone"),
        ({"goal": "minimise cost_usd", "early_stop": False}, None),
        ({"setup_s": 99.0}, None),
        ({"setup_s": 100.0}, "No run can keep time_s <= .*: setting up alone takes 1 min 40 s"),
        # The shortest run of n = 1 has a minimum of 50 s: 0.05 dollars.
        ({"goal": f"{GOAL} and cost_usd <= 0.05", "minimum_s": 50.0}, None),
        ({"goal": f"{GOAL} and cost_usd <= 0.049", "minimum_s": 50.0}, r"No configuration .* billed \$0\.05"),
        ({"goal": f"{GOAL} and cost_usd <= 0.049", "minimum_s": 1.0, "setup_s": 50.0}, "No configuration"),
    ],
)
def test_it_warns_of_money_and_time_that_do_not_suffice(case: dict[str, Any], warning: str | None) -> None:
    found = look(**case).warnings
    assert len(found) == (warning is not None), found
    if warning is not None:
        assert re.search(warning, found[0]), found[0]
        assert look(**case).to_dict()["warnings"] == list(found)


@pytest.mark.parametrize(
    ("parameters", "budget_usd", "usd_per_h", "max_trials", "is_endless"),
    [
        ({"n": {"real": [1.0, 2.0]}}, None, 3.6, None, True),
        ({"n": {"real": [1.0, 2.0]}}, None, 3.6, 5, False),
        ({"n": {"real": [1.0, 2.0]}}, 1.0, 3.6, None, False),
        ({"n": {"real": [1.0, 2.0]}}, 1.0, 0.0, None, True),
        (FIVE, None, 3.6, None, False),
        # Too many to list, but they come to an end.
        ({"n": {"integer": [1, 1000]}, "m": {"integer": [1, 1000]}}, None, 3.6, None, False),
    ],
)
def test_what_never_ends(
    parameters: dict[str, Any],
    budget_usd: float | None,
    usd_per_h: float,
    max_trials: int | None,
    is_endless: bool,
) -> None:
    job = _job(parameters, usd_per_h)
    study = Study(job.space, "minimise cost_usd", job.price, budget_usd, "random")
    assert endless(study, max_trials) is is_endless


class RentingJob(MeteredJob):
    """It rents machines, and knows what would go wrong there."""

    def check(self) -> list[str]:
        return ["no key"]

    def release(self) -> None:
        raise AssertionError

    def bill_usd(self) -> float:
        raise AssertionError


def test_what_would_go_wrong_at_the_machines_is_told_first() -> None:
    job = RentingJob(Space.parse(FIVE), lambda _: Outcome(FINISHED, 1.0), lambda _: 3.6)
    said = dry_run(job, Study(job.space, GOAL, job.price, None, "grid"))
    assert said.warnings[0] == "no key"
    assert len(said.warnings) == 2
