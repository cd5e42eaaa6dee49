"""Executions under money and time on a simulated clock; the machines' own meter counts what they cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from prudent.cloud.billing import RentalPeriod, affordable_s
from prudent.cloud.leases.machine_delays import Delay
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute.forecast import LEARNED, Forecast, Interval, forecast
from prudent.workflows.execute.limit_guard import LimitGuard
from prudent.workflows.execute.money import RentalTerms
from prudent.workflows.execute.options import RunLimits
from prudent.workflows.execute.run import planned_queues
from prudent.workflows.formats.generate import generate

from .simulated import SimulatedCostMeter, SimulatedVmWorkers, TrueRunTime, execute_simulated

STILL = World(bandwidth_mb_s=1e12)
BOOT_S, GONE_S = 30.0, 5.0
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 60))]
Facts = list[dict[str, Any]]


def _named(facts: Facts, kind: str) -> Facts:
    return [fact for fact in facts if fact["fact"] == kind]


def _done(facts: Facts) -> set[str]:
    return {fact["activation"] for fact in _named(facts, "ended") if fact["outcome"] == "done"}


def _times(workflow: Workflow, fleet: Fleet, longer: Callable[[str], float]) -> TrueRunTime:
    speeds = {vm.name: vm.speed for vm in fleet.vms}

    def truth(name: str, vm: str, attempt: int) -> tuple[float, bool]:
        return workflow[name].runtime_s / speeds[vm] * longer(name), True

    return truth


class Played:
    """A plan followed on simulated machines; `workers` counts what is really paid."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        limits: RunLimits,
        longer: Callable[[str], float] = lambda name: 1.0,
        prices: Mapping[str, Price] | None = None,
        lost_s: Mapping[str, float] | None = None,
    ) -> None:
        used = {assignment.vm for assignment in plan.assignments.values()}
        own = {vm.name: Price(vm.usd_per_h, "", "plan") for vm in plan.fleet.vms}
        prices = {vm: price for vm, price in (prices or own).items() if vm in used}
        self.plan, self.workflow, self.prices = plan, workflow, prices
        self.workers = SimulatedVmWorkers(
            prices, _times(workflow, plan.fleet, longer), BOOT_S, GONE_S, lost_s
        )
        guard = LimitGuard(limits, SimulatedCostMeter(self.workers, 1.5 * GONE_S), self.forecast_after)
        self.facts: Facts = []
        with suppress(RunFailed):  # where the last machine is lost, nothing can go on
            self.facts = execute_simulated(plan, workflow, self.workers, guard)

    def forecast_after(
        self, workflow: Workflow, queues: Mapping[Any, Sequence[str]], facts: Any, now_s: float
    ) -> Forecast:
        del facts, now_s
        return _ahead(self.plan, workflow, queues, self.prices)


def _ahead(
    plan: Plan, workflow: Workflow, queues: Mapping[Any, Sequence[str]], prices: Mapping[str, Price]
) -> Forecast:
    terms = RentalTerms(prices, Delay(BOOT_S, 0.2), Delay(GONE_S, 0.2))
    return forecast(workflow, plan.fleet, STILL, queues, terms, LEARNED, worlds=60)


def _bag(count: int, seconds: float = 60.0) -> Workflow:
    """Activations that do not depend on each other."""
    return Workflow("bag", tuple(Activation(f"a{at}", "work", seconds) for at in range(count)))


@pytest.fixture
def four() -> Fleet:
    """Four machines at a dollar a minute; the last is ten times as dear and only twice as fast."""
    slow = tuple(Vm(f"v{at}", "slow", usd_per_h=60.0) for at in range(3))
    return Fleet((*slow, Vm("dear", "dear", 2000, usd_per_h=600.0)))


