"""Plans for what is left when money or time runs short: on fewer machines, or spread anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prudent.cloud.hold import Hold
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.execute.limits import Limits
from prudent.workflows.execute.replan import Queues, earliest, placement_of, queues_of, rest_of
from prudent.workflows.fleet import Fleet
from prudent.workflows.policies import PLAN
from prudent.workflows.problem import Problem, weather_of
from prudent.workflows.simulator import Placement, play
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
class Outlook:
    """What becomes of the rest by some queues: when the run ends on its clock, and what it costs in all."""

    queues: Queues
    end_s: float
    cost_usd: float

    def keeps(self, limits: Limits, now_s: float, spent_usd: float) -> bool:
        """Whether both limits are kept with some slack."""
        cost_usd = self.cost_usd + _SLACK * max(self.cost_usd - spent_usd, 0.0)
        return limits.passed_by(cost_usd, self.end_s + _SLACK * (self.end_s - now_s)) is None


@dataclass(frozen=True)
class Rest:
    """What is left at a moment: activations that wait and run, on machines that are held and paid for.

    `running` tells where activations are and for how long; `elsewhere_usd` what others than `holds` cost.
    """

    workflow: Workflow
    fleet: Fleet
    world: World
    waiting: Collection[str]
    running: Mapping[str, tuple[Lane, float]]
    holds: Sequence[Hold]
    elsewhere_usd: float
    now_s: float
    give_back_s: float

    def as_it_is(self, queues: Mapping[Lane, Sequence[str]]) -> Outlook:
        """The outlook if nothing is changed."""
        problem, names, lanes = self._problem()
        at_lane = {lane: at for at, lane in enumerate(lanes)}
        placement = placement_of(names, at_lane, self.running, queues)
        return self._outlook(problem, names, lanes, placement)

    def others(self) -> list[Outlook]:
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

    def _problem(self) -> tuple[Problem, list[str], list[Lane]]:
        names = [name for name in self.workflow.order if name in self.waiting or name in self.running]
        lanes = [(self.fleet.vms[vm].name, slot) for vm, slot in self.fleet.lanes]
        return rest_of(self.workflow, self.fleet, self.world, names, self.running), names, lanes

    def _without(
        self, problem: Problem, names: Sequence[str], lanes: Sequence[Lane], closed: Collection[str]
    ) -> Outlook:
        at_lane = {lane: at for at, lane in enumerate(lanes)}
        placement = earliest(self._closing(problem, names, closed), names, at_lane, self.running)
        return self._outlook(problem, names, lanes, placement)

    def _closing(self, problem: Problem, names: Sequence[str], closed: Collection[str]) -> Problem:
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
        self, problem: Problem, names: Sequence[str], lanes: Sequence[Lane], placement: Placement
    ) -> Outlook:
        trace = play(problem, weather_of(problem, problem.world, 0), PLAN, placement=placement)
        last_s = {vm.name: float(trace.vms[at]["last_s"]) for at, vm in enumerate(self.fleet.vms)}
        total_usd = self.elsewhere_usd
        for hold in self.holds:
            total_usd += hold.due_usd(self.now_s + max(last_s.get(hold.name, 0.0), 0.0) + self.give_back_s)
        queues = queues_of(placement, names, lanes, self.running)
        return Outlook(queues, self.now_s + trace.makespan_s, total_usd)


def better(
    now: Outlook, others: Sequence[Outlook], limits: Limits, rest: Rest, spent_usd: float
) -> Outlook | None:
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
