"""What is left of a workflow, planned anew on the VMs that are left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from prudent.core.errors import RunFailed
from prudent.workflows.activation import Activation
from prudent.workflows.distribution import Distribution
from prudent.workflows.execute.dispatch import Lane
from prudent.workflows.fleet import Fleet
from prudent.workflows.problem import bring_together
from prudent.workflows.schedulers import ranks
from prudent.workflows.schedulers.timetable import fill
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

_NEARLY_DONE = 0.05
"""An activation that runs longer than expected is expected to take this part of its run time more."""


def replan(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    waiting: Collection[str],
    running: Mapping[str, tuple[Lane, float]],
) -> dict[Lane, list[str]]:
    """Queues for every slot of `fleet` (the VMs left) that hold `waiting`, by earliest finish (HEFT).

    `running` tells where the others are and for how many seconds they have run: their slots are free only
    when they end, and their children wait for them.
    """
    if not fleet.vms:
        raise RunFailed("No VM is left to run on; start workers and go on with --resume.")
    names = [name for name in workflow.order if name in waiting or name in running]
    machines = {vm.name: vm for vm in fleet.vms}
    rest = []
    for name in names:
        activation = workflow[name]
        if name in running:
            (vm, _), lasted_s = running[name]
            activation = _rest_of(activation, machines[vm].machine, machines[vm].speed, lasted_s)
        rest.append(activation)
    edges = tuple(edge for edge in workflow.edges if edge[0] in set(names) and edge[1] in set(names))
    left = Workflow(workflow.name, tuple(rest), edges, workflow.gathered)
    problem = bring_together(left, fleet, replace(world.calm(), boot_s=Distribution("constant", 0.0)))
    lane_names = [(fleet.vms[vm].name, slot) for vm, slot in fleet.lanes]
    lane_of = {lane: at for at, lane in enumerate(lane_names)}
    pinned = np.array(
        [lane_of[running[name][0]] if name in running else -1 for name in names], dtype=np.int64
    )
    rank = ranks.upward(problem, ranks.mean_held_s(problem), ranks.seconds_per_byte(problem))
    order = problem.graph.order
    by_rank = order[np.lexsort((-rank[order], pinned[order] < 0))]
    placement = fill(problem, by_rank, pinned=pinned)
    queues: dict[Lane, list[str]] = {lane: [] for lane in lane_names}
    for at in placement.order:
        if names[at] not in running:
            queues[lane_names[placement.lane[at]]].append(names[at])
    return queues


def _rest_of(activation: Activation, machine: str, speed: float, lasted_s: float) -> Activation:
    """What is left of an activation under way: its inputs are there, part of its time has passed."""
    whole_s = activation.runtimes_s.get(machine, activation.runtime_s / speed)
    left_s = max(whole_s - lasted_s, _NEARLY_DONE * whole_s)
    return replace(activation, inputs=(), runtimes_s={**activation.runtimes_s, machine: left_s})
