"""What is left of a workflow, planned anew on the VMs that are left.

When what waits is planned anew: a machine is lost, times surprise, or money or time runs short.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from prudent.core.errors import RunFailed
from prudent.workflows.activation import Activation
from prudent.workflows.execute.dispatch import Dispatcher, Lane
from prudent.workflows.execute.learning import learn_run_times
from prudent.workflows.execute.options import ExecutionOptions
from prudent.workflows.execute.run import world_of
from prudent.workflows.execute.workers import VmWorkers
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Plan
from prudent.workflows.schedulers.list_scheduling import (
    mean_occupancy_s,
    place_by_insertion,
    seconds_per_byte,
    upward_rank,
)
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, build_problem, sample_world
from prudent.workflows.simulation.records import PLAN
from prudent.workflows.simulation.simulator import run_simulation
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import Distribution, World

if TYPE_CHECKING:
    from prudent.workflows.execute.limit_guard import LimitGuard
    from prudent.workflows.execute.plan_follower import SessionLog

Queues = dict[Lane, list[str]]


_NEARLY_DONE = 0.05
"""An activation that runs longer than expected is expected to take this part of its run time more."""


_WORTH = 0.98
"""A new plan has to take less than this part of the old one's time: estimates are not that sure."""


def replan(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    waiting: Collection[str],
    running: Mapping[str, tuple[Lane, float]],
    current: Mapping[Lane, Sequence[str]] | None = None,
) -> Queues:
    """Queues for every slot of `fleet` (the VMs left) that hold `waiting`, by earliest finish (HEFT).

    `running` tells where the others are and for how many seconds they have run: their slots are free only
    when they end, and their children wait for them. `current` are queues to keep unless new ones are better.
    """
    if not fleet.vms:
        raise RunFailed("No VM is left to run on; start workers and go on with --resume.")
    names = [name for name in workflow.order if name in waiting or name in running]
    lanes = [(fleet.vms[vm].name, slot) for vm, slot in fleet.lanes]
    problem = remaining_problem(workflow, fleet, world, names, running)
    at_lane = {lane: at for at, lane in enumerate(lanes)}
    fresh = place_earliest(problem, names, at_lane, running)
    if current is not None:
        as_it_is = placement_of(names, at_lane, running, current)
        if _makespan_s(problem, fresh) > _WORTH * _makespan_s(problem, as_it_is):
            return {lane: list(current.get(lane, ())) for lane in lanes}
    return queues_of(fresh, names, lanes, running)


def place_earliest(
    problem: SchedulingProblem,
    names: Sequence[str],
    at_lane: Mapping[Lane, int],
    running: Mapping[str, tuple[Lane, float]],
) -> Placement:
    """All activations of a problem, each where it ends first; what runs stays where it is."""
    pinned = np.array(
        [at_lane[running[name][0]] if name in running else -1 for name in names], dtype=np.int64
    )
    rank = upward_rank(problem, mean_occupancy_s(problem), seconds_per_byte(problem))
    order = problem.graph.order
    by_rank = order[np.lexsort((-rank[order], pinned[order] < 0))]
    return place_by_insertion(problem, by_rank, pinned=pinned)


def queues_of(
    placement: Placement, names: Sequence[str], lanes: Sequence[Lane], running: Collection[str]
) -> Queues:
    """What each lane still has to start, first to start first."""
    queues: Queues = {lane: [] for lane in lanes}
    for at in placement.order:
        if names[at] not in running:
            queues[lanes[placement.lane[at]]].append(names[at])
    return queues


def remaining_problem(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    names: Sequence[str],
    running: Mapping[str, tuple[Lane, float]],
) -> SchedulingProblem:
    """The problem that is left: VMs are up, what runs needs only the rest of its time."""
    machines = {vm.name: vm for vm in fleet.vms}
    rest = []
    for name in names:
        activation = workflow[name]
        if name in running:
            (vm, _), lasted_s = running[name]
            activation = _left_of(activation, machines[vm].machine, machines[vm].speed, lasted_s)
        rest.append(activation)
    kept = set(names)
    edges = tuple(edge for edge in workflow.edges if edge[0] in kept and edge[1] in kept)
    left = Workflow(workflow.name, tuple(rest), edges, workflow.gathered)
    return build_problem(left, fleet, replace(world.calm(), boot_s=Distribution("constant", 0.0)))


def _left_of(activation: Activation, machine: str, speed: float, lasted_s: float) -> Activation:
    """What is left of an activation under way: its inputs are there, part of its time has passed."""
    whole_s = activation.runtimes_s.get(machine, activation.runtime_s / speed)
    left_s = max(whole_s - lasted_s, _NEARLY_DONE * whole_s)
    return replace(activation, inputs=(), runtimes_s={**activation.runtimes_s, machine: left_s})


def placement_of(
    names: Sequence[str],
    at_lane: Mapping[Lane, int],
    running: Mapping[str, tuple[Lane, float]],
    queues: Mapping[Lane, Sequence[str]],
) -> Placement:
    """Queues as arrays; what runs is first on its lane."""
    index = {name: at for at, name in enumerate(names)}
    lane = np.empty(len(names), dtype=np.int64)
    order = []
    for name, (place, _) in running.items():
        lane[index[name]] = at_lane[place]
        order.append(index[name])
    for place, queue in queues.items():
        for name in queue:
            lane[index[name]] = at_lane[place]
            order.append(index[name])
    return Placement(lane, np.array(order, dtype=np.int64))


