"""A scheduling problem (workflow, fleet and world) as records, samples of its world, and placements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.workflows.fleet import Fleet
from prudent.workflows.simulation.compiled import Floats, Ints, Records
from prudent.workflows.simulation.graph import WorkflowGraph
from prudent.workflows.simulation.records import (
    LANE,
    LINK,
    RUN_STATE,
    TASK,
    VM,
    RunArrays,
)
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

_STORAGE = {"shared": 0, "local": 1, "network": 2}


_SIDES = ("parents", "children", "staged", "written")


_LIVES = 32
"""A VM breaks at most this often in one run, so that every run ends."""


_DRIFTS = 128
"""So many drift factors are drawn per VM; a longer run starts again at the first."""


@dataclass(frozen=True, eq=False)
class SchedulingProblem:
    """n activations, m VMs, L lanes (slots of VMs in fleet order), K kinds of VM, in a calm world.

    `run_s[i, k]` is the computing time of activation i on a VM of kind k. The records are templates: a run
    copies them and writes what happens into the copies.
    """

    workflow: Workflow
    fleet: Fleet
    world: World
    tasks: Records
    links: Records
    lanes: Records
    vms: Records
    state: Records
    run_s: Floats

    @property
    def graph(self) -> WorkflowGraph:
        """The workflow's arrays."""
        return self.workflow.graph

    def run_arrays(self, sample: WorldSample | None = None) -> RunArrays:
        """Arrays for a run in this sample (or in the calm world): its records are copies to write into."""
        tasks, vms = (sample.tasks, sample.vms) if sample else (self.tasks, self.vms)
        # Only on local storage it matters which files are where.
        shape = (len(vms), max(self.graph.files, 1)) if self.world.storage == "local" else (1, 1)
        tasks, lanes, vms, state = map(_copied, (tasks, self.lanes, vms, self.state))
        return RunArrays(tasks, self.links, lanes, vms, state, self.run_s, np.zeros(shape, dtype=np.uint8))


def _copied(records: Records) -> Records:
    """A copy made word by word: NumPy's own goes field by field, which took longer than simulating a run."""
    return records.view(np.int64).copy().view(records.dtype)


@dataclass(frozen=True, eq=False)
class WorldSample:
    """One sample of a world: each random value a run may need, by activation or VM, not by order of events.

    Thus two schedulers meet the same conditions. `fails_at[i, a]`: the part of attempt a at which activation
    i fails (2: never). `lives_s[v, k]`: how long VM v runs after its k-th boot. `drift[v, q]`: speed in
    period q.
    """

    tasks: Records
    vms: Records
    fails_at: Floats
    drift: Floats
    lives_s: Floats


def build_problem(workflow: Workflow, fleet: Fleet, world: World) -> SchedulingProblem:
    """The records of a problem; the last 16 are cached, because planners ask repeatedly."""
    return _build_problem(_ByIdentity(workflow), _ByIdentity(fleet), world)


class _ByIdentity:
    """A cache key that is equal only for the same object: comparing contents would take longer."""

    def __init__(self, thing: Workflow | Fleet) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


@lru_cache(maxsize=16)
def _build_problem(same_workflow: _ByIdentity, same_fleet: _ByIdentity, world: World) -> SchedulingProblem:
    workflow, fleet = cast(Workflow, same_workflow.thing), cast(Fleet, same_fleet.thing)
    kinds: dict[tuple[str, float], int] = {}
    for vm in fleet.vms:
        kinds.setdefault((vm.machine, vm.speed), len(kinds))
    state = np.zeros(1, dtype=RUN_STATE)
    state["storage"] = _STORAGE[world.storage]
    state["bytes_per_s"] = world.bandwidth_mb_s * 1e6
    state["billing_step_s"] = 3600.0 if world.billing == "hour" else 0.0
    state["boots_at_first_use"] = world.boot == "first-use"
    state["drift_period_s"] = world.drift_period_s
    tasks, links = _tasks(workflow.graph, world)
    lanes, vms = _lanes(fleet, kinds, world)
    run_s = _deter(_run_s(workflow, kinds), workflow, fleet, kinds)
    return SchedulingProblem(workflow, fleet, world, tasks, links, lanes, vms, state, run_s)