class TestGivingBack:
    def test_a_machine_is_paid_no_longer_than_its_part_takes(self) -> None:
        """A chain beside one short activation: the second machine goes when that has ended."""
        steps = tuple(Activation(f"s{at}", "step", 100.0) for at in range(4))
        chain = tuple((f"s{at}", f"s{at + 1}") for at in range(3))
        workflow = Workflow("chain", (*steps, Activation("aside", "aside", 50.0)), chain)
        fleet = Fleet((Vm("v1", "m", usd_per_h=3600), Vm("v2", "m", usd_per_h=3600)))
        plan = schedule(workflow, fleet, STILL, scheduler="heft")
        played = Played(plan, workflow, RunLimits())
        assert played.workers.paid == {
            plan.assignments["aside"].vm: pytest.approx(BOOT_S + 50 + GONE_S),
            plan.assignments["s3"].vm: pytest.approx(BOOT_S + 400 + GONE_S),
        }
        assert played.workers.cost_usd() == pytest.approx(2 * (BOOT_S + GONE_S) + 450)

    def test_a_lost_machine_is_not_paid_until_the_end(self) -> None:
        workflow = _bag(6)
        fleet = Fleet((Vm("v1", "m", usd_per_h=60), Vm("v2", "m", usd_per_h=60)))
        played = Played(
            schedule(workflow, fleet, STILL, scheduler="heft"), workflow, RunLimits(), lost_s={"v2": 40}
        )
        assert _done(played.facts) == set(workflow.index)
        assert played.workers.paid["v2"] == pytest.approx(40 + GONE_S)


class TestBudget:
    @pytest.mark.parametrize(
        "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 60))]
    )
    def test_the_real_bill_keeps_any_budget(self, seed: int) -> None:
        """Times, prices, minima, steps, losses and budgets at random: the machines' own meter judges."""
        luck = random.Random(seed)
        workflow = generate(luck.choice(("montage", "epigenomics", "inspiral")), 30, seed=seed)
        fleet = Fleet.parse(luck.choice(("3*m3.medium,m3.2xlarge", "4*m3.medium", "2*m3.large,m3.xlarge")))
        plan = schedule(workflow, fleet, STILL, scheduler="heft")
        step_s, minimum_s = luck.choice((0.0, 60.0, 3600.0)), luck.choice((0.0, 60.0))
        prices = {vm.name: Price(vm.usd_per_h, "", "x", minimum_s, step_s) for vm in fleet.vms}
        queues = planned_queues(plan, workflow, workflow.order)
        expected_usd = _ahead(plan, workflow, queues, prices).cost_usd.expected
        least_usd = sum(
            prices[vm].cost_usd(BOOT_S + 2 * GONE_S) for vm in {a.vm for a in plan.assignments.values()}
        )
        budget_usd = max(luck.uniform(0.4, 1.2) * expected_usd, least_usd)
        wrong = {name: luck.lognormvariate(0.2, 0.6) for name in workflow.index}
        lost_s = {fleet.vms[0].name: luck.uniform(40, 200)} if seed % 3 == 0 else None
        played = Played(plan, workflow, RunLimits(budget_usd), wrong.__getitem__, prices, lost_s)
        assert played.workers.cost_usd() <= budget_usd + 1e-9
        if played.facts:
            stopped = _named(played.facts, "stopped")
            assert bool(stopped) == (_done(played.facts) != set(workflow.index))

    def test_short_money_moves_work_to_cheaper_machines_and_all_is_done(self, four: Fleet) -> None:
        workflow = _bag(12)
        plan = schedule(workflow, four, STILL, scheduler="heft")
        assert "dear" in {assignment.vm for assignment in plan.assignments.values()}
        free = Played(plan, workflow, RunLimits(), lambda name: 1.5)
        tight = Played(plan, workflow, RunLimits(0.75 * free.workers.cost_usd()), lambda name: 1.5)
        assert _done(tight.facts) == set(workflow.index)
        assert tight.workers.cost_usd() <= 0.75 * free.workers.cost_usd()
        assert {fact["why"] for fact in _named(tight.facts, "replanned")} == {"budget"}
        assert tight.workers.paid["dear"] < free.workers.paid["dear"]

    def test_what_cannot_be_paid_to_its_end_is_not_begun(self, four: Fleet) -> None:
        """So nothing is paid for that is thrown away, where times are as expected."""
        workflow = _bag(20)
        plan = schedule(workflow, four, STILL, scheduler="heft")
        played = Played(plan, workflow, RunLimits(15.0))
        [stopped] = _named(played.facts, "stopped")
        started = {fact["activation"] for fact in _named(played.facts, "started")}
        assert started == _done(played.facts)
        assert len(started) >= 5
        assert stopped["why"] == "budget"
        assert stopped["remaining"] == 20 - len(started)
        assert f"{20 - len(started)} of 20 activations remain" in stopped["sentence"]
        assert "--resume --budget $" in stopped["sentence"]
        assert stopped["needs"]["cost_usd"]["low"] > 0

    def test_the_budget_told_for_the_rest_suffices(self, four: Fleet) -> None:
        workflow = _bag(20)
        plan = schedule(workflow, four, STILL, scheduler="heft")
        first = Played(plan, workflow, RunLimits(15.0))
        [stopped] = _named(first.facts, "stopped")
        left = Workflow("bag", tuple(a for a in workflow.activations if a.id not in _done(first.facts)))
        rest = Played(schedule(left, four, STILL, scheduler="heft"), left, RunLimits())
        told_usd = float(stopped["sentence"].rpartition("$")[2].rstrip("."))
        assert first.workers.cost_usd() + rest.workers.cost_usd() <= told_usd