def _makespan_s(problem: SchedulingProblem, placement: Placement) -> float:
    return run_simulation(
        problem, sample_world(problem, problem.world, 0), PLAN, placement=placement
    ).makespan_s


_SURPRISE = 0.25
"""An activation that takes so much more or less than planned makes an adaptive plan look again."""


_PAUSE_S = 0.5
"""Looking again takes time too: not more often than this."""


class Replanner:
    """Gives the dispatcher of a session other queues; `known` has the estimates as measured so far."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        manner: ExecutionOptions,
        crew: VmWorkers,
        keeper: LimitGuard,
        dispatcher: Dispatcher,
        log: SessionLog,
    ) -> None:
        self.known = workflow
        self._plan, self._workflow, self._manner = plan, workflow, manner
        self._crew, self._keeper, self._dispatcher, self._log = crew, keeper, dispatcher, log
        self._world = world_of(plan)
        self._look_again_s = 0.0

    @property
    def rests_s(self) -> float:
        """For how long it does not look again; zero or less if it would."""
        return self._look_again_s - self._crew.time_s()

    @property
    def moves(self) -> bool:
        """Whether what waits may go to other machines than planned, just because that is faster."""
        return self._plan.policy != "static" and self._manner.replay is None

    def planned_s(self, name: str, vm: str) -> float:
        """How long an activation holds a slot of a VM by the plan's estimates."""
        return self._held_s(self._workflow, name, vm)

    def expected_s(self, name: str, vm: str) -> float:
        """The same, with what was measured so far."""
        return self._held_s(self.known, name, vm)

    def adapt(self, name: str, vm: str, took_s: float) -> None:
        """After an end: see whether the limits are kept, or whether the rest is better done otherwise."""
        if not self._dispatcher.waiting or self.rests_s > 0 or self._keep_limits():
            return
        planned_s = self.planned_s(name, vm)
        surprise_s = abs(took_s - planned_s)
        small = surprise_s < _SURPRISE * planned_s or surprise_s < 0.01 * self._plan.makespan_s
        if self.moves and not small:
            self.look("surprise")

    def look(self, why: str) -> None:
        """Plan what waits anew if that is faster, and do not look again too soon."""
        begun_s = time.monotonic()
        queues = self._replanned(self._dispatcher.queues)
        self._rest_after(begun_s)
        self._place(queues, why)

    def leave(self, why: str) -> None:
        """Plan what waits anew on the VMs that are left, because others were given back."""
        self._place(self._replanned(None), why)

    def make_up(self, orphaned: list[str]) -> None:
        """Plan what waits anew, because some of it was to run on a VM that is lost."""
        queues = self._replanned(None)
        self._dispatcher.place(queues)
        lanes = {name: lane for lane, names in queues.items() for name in names}
        self._note("lost", {name: lanes[name][0] for name in orphaned})

    def _keep_limits(self) -> bool:
        """Plan what waits anew if it would cost or take more than it may; whether that was done."""
        if not self._keeper.limits:
            return False
        begun_s = time.monotonic()
        known, fleet, running = self._knowledge()
        queues, now_s = self._dispatcher.queues, self._log.clock_s()
        changed = self._keeper.change(known, fleet, self._world, queues, running, now_s)
        self._rest_after(begun_s)
        if changed is not None:
            self._place(*changed)
        return changed is not None

    def _rest_after(self, begun_s: float) -> None:
        self._look_again_s = self._crew.time_s() + max(_PAUSE_S, 10 * (time.monotonic() - begun_s))

    def _place(self, queues: Queues, why: str) -> None:
        """Follow new queues from now on, and note what has moved."""
        before = {each: lane for lane, queue in self._dispatcher.queues.items() for each in queue}
        self._dispatcher.place(queues)
        after = {each: lane for lane, queue in queues.items() for each in queue}
        moved = {each: lane[0] for each, lane in after.items() if lane != before[each]}
        if moved:
            self._note(why, moved)

    def _note(self, why: str, moved: Mapping[str, str]) -> None:
        self._log.note({"fact": "replanned", "at_s": self._log.clock_s(), "why": why, "moved": dict(moved)})

    def _replanned(self, current: Queues | None) -> Queues:
        """Queues for what waits on the VMs that are left; `current` ones stay unless others are better."""
        known, fleet, running = self._knowledge()
        return replan(known, fleet, self._world, set(self._dispatcher.waiting), running, current)

    def _knowledge(self) -> tuple[Workflow, Fleet, dict[str, tuple[Lane, float]]]:
        """What is known now: estimates as measured so far, the VMs that are left, what runs for how long."""
        left = tuple(each for each in self._plan.fleet.vms if each.name in self._crew.vms)
        if not left:
            raise RunFailed(
                "The last VM was lost; what is done is kept. Start workers and go on with --resume."
            )
        now_s, begun_s = self._log.clock_s(), self._log.begun_s
        running = {name: (lane, now_s - begun_s[name]) for name, lane in self._dispatcher.running.items()}
        if self._manner.replay is None:
            heard = [(self._plan.fleet, self._log.heard)]
            self.known = learn_run_times(self._workflow, self._plan.fleet, self._world, heard)
        return self.known, Fleet(left), running

    def _held_s(self, workflow: Workflow, name: str, vm: str) -> float:
        problem = build_problem(workflow, self._plan.fleet, self._world)
        at, kind = workflow.index[name], problem.vms[self._plan.fleet.index[vm]]["kind"]
        held = problem.tasks[at]["hold_s"] + problem.tasks[at]["stage_s"]
        return float(held + problem.run_s[at, kind])