def _run_s(workflow: Workflow, kinds: dict[tuple[str, float], int]) -> Floats:
    run_s = np.empty((len(workflow), len(kinds)))
    known = [at for at, activation in enumerate(workflow.activations) if activation.runtimes_s]
    for (machine, speed), kind in kinds.items():
        run_s[:, kind] = workflow.graph.runtime_s / speed
        for at in known:
            run_s[at, kind] = workflow.activations[at].runtimes_s.get(machine, run_s[at, kind])
    return run_s


_UNFIT = 1000.0
"""An activation takes so many times as long where it does not fit: finite, so that means stay means."""


def _deter(run_s: Floats, workflow: Workflow, fleet: Fleet, kinds: dict[tuple[str, float], int]) -> Floats:
    """Keep activations off machines that lack the cores or the memory for them.

    `Plan.check` refuses a plan that puts one there all the same. One that fits nowhere is refused here.
    """
    of_kind = {kinds[vm.machine, vm.speed]: vm for vm in fleet.vms}
    if not any(vm.vcpus or vm.memory_gb for vm in of_kind.values()):
        return run_s
    for at, activation in enumerate(workflow.activations):
        if not (activation.cores or activation.needed_memory_bytes):
            continue
        lacking = {kind: lacks for kind, vm in of_kind.items() if (lacks := vm.lacks(activation))}
        if len(lacking) == len(of_kind):
            raise BadInput(
                f'Activation "{activation.id}" fits on no machine: it needs {next(iter(lacking.values()))}; '
                "add a larger machine to the fleet."
            )
        run_s[at, list(lacking)] *= _UNFIT
    return run_s


def _tasks(graph: WorkflowGraph, world: World) -> tuple[Records, Records]:
    """The activations with the links of each in one stretch: parents, children, staged, written."""
    n = len(graph.runtime_s)
    sides = (
        (graph.parent_ptr, graph.parents, graph.edge_bytes),
        (graph.child_ptr, graph.children, graph.child_bytes),
        (graph.staged_ptr, graph.staged, graph.staged_sizes),
        (graph.written_ptr, graph.written, np.zeros(len(graph.written))),
    )
    counts = np.stack([np.diff(ptr) for ptr, _, _ in sides])
    offsets = np.concatenate([[0], np.cumsum(counts.T.ravel())])
    tasks = np.zeros(n, dtype=TASK)
    links = np.zeros(offsets[-1], dtype=LINK)
    for side, (name, (ptr, values, sizes)) in enumerate(zip(_SIDES, sides, strict=True)):
        first = offsets[side : 4 * n : 4]
        tasks[name] = first
        places = np.repeat(first - ptr[:-1], counts[side]) + np.arange(len(values))
        links["other"][places] = values
        links["bytes"][places] = sizes
    tasks["end"] = offsets[4::4]
    tasks["missing"] = counts[0]
    tasks["staged_bytes"] = graph.staged_bytes
    tasks["external_bytes"] = graph.external_bytes
    if world.storage == "shared":
        tasks["stage_s"] = graph.staged_bytes / (world.bandwidth_mb_s * 1e6)
    tasks["engine_s"] = world.engine_s.mean
    tasks["hold_s"] = world.queue_s.mean + world.clustering_s.mean * graph.merged
    tasks["post_s"] = world.post_s.mean
    tasks["lane"] = -1
    tasks["start_s"] = tasks["finish_s"] = np.nan
    return tasks, links


def _lanes(fleet: Fleet, kinds: dict[tuple[str, float], int], world: World) -> tuple[Records, Records]:
    vms = np.zeros(len(fleet), dtype=VM)
    vms["kind"] = [kinds[vm.machine, vm.speed] for vm in fleet.vms]
    vms["price"] = [vm.usd_per_h / 3600.0 for vm in fleet.vms]
    vms["minimum_s"] = [vm.minimum_s for vm in fleet.vms]
    vms["speed"] = 1.0
    vms["boot_s"] = world.boot_s.mean
    vms["from_s"] = vms["last_s"] = -1.0
    lanes = np.zeros(len(fleet.lanes), dtype=LANE)
    lanes["vm"] = [vm for vm, _ in fleet.lanes]
    lanes["kind"] = vms["kind"][lanes["vm"]]
    lanes["task"] = -1
    return lanes, vms