class TestDeadline:
    def test_nothing_runs_past_it(self, four: Fleet) -> None:
        workflow = _bag(40)
        plan = schedule(workflow, four, STILL, scheduler="heft")
        played = Played(plan, workflow, RunLimits(deadline_s=300.0), lambda name: 1.4)
        [stopped] = _named(played.facts, "stopped")
        assert stopped["why"] == "deadline"
        assert '--deadline "' in stopped["sentence"]
        assert 0 < max(fact["finish_s"] for fact in _named(played.facts, "ended")) <= 300.0
        assert max(played.workers.paid.values()) <= 300.0 + GONE_S

    def test_short_time_spreads_work_anew(self) -> None:
        """A plan that left a machine idle, followed to the letter, takes twice the deadline."""
        workflow = _bag(8)
        fleet = Fleet((Vm("v1", "m", usd_per_h=60), Vm("v2", "m", usd_per_h=60)))
        good = schedule(workflow, fleet, STILL, scheduler="heft")
        rows = sorted(good.assignments)
        lanes = {name: "v2" if name == rows[0] else "v1" for name in rows}
        from dataclasses import replace

        bad = replace(
            good,
            assignments={
                name: replace(a, vm=lanes[name], start_s=float(rows.index(name)))
                for name, a in good.assignments.items()
            },
        )
        played = Played(bad, workflow, RunLimits(deadline_s=BOOT_S + 5 * 60))
        assert _done(played.facts) == set(workflow.index)
        assert {fact["why"] for fact in _named(played.facts, "replanned")} == {"deadline"}


class TestRefusal:
    ahead = Forecast(Interval(1.0, 2.0, 3.04), Interval(600.0, 1200.0, 3000.0))

    def test_what_is_expected_to_break_a_limit_is_refused_with_the_remedy(self) -> None:
        with pytest.raises(BadInput, match=r"\$2\.00 \(90 %: \$1\.00 to \$3\.04\).*--budget \$3\.10,"):
            RunLimits(1.5).check(self.ahead, 0.0)
        with pytest.raises(
            BadInput, match=r"20 min 00 s.*deadline of 10 min 00 s; give --deadline \"50 min\""
        ):
            RunLimits(deadline_s=600.0).check(self.ahead, 0.0)
        RunLimits(2.5, 1300.0).check(self.ahead, 0.0)

    @pytest.mark.parametrize("wrong", [{"budget_usd": 0.0}, {"budget_usd": -1.0}, {"deadline_s": 0.0}])
    def test_limits_of_nothing(self, wrong: dict[str, float]) -> None:
        with pytest.raises(BadInput, match="above zero"):
            RunLimits(**wrong)


def test_nobody_stays_into_a_minute_that_is_not_paid_for() -> None:
    by_minute = Price(60.0, "", "x", minimum_s=60, step_s=60)
    holds = [RentalPeriod("a", by_minute, 0.0), RentalPeriod("b", by_minute, 0.0, until_s=30.0)]
    assert affordable_s(holds, 4.0, now_s=70.0, give_back_s=10.0) == pytest.approx(100.0)
    assert affordable_s(holds, 2.9, now_s=55.0, give_back_s=10.0) < 0
    assert affordable_s([], 0.0, now_s=0.0) == float("inf")
