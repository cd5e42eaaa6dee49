"""Forecasts: their intervals hold what happens, and what they are made of is learned from executions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from prudent.cloud.leases.machine_delays import Delay, DelayRecords
from prudent.core.money import Price
from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
from prudent.workflows.execute.forecast import GUESSED, LEARNED, Forecast, Interval, Uncertainty, forecast
from prudent.workflows.execute.learning import Residual, fit_uncertainty, uncertainty_of_runs
from prudent.workflows.execute.money import RentalTerms
from prudent.workflows.execute.run import WorkflowRun, planned_queues
from prudent.workflows.execute.runner import execute

STILL = World(bandwidth_mb_s=1e12)
TWO = Fleet((Vm("v1", "m", usd_per_h=3600.0), Vm("v2", "m", usd_per_h=3600.0)))
BAG = Workflow("bag", tuple(Activation(f"a{at}", f"p{at % 2}", 10.0) for at in range(8)))


def _ahead(
    terms: RentalTerms, unsure: Uncertainty, workflow: Workflow = BAG, names: set[str] | None = None
) -> Forecast:
    plan = schedule(workflow, TWO, STILL, scheduler="heft")
    queues = planned_queues(plan, workflow, names or set(workflow.index))
    return forecast(workflow, TWO, STILL, queues, terms, unsure)


def _prices(minimum_s: float = 0.0, step_s: float = 0.0) -> dict[str, Price]:
    return {vm.name: Price(3600.0, "", "x", minimum_s, step_s) for vm in TWO.vms}


def test_a_sure_forecast_is_the_bill_to_the_cent() -> None:
    """Two machines, 40 s of work each, 30 s of boot, 5 s of give-back, a dollar a second."""
    terms = RentalTerms(_prices(), Delay(30.0), Delay(5.0))
    ahead = _ahead(terms, Uncertainty())
    assert ahead.cost_usd == Interval(*[pytest.approx(150.0)] * 3)  # type: ignore[list-item]
    assert ahead.makespan_s.expected == pytest.approx(70.0)
    assert _ahead(RentalTerms(_prices(100.0)), Uncertainty()).cost_usd.expected == pytest.approx(200.0)
    by_minute = RentalTerms(_prices(step_s=60.0), Delay(30.0), Delay(5.0))
    assert _ahead(by_minute, Uncertainty()).cost_usd.expected == pytest.approx(240.0)


def test_only_what_is_left_is_counted_on_the_machines_it_needs() -> None:
    plan = schedule(BAG, TWO, STILL, scheduler="heft")
    names = {name for name, each in plan.assignments.items() if each.vm == "v1"}
    ahead = _ahead(RentalTerms(_prices(), Delay(30.0), Delay(5.0)), Uncertainty(), names=names)
    assert ahead.cost_usd.expected == pytest.approx(75.0)


def test_errors_in_common_make_it_wider_than_as_many_of_single_activations() -> None:
    widths = [
        ahead.cost_usd.high - ahead.cost_usd.low
        for unsure in (Uncertainty(run=0.3), Uncertainty(program=0.3), Uncertainty(activation=0.3))
        for ahead in [_ahead(RentalTerms(_prices()), unsure)]
    ]
    assert widths[0] > widths[1] > widths[2] > 0


def test_the_deviations_of_executions_are_found_again() -> None:
    """400 executions of five programs with known errors in each part."""
    rng, true = np.random.default_rng(3), Uncertainty(bias=0.1, run=0.2, program=0.3, activation=0.25)
    taught = []
    for _ in range(400):
        run, programs = rng.normal(true.bias, true.run), rng.normal(0, true.program, 5)
        taught.append(
            [
                Residual(f"p{at % 5}", float(run + programs[at % 5] + rng.normal(0, true.activation)), 10.0)
                for at in range(60)
            ]
        )
    found = fit_uncertainty(taught, GUESSED)
    assert found.bias == pytest.approx(true.bias, abs=0.05)
    assert found.run == pytest.approx(true.run, abs=0.05)
    assert found.program == pytest.approx(true.program, abs=0.04)
    assert found.activation == pytest.approx(true.activation, abs=0.03)
    assert fit_uncertainty([], LEARNED) == LEARNED


def test_runs_that_agree_make_the_next_forecast_surer(tmp_path: Path) -> None:
    """Runs in which all takes three times as long as guessed, and runs that differ by factors of two."""

    def run(factor: float) -> WorkflowRun:
        plan = schedule(BAG, TWO, STILL, scheduler="heft")
        facts = [
            {"fact": "ended", "outcome": "done", "activation": name, "vm": each.vm, "took_s": 10.0 * factor}
            for name, each in plan.assignments.items()
        ]
        return WorkflowRun(tmp_path, BAG, plan, tuple(facts))

    agreeing = uncertainty_of_runs(BAG, STILL, [run(3.0) for _ in range(3)])
    differing = uncertainty_of_runs(BAG, STILL, [run(factor) for factor in (1.0, 2.0, 4.0)])
    assert agreeing.run < LEARNED.run < differing.run
    assert agreeing.activation < LEARNED.activation
    assert uncertainty_of_runs(BAG, STILL, [run(3.0)]) == LEARNED


def test_nine_of_ten_outcomes_lie_within_the_interval() -> None:
    """Outcomes of a world drawn by hand, with none of the forecast's code: one machine, so costs are sums."""
    one = Fleet((Vm("v1", "m", usd_per_h=3600.0),))
    plan = schedule(BAG, one, STILL, scheduler="heft")
    terms = RentalTerms({"v1": Price(3600.0, "", "x")}, Delay(20.0, 0.3), Delay(5.0, 0.3))
    unsure = Uncertainty(run=0.1, program=0.2, machine=0.05, activation=0.2)
    queues = planned_queues(plan, BAG, set(BAG.index))
    ahead = forecast(BAG, one, STILL, queues, terms, unsure)
    rng = np.random.default_rng(11)
    inside = []
    for _ in range(1000):
        programs = rng.normal(0, 0.2, 2)
        common = rng.normal(0, 0.1) + rng.normal(0, 0.05)
        work_s = sum(10.0 * math.exp(common + programs[at % 2] + rng.normal(0, 0.2)) for at in range(8))
        cost_usd = 20 * math.exp(rng.normal(0, 0.3)) + work_s + 5 * math.exp(rng.normal(0, 0.3))
        inside.append(cost_usd in ahead.cost_usd)
    assert 0.86 < fmean(inside) < 0.94


