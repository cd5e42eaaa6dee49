"""Plans for what is left when money or time runs short: on fewer machines, or spread anew.

Money and time of one session: what is left, what to do when it is too little, what a stop is told as.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prudent.cloud.hold import RentalPeriod, due_usd
from prudent.core.money import ROUNDING_USD
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.forecast import Forecast
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.money import CostMeter, spent_usd
from prudent.workflows.execute.options import LimitKind, RunLimits, stop_sentence
from prudent.workflows.execute.replanner import (
    Queues,
    place_earliest,
    placement_of,
    queues_of,
    remaining_problem,
)
from prudent.workflows.fleet import Fleet
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, sample_world
from prudent.workflows.simulation.records import PLAN
from prudent.workflows.simulation.simulator import run_simulation
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

_NEVER_S = 1e9


_MOST_PAIRS, _LEAST_TRIES = 3_000_000, 4
"""Ways are tried until so many pairs of activation and slot were looked at, but a few in any case."""


_WORTH = 0.98
"""Where no plan keeps the limits, another one is followed if it takes less than this part of the rest."""


_SLACK = 0.03
"""A plan that keeps a limit by less than this part of what is left is not sure to."""


@dataclass(frozen=True)
class Projection:
    """What becomes of the rest by some queues: when the run ends on its clock, and what it costs in all."""

    queues: Queues
    end_s: float
    cost_usd: float

    def keeps(self, limits: RunLimits, now_s: float, spent_usd: float) -> bool:
        """Whether both limits are kept with some slack."""
        cost_usd = self.cost_usd + _SLACK * max(self.cost_usd - spent_usd, 0.0)
        return limits.passed_by(cost_usd, self.end_s + _SLACK * (self.end_s - now_s)) is None


@dataclass(frozen=True)
class RemainingRun:
    """What is left at a moment: activations that wait and run, on machines that are held and paid for.

    `running` tells where activations are and for how long; `elsewhere_usd` what others than `holds` cost.
    """

    workflow: Workflow
    fleet: Fleet
    world: World
    waiting: Collection[str]
    running: Mapping[str, tuple[Lane, float]]
    holds: Sequence[RentalPeriod]
    elsewhere_usd: float
    now_s: float
    give_back_s: float

    def as_it_is(self, queues: Mapping[Lane, Sequence[str]]) -> Projection:
        """The outlook if nothing is changed."""
        problem, names, lanes = self._problem()
        at_lane = {lane: at for at, lane in enumerate(lanes)}
        placement = placement_of(names, at_lane, self.running, queues)
        return self._outlook(problem, names, lanes, placement)

    def others(self) -> list[Projection]:
        """Other ways: each activation where it ends first, on all machines, then on ever fewer.

        The type goes first without which the rest is cheapest; a machine on which something runs gets no more
        and goes when that ends. Of many machines, several go at a time, and no more ways are tried than there
        is time for: all machines are paid meanwhile.
        """
        problem, names, lanes = self._problem()
        open_vms = {vm.name for vm in self.fleet.vms}
        found = [self._without(problem, names, lanes, set())]
        tries = max(_MOST_PAIRS // (len(names) * len(lanes)), _LEAST_TRIES)
        while len(open_vms) > 1 and tries > 0:
            closed = {vm.name for vm in self.fleet.vms} - open_vms
            groups = self._groups(open_vms, max(len(open_vms) // 8, 1))
            tried = [(self._without(problem, names, lanes, closed | group), group) for group in groups]
            tries -= len(tried)
            best, dropped = min(tried, key=lambda each: (each[0].cost_usd, each[0].end_s))
            open_vms -= dropped
            found.append(best)
        return found

    def _groups(self, open_vms: Collection[str], most: int) -> list[set[str]]:
        """So many machines of each type, at most, of which all or none are busy; never all machines."""
        found: dict[tuple[str, bool], set[str]] = {}
        for vm in self.fleet.vms:
            group = found.setdefault((vm.machine, self._busy(vm.name)), set())
            if vm.name in open_vms and len(group) < most:
                group.add(vm.name)
        return [group for group in found.values() if group]

    def _busy(self, vm: str) -> bool:
        return any(lane[0] == vm for lane, _ in self.running.values())

    def _problem(self) -> tuple[SchedulingProblem, list[str], list[Lane]]:
        names = [name for name in self.workflow.order if name in self.waiting or name in self.running]
        lanes = [(self.fleet.vms[vm].name, slot) for vm, slot in self.fleet.lanes]
        return remaining_problem(self.workflow, self.fleet, self.world, names, self.running), names, lanes

    def _without(
        self, problem: SchedulingProblem, names: Sequence[str], lanes: Sequence[Lane], closed: Collection[str]
    ) -> Projection:
        at_lane = {lane: at for at, lane in enumerate(lanes)}
        placement = place_earliest(self._closing(problem, names, closed), names, at_lane, self.running)
        return self._outlook(problem, names, lanes, placement)

    def _closing(
        self, problem: SchedulingProblem, names: Sequence[str], closed: Collection[str]
    ) -> SchedulingProblem:
        """The same problem where nothing that waits ever ends on some machines, so that none goes there."""
        if not closed:
            return problem
        lanes, vms, run_s = problem.lanes.copy(), problem.vms.copy(), [problem.run_s]
        waits = np.array([name not in self.running for name in names])
        for at, vm in enumerate(self.fleet.vms):
            if vm.name in closed:
                column = problem.run_s[:, int(vms[at]["kind"])]
                vms["kind"][at] = sum(each.shape[1] for each in run_s)
                run_s.append(np.where(waits, _NEVER_S, column)[:, None])
        lanes["kind"] = vms["kind"][lanes["vm"]]
        return replace(problem, lanes=lanes, vms=vms, run_s=np.hstack(run_s))

    def _outlook(
        self, problem: SchedulingProblem, names: Sequence[str], lanes: Sequence[Lane], placement: Placement
    ) -> Projection:
        trace = run_simulation(problem, sample_world(problem, problem.world, 0), PLAN, placement=placement)
        last_s = {vm.name: float(trace.vms[at]["last_s"]) for at, vm in enumerate(self.fleet.vms)}
        total_usd = self.elsewhere_usd
        for hold in self.holds:
            total_usd += hold.due_usd(self.now_s + max(last_s.get(hold.name, 0.0), 0.0) + self.give_back_s)
        queues = queues_of(placement, names, lanes, self.running)
        return Projection(queues, self.now_s + trace.makespan_s, total_usd)


def best_alternative(
    now: Projection, others: Sequence[Projection], limits: RunLimits, rest: RemainingRun, spent_usd: float
) -> Projection | None:
    """The outlook to change to, if any: the fastest that keeps the limits; else what breaks them least.

    Where nothing keeps them, work goes on as cheaply (or as fast, if only time is short) as it can, so that
    as much as possible is done when it has to stop.
    """
    if now.keeps(limits, rest.now_s, spent_usd):
        return None
    good = [each for each in others if each.keeps(limits, rest.now_s, spent_usd)]
    if good:
        return min(good, key=lambda each: (each.end_s, each.cost_usd))
    if limits.budget_usd is not None and now.cost_usd > limits.budget_usd:
        best = min(others, key=lambda each: (each.cost_usd, each.end_s))
        return best if best.cost_usd - spent_usd < _WORTH * (now.cost_usd - spent_usd) else None
    best = min(others, key=lambda each: (each.end_s, each.cost_usd))
    return best if best.end_s - rest.now_s < _WORTH * (now.end_s - rest.now_s) else None


Forecaster = Callable[[Workflow, Mapping[Lane, Sequence[str]], Sequence[Fact], float], Forecast]
"""What activations in these queues cost and take if they are begun anew, after these facts at that time."""


@dataclass(frozen=True)
class LimitGuard:
    """Keeps an execution within its limits. It acts in time, for nothing that was paid is ever left out."""

    limits: RunLimits
    meter: CostMeter
    foresee: Forecaster

    def left(self, now_s: float, most_s: float = math.inf) -> tuple[float, LimitKind]:
        """For how long what is held may be used, and which limit says so; below zero it is too late.

        Who asks only whether it may be used for `most_s` is answered quickly.
        """
        if not self.limits:
            return math.inf, "budget"
        holds = self.meter.holds(now_s)
        return self.limits.left(holds, self.meter.earlier_usd, now_s, self.meter.give_back_s, most_s)

    def affords(self, ends_s: Mapping[str, float], now_s: float) -> bool:
        """Whether VMs can be kept until these moments, and no other longer than now."""
        if self.limits.deadline_s is not None and max(ends_s.values()) > self.limits.deadline_s:
            return False
        if self.limits.budget_usd is None:
            return True
        total_usd = self.meter.earlier_usd
        for hold in self.meter.holds(now_s):
            total_usd += hold.due_usd(ends_s.get(hold.name, now_s) + self.meter.give_back_s)
        return total_usd <= self.limits.budget_usd + ROUNDING_USD

    def spent_usd(self, now_s: float) -> float:
        """What the run has cost until now."""
        return spent_usd(self.meter, now_s)

    def change(
        self,
        workflow: Workflow,
        fleet: Fleet,
        world: World,
        queues: Mapping[Lane, Sequence[str]],
        running: Mapping[str, tuple[Lane, float]],
        now_s: float,
    ) -> tuple[Queues, LimitKind] | None:
        """Other queues for what waits on the VMs held, if the limits call for them, and which limit does."""
        held = {vm.name for vm in fleet.vms}
        holds = self.meter.holds(now_s)
        ours = [hold for hold in holds if hold.name in held and hold.until_s is None]
        elsewhere_usd = self.meter.earlier_usd + sum(
            hold.due_usd(now_s + self.meter.give_back_s) for hold in holds if hold not in ours
        )
        waiting = {name for queue in queues.values() for name in queue}
        rest = RemainingRun(
            workflow, fleet, world, waiting, running, ours, elsewhere_usd, now_s, self.meter.give_back_s
        )
        now, spent = rest.as_it_is(queues), self.spent_usd(now_s)
        if now.keeps(self.limits, now_s, spent):
            return None
        found = best_alternative(now, rest.others(), self.limits, rest, spent)
        if found is None:
            return None
        return found.queues, self.limits.passed_by(now.cost_usd, now.end_s) or "budget"

    def stop_fact(
        self,
        why: LimitKind,
        workflow: Workflow,
        queues: Mapping[Lane, Sequence[str]],
        facts: Sequence[Fact],
        now_s: float,
    ) -> Fact:
        """The fact of a stop: what remains, in these queues, and what it needs."""
        remaining = sum(map(len, queues.values()))
        spent, holds = self.spent_usd(now_s), self.meter.holds(now_s)
        end_usd = self.meter.earlier_usd + due_usd(holds, now_s + self.meter.give_back_s)
        rest = self.foresee(workflow, queues, facts, now_s)
        what = f"{remaining} of {len(workflow)} activations remain"
        said = stop_sentence(self.limits, why, spent, end_usd, now_s, what, rest)
        return {
            "fact": "stopped",
            "at_s": now_s,
            "why": why,
            "spent_usd": spent,
            "remaining": remaining,
            "needs": rest.to_dict(),
            "sentence": said,
        }
