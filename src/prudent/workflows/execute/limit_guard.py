"""Keeping a run within budget and deadline: projections of the rest, cheaper alternatives, clean stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prudent.cloud.billing import RentalPeriod, due_usd
from prudent.core.money import ROUNDING_USD
from prudent.workflows.execute.dispatch import Lane, Queues, Running, placement_of, queues_of
from prudent.workflows.execute.forecast import Forecast
from prudent.workflows.execute.journal import Fact
from prudent.workflows.execute.money import CostMeter, spent_usd
from prudent.workflows.execute.options import LimitKind, RunLimits, stop_sentence
from prudent.workflows.execute.replanner import place_earliest, remaining_problem
from prudent.workflows.fleet import Fleet
from prudent.workflows.simulation.problem import Placement, SchedulingProblem
from prudent.workflows.simulation.simulator import run_calm
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

_NEVER_S = 1e9


_MOST_PAIRS, _LEAST_TRIES = 3_000_000, 4
"""Alternatives are tried up to this many pairs of activation and slot, but at least a few."""


_WORTH = 0.98
"""Where no plan keeps the limits, an alternative must take less than this share of what is left."""


_SLACK = 0.03
"""A plan keeps a limit if this share of what is left is spare: estimates are not exact."""


@dataclass(frozen=True)
class Projection:
    """The expected outcome of following some queues: when the run ends on its clock, and its total cost."""

    queues: Queues
    end_s: float
    cost_usd: float

    def keeps(self, limits: RunLimits, now_s: float, spent_usd: float) -> bool:
        """Whether both limits are kept with some slack."""
        cost_usd = self.cost_usd + _SLACK * max(self.cost_usd - spent_usd, 0.0)
        return limits.passed_by(cost_usd, self.end_s + _SLACK * (self.end_s - now_s)) is None


@dataclass(frozen=True)
class RemainingRun:
    """What is left of a run: waiting and running activations, on machines that are held and paid for.

    `running` tells where activations run and for how long; `elsewhere_usd` is the cost of all but `holds`.
    """

    workflow: Workflow
    fleet: Fleet
    world: World
    waiting: Collection[str]
    running: Running
    holds: Sequence[RentalPeriod]
    elsewhere_usd: float
    now_s: float
    give_back_s: float

    def unchanged(self, queues: Mapping[Lane, Sequence[str]]) -> Projection:
        """The projection if nothing is changed."""
        problem = self._problem()
        return self._outlook(problem, placement_of(problem.workflow, self.fleet, queues, self.running))

    def alternatives(self) -> list[Projection]:
        """Plans to change to: each activation where it ends first, on all machines, then on fewer and fewer.

        Machines are given up by type, first the type without which the rest is cheapest, and several at a
        time where there are many. A busy machine that is given up gets no new work and is given back once it
        is idle. The number of alternatives is limited, because all machines are paid while this is computed.
        """
        problem = self._problem()
        open_vms = {vm.name for vm in self.fleet.vms}
        found = [self._without(problem, set())]
        tries = max(_MOST_PAIRS // (len(problem.tasks) * len(problem.lanes)), _LEAST_TRIES)
        while len(open_vms) > 1 and tries > 0:
            closed = {vm.name for vm in self.fleet.vms} - open_vms
            groups = self._groups(open_vms, max(len(open_vms) // 8, 1))
            tried = [(self._without(problem, closed | group), group) for group in groups]
            tries -= len(tried)
            best, dropped = min(tried, key=lambda each: (each[0].cost_usd, each[0].end_s))
            open_vms -= dropped
            found.append(best)
        return found

    def _groups(self, open_vms: Collection[str], most: int) -> list[set[str]]:
        """At most `most` machines of each type, all of them busy or all idle; never all machines."""
        found: dict[tuple[str, bool], set[str]] = {}
        for vm in self.fleet.vms:
            group = found.setdefault((vm.machine, self._busy(vm.name)), set())
            if vm.name in open_vms and len(group) < most:
                group.add(vm.name)
        return [group for group in found.values() if group]

    def _busy(self, vm: str) -> bool:
        return any(lane[0] == vm for lane, _ in self.running.values())

    def _problem(self) -> SchedulingProblem:
        return remaining_problem(self.workflow, self.fleet, self.world, self.waiting, self.running)

    def _without(self, problem: SchedulingProblem, closed: Collection[str]) -> Projection:
        placement = place_earliest(self._closing(problem, closed), self.running)
        return self._outlook(problem, placement)

    def _closing(self, problem: SchedulingProblem, closed: Collection[str]) -> SchedulingProblem:
        """The same problem with `closed` machines, on which waiting activations would take forever."""
        if not closed:
            return problem
        lanes, vms, run_s = problem.lanes.copy(), problem.vms.copy(), [problem.run_s]
        waits = np.array([each.id not in self.running for each in problem.workflow.activations])
        for at, vm in enumerate(self.fleet.vms):
            if vm.name in closed:
                column = problem.run_s[:, int(vms[at]["kind"])]
                vms["kind"][at] = sum(each.shape[1] for each in run_s)
                run_s.append(np.where(waits, _NEVER_S, column)[:, None])
        lanes["kind"] = vms["kind"][lanes["vm"]]
        return replace(problem, lanes=lanes, vms=vms, run_s=np.hstack(run_s))

    def _outlook(self, problem: SchedulingProblem, placement: Placement) -> Projection:
        trace = run_calm(problem, placement)
        last_s = {vm.name: float(trace.vms[at]["last_s"]) for at, vm in enumerate(self.fleet.vms)}
        total_usd = self.elsewhere_usd
        for hold in self.holds:
            total_usd += hold.due_usd(self.now_s + max(last_s.get(hold.name, 0.0), 0.0) + self.give_back_s)
        queues = queues_of(problem, placement, self.running)
        return Projection(queues, self.now_s + trace.makespan_s, total_usd)


def best_alternative(
    now: Projection,
    alternatives: Sequence[Projection],
    limits: RunLimits,
    rest: RemainingRun,
    spent_usd: float,
) -> Projection | None:
    """The alternative to change to, if any: the fastest that keeps the limits; else what breaks them least.

    Where none keeps them, the run goes on as cheaply as it can (or as fast, if only time is short), so that
    as much as possible is done when it has to stop.
    """
    if now.keeps(limits, rest.now_s, spent_usd):
        return None
    good = [each for each in alternatives if each.keeps(limits, rest.now_s, spent_usd)]
    if good:
        return min(good, key=lambda each: (each.end_s, each.cost_usd))
    if limits.budget_usd is not None and now.cost_usd > limits.budget_usd:
        best = min(alternatives, key=lambda each: (each.cost_usd, each.end_s))
        return best if best.cost_usd - spent_usd < _WORTH * (now.cost_usd - spent_usd) else None
    best = min(alternatives, key=lambda each: (each.end_s, each.cost_usd))
    return best if best.end_s - rest.now_s < _WORTH * (now.end_s - rest.now_s) else None


Forecaster = Callable[[Workflow, Mapping[Lane, Sequence[str]], Sequence[Fact], float], Forecast]
"""Forecasts the activations in these queues, begun anew after these facts at that time of the run."""


@dataclass(frozen=True)
class LimitGuard:
    """Keeps an execution within its limits; every machine that was paid is counted."""

    limits: RunLimits
    meter: CostMeter
    forecast_after: Forecaster

    def time_left(self, now_s: float, most_s: float = math.inf) -> tuple[float, LimitKind]:
        """For how many seconds held machines may be used, and which limit decides; below zero it is too late.

        A caller that only asks whether they may be used for `most_s` is answered quicker.
        """
        if not self.limits:
            return math.inf, "budget"
        holds = self.meter.holds(now_s)
        return self.limits.time_left(holds, self.meter.earlier_usd, now_s, self.meter.give_back_s, most_s)

    def affords(self, ends_s: Mapping[str, float], now_s: float) -> bool:
        """Whether these VMs can be kept until these moments, and the others be given back now."""
        if self.limits.deadline_s is not None and max(ends_s.values()) > self.limits.deadline_s:
            return False
        if self.limits.budget_usd is None:
            return True
        total_usd = self.meter.earlier_usd
        for hold in self.meter.holds(now_s):
            total_usd += hold.due_usd(ends_s.get(hold.name, now_s) + self.meter.give_back_s)
        return total_usd <= self.limits.budget_usd + ROUNDING_USD

    def spent_usd(self, now_s: float) -> float:
        """The cost of the run so far."""
        return spent_usd(self.meter, now_s)

    def better_queues(
        self,
        workflow: Workflow,
        fleet: Fleet,
        world: World,
        queues: Mapping[Lane, Sequence[str]],
        running: Running,
        now_s: float,
    ) -> tuple[Queues, LimitKind] | None:
        """New queues for waiting activations if a limit requires them, and which limit does; None if not."""
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
        now, spent = rest.unchanged(queues), self.spent_usd(now_s)
        if now.keeps(self.limits, now_s, spent):
            return None
        found = best_alternative(now, rest.alternatives(), self.limits, rest, spent)
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
        """The journal's fact about a stop: what remains in these queues, and how much it needs."""
        remaining = sum(map(len, queues.values()))
        spent, holds = self.spent_usd(now_s), self.meter.holds(now_s)
        end_usd = self.meter.earlier_usd + due_usd(holds, now_s + self.meter.give_back_s)
        rest = self.forecast_after(workflow, queues, facts, now_s)
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
