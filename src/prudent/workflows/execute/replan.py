"""What is left of a workflow, planned anew on the VMs that are left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from prudent.core.errors import RunFailed
from prudent.workflows.activation import Activation
from prudent.workflows.distribution import Distribution
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.fleet import Fleet
from prudent.workflows.policies import PLAN
from prudent.workflows.problem import Problem, bring_together, weather_of
from prudent.workflows.schedulers import ranks
from prudent.workflows.schedulers.timetable import fill
from prudent.workflows.simulator import Placement, play
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

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
    problem = rest_of(workflow, fleet, world, names, running)
    at_lane = {lane: at for at, lane in enumerate(lanes)}
    fresh = earliest(problem, names, at_lane, running)
    if current is not None:
        as_it_is = placement_of(names, at_lane, running, current)
        if _makespan_s(problem, fresh) > _WORTH * _makespan_s(problem, as_it_is):
            return {lane: list(current.get(lane, ())) for lane in lanes}
    return queues_of(fresh, names, lanes, running)


def earliest(
    problem: Problem,
    names: Sequence[str],
    at_lane: Mapping[Lane, int],
    running: Mapping[str, tuple[Lane, float]],
) -> Placement:
    """All activations of a problem, each where it ends first; what runs stays where it is."""
    pinned = np.array(
        [at_lane[running[name][0]] if name in running else -1 for name in names], dtype=np.int64
    )
    rank = ranks.upward(problem, ranks.mean_held_s(problem), ranks.seconds_per_byte(problem))
    order = problem.graph.order
    by_rank = order[np.lexsort((-rank[order], pinned[order] < 0))]
    return fill(problem, by_rank, pinned=pinned)


def queues_of(
    placement: Placement, names: Sequence[str], lanes: Sequence[Lane], running: Collection[str]
) -> Queues:
    """What each lane still has to start, first to start first."""
    queues: Queues = {lane: [] for lane in lanes}
    for at in placement.order:
        if names[at] not in running:
            queues[lanes[placement.lane[at]]].append(names[at])
    return queues


def rest_of(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    names: Sequence[str],
    running: Mapping[str, tuple[Lane, float]],
) -> Problem:
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
    return bring_together(left, fleet, replace(world.calm(), boot_s=Distribution("constant", 0.0)))


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


def _makespan_s(problem: Problem, placement: Placement) -> float:
    return play(problem, weather_of(problem, problem.world, 0), PLAN, placement=placement).makespan_s