def test_a_provider_s_delays_are_those_that_were_measured(tmp_path: Path) -> None:
    delays = DelayRecords(tmp_path)
    usual = delays.of("ec2", "boot")
    (tmp_path / "leases").mkdir()
    for _ in range(60):
        delays.note("ec2", "boot", 200.0)
    with (tmp_path / "leases" / "delays.jsonl").open("a") as file:
        file.write('{"torn')
    measured = DelayRecords(tmp_path).of("ec2", "boot")
    assert usual.median_s < 100 < measured.median_s < 200
    assert measured.sigma < usual.sigma
    assert measured.high_s > measured.median_s
    assert delays.of("ec2", "give_back", usual_s=3.0).median_s == pytest.approx(3.0)


def test_it_is_said_and_read_back() -> None:
    ahead = Forecast(Interval(1.0, 2.0, 3.5), Interval(60.0, 90.0, 120.0))
    assert Forecast.from_dict(ahead.to_dict()) == ahead
    assert ahead.cost_text == "$2.00 (90 %: $1.00 to $3.50)"
    assert ahead.plus(1.0, 30.0).makespan_text == "2 min 00 s (90 %: 1 min 30 s to 2 min 30 s)"


def test_workers_that_go_on_are_not_billed_a_minimum_or_a_step_again() -> None:
    """v1 was held for 50 s and paid for 100 (its minimum); both have 40 s of work at a dollar a second."""
    terms = RentalTerms(_prices(100.0), held_s={"v1": 50.0, "v2": 0.0}, paid_usd={"v1": 100.0})
    assert _ahead(terms, Uncertainty()).cost_usd.expected == pytest.approx(0.0 + 100.0)
    by_minute = RentalTerms(_prices(step_s=60.0), held_s={"v1": 50.0}, paid_usd={"v1": 60.0})
    assert _ahead(by_minute, Uncertainty()).cost_usd.expected == pytest.approx(60.0 + 60.0)


def test_the_forecast_of_a_resumed_rehearsal_is_what_its_book_says(tmp_path: Path) -> None:
    """An hour is the least that is billed, and both sessions together need less."""
    workflow = Workflow("pair", (Activation("a", "p", 1.0), Activation("b", "p", 1.0)), (("a", "b"),))
    fleet = Fleet((Vm("v1", "m", usd_per_h=1.0),))
    plan = schedule(workflow, fleet, World(billing="hour"), scheduler="heft")

    def stop(fact: Mapping[str, Any]) -> None:
        if fact["fact"] == "ended":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(plan, workflow, tmp_path / "run", replay=0.1, watch=stop)
    run = execute(plan, workflow, tmp_path / "run", replay=0.1, resume=True)
    assert run.skipped == 1
    assert run.forecast is not None
    assert run.forecast.cost_usd.expected == run.cost_usd == pytest.approx(1.0)