def calm_sample(problem: SchedulingProblem) -> WorldSample:
    """The only sample of the problem's calm world: overheads at their means, nothing random."""
    ones, never = np.ones((len(problem.vms), 1)), np.full((len(problem.vms), 1), np.inf)
    fails_at = np.full((len(problem.tasks), 1), 2.0)
    return WorldSample(problem.tasks, problem.vms, fails_at, ones, never)


def sample_world(problem: SchedulingProblem, world: World, seed: int) -> WorldSample:
    """Draw one sample of the world; a calm world has only one."""
    if world.is_calm:
        return calm_sample(problem)
    n, m = len(problem.tasks), len(problem.vms)
    tasks, vms = _copied(problem.tasks), _copied(problem.vms)
    tasks["engine_s"] = world.engine_s.draw(rng_for(seed, "weather", "engine"), n)
    tasks["post_s"] = world.post_s.draw(rng_for(seed, "weather", "post"), n)
    tasks["hold_s"] = world.queue_s.draw(rng_for(seed, "weather", "queue"), n)
    tasks["hold_s"] += (
        world.clustering_s.draw(rng_for(seed, "weather", "clustering"), n) * problem.graph.merged
    )
    vms["boot_s"] = world.boot_s.draw(rng_for(seed, "weather", "boot"), m)
    if world.speed is not None:
        vms["speed"] = _factors(world.speed.draw(rng_for(seed, "weather", "speed"), m))
    drift = np.ones((m, 1))
    if world.drift is not None:
        drift = _factors(world.drift.draw(rng_for(seed, "weather", "drift"), (m, _DRIFTS)))
    lives_s = _lives(problem, world, vms, seed)
    return WorldSample(tasks, vms, _fails_at(n, world, seed), drift, lives_s)


def _fails_at(n: int, world: World, seed: int) -> Floats:
    shape = n, world.retries + 1
    if not world.failure_rate:
        return np.full(shape, 2.0)
    draws = rng_for(seed, "weather", "failures").random(shape)
    return np.where(draws < world.failure_rate, rng_for(seed, "weather", "points").random(shape), 2.0)


def _lives(problem: SchedulingProblem, world: World, vms: Records, seed: int) -> Floats:
    """How long each VM lives after each boot; spot VMs that can be taken away die once."""
    m = len(vms)
    if world.vm_lifetime_s is None and world.spot_lifetime_s is None:
        return np.full((m, 1), np.inf)
    lives_s = np.full((m, _LIVES), np.inf)
    if world.vm_lifetime_s is not None:
        lives_s[:] = world.vm_lifetime_s.draw(rng_for(seed, "weather", "lives"), (m, _LIVES))
    if world.spot_lifetime_s is not None:
        spot: NDArray[np.bool_] = np.array([vm.spot for vm in problem.fleet.vms])
        taken_s = world.spot_lifetime_s.draw(rng_for(seed, "weather", "spot"), (m, _LIVES))
        lives_s[spot] = taken_s[spot]
        vms["revocable"] = spot
    return lives_s


def _factors(drawn: Floats) -> Floats:
    """Speed factors of at least one hundredth: on a machine that stands still nothing would ever finish."""
    return np.maximum(drawn, 0.01)


@dataclass(frozen=True, eq=False)
class Placement:
    """Where and in which order activations run: `lane[i]` of activation i; `order` lists all by start."""

    lane: Ints
    order: Ints


def recorded_placement(tasks: Records, order: Ints) -> Placement:
    """The placement that task records describe, once their lanes and starts are set."""
    by_start = order[np.argsort(tasks["start_s"][order], kind="stable")]
    return Placement(tasks["lane"].copy(), by_start)
