"""Planning the rest of a run anew: what is left as a problem, and when the `Replanner` does so.

It does when a machine is lost, times differ from the plan, or money or time runs short.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from prudent.core.errors import RunFailed
from prudent.workflows.activation import Activation
from prudent.workflows.execute.dispatch import Dispatcher, Lane, Queues, Running, placement_of, queues_of
from prudent.workflows.execute.learning import learn_run_times
from prudent.workflows.execute.options import ExecutionOptions
from prudent.workflows.execute.run import world_of
from prudent.workflows.execute.workers import VmWorkers
from prudent.workflows.fleet import Fleet, Vm
from prudent.workflows.plan import Plan
from prudent.workflows.schedulers.list_scheduling import mean_upward_rank, place_by_insertion
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, build_problem
from prudent.workflows.simulation.simulator import run_calm
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import Distribution, World

if TYPE_CHECKING:
    from prudent.workflows.execute.limit_guard import LimitGuard
    from prudent.workflows.execute.plan_follower import SessionLog

_NEARLY_DONE = 0.05
"""An overdue activation is expected to take this share of its run time more."""


_WORTH = 0.98
"""A new plan must take less than this share of the old one's time: estimates are not that accurate."""


def replan(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    waiting: Collection[str],
    running: Running,
    current: Mapping[Lane, Sequence[str]] | None = None,
) -> Queues:
    """Queues for every slot of `fleet` (the VMs left) that hold `waiting`, by earliest finish (HEFT).

    `running` tells where the others are and for how many seconds they have run: their slots are free only
    when they end, and their children wait for them. `current` are queues to keep unless new ones are better.
    """
    problem = remaining_problem(workflow, fleet, world, waiting, running)
    fresh = place_earliest(problem, running)
    if current is not None:
        unchanged = placement_of(problem.workflow, fleet, current, running)
        new_s, old_s = (run_calm(problem, each).makespan_s for each in (fresh, unchanged))
        if new_s > _WORTH * old_s:
            return {lane: list(current.get(lane, ())) for lane in fleet.lane_index}
    return queues_of(problem, fresh, running)


def place_earliest(problem: SchedulingProblem, running: Running) -> Placement:
    """Place all activations of a problem, each where it ends first; running ones stay where they are."""
    pinned = np.full(len(problem.tasks), -1, dtype=np.int64)
    for name, (lane, _) in running.items():
        pinned[problem.workflow.index[name]] = problem.fleet.lane_index[lane]
    rank = mean_upward_rank(problem)
    order = problem.graph.order
    by_rank = order[np.lexsort((-rank[order], pinned[order] < 0))]
    return place_by_insertion(problem, by_rank, pinned=pinned)


def remaining_problem(
    workflow: Workflow,
    fleet: Fleet,
    world: World,
    waiting: Collection[str],
    running: Running,
) -> SchedulingProblem:
    """The remaining problem: VMs are up, running activations need only the rest of their time."""
    rest = []
    for name in workflow.order:
        if name in running:
            (vm, _), lasted_s = running[name]
            rest.append(_left_of(workflow[name], fleet.vms[fleet.index[vm]], lasted_s))
        elif name in waiting:
            rest.append(workflow[name])
    calm = replace(world.calm(), boot_s=Distribution("constant", 0.0))
    return build_problem(workflow.part(rest), fleet, calm)


def _left_of(activation: Activation, vm: Vm, lasted_s: float) -> Activation:
    """What is left of a running activation: its inputs are there, part of its time has passed."""
    whole_s = activation.runtimes_s.get(vm.machine, activation.runtime_s / vm.speed)
    left_s = max(whole_s - lasted_s, _NEARLY_DONE * whole_s)
    return replace(activation, inputs=(), runtimes_s={**activation.runtimes_s, vm.machine: left_s})


_SURPRISE = 0.25
"""An adaptive plan is reconsidered when an activation takes this share more or less than planned."""


_PAUSE_S = 0.5
"""Reconsidering takes time, so it happens at most this often."""


class Replanner:
    """Gives the dispatcher new queues when needed; `known` is the workflow with estimates measured so far."""

    def __init__(
        self,
        plan: Plan,
        workflow: Workflow,
        options: ExecutionOptions,
        workers: VmWorkers,
        guard: LimitGuard,
        dispatcher: Dispatcher,
        log: SessionLog,
    ) -> None:
        self.known = workflow
        self._plan, self._workflow, self._options = plan, workflow, options
        self._workers, self._guard, self._dispatcher, self._log = workers, guard, dispatcher, log
        self._world = world_of(plan)
        self._look_again_s = 0.0

    @property
    def pause_left_s(self) -> float:
        """Seconds until the plan may be reconsidered; zero or less if it may be now."""
        return self._look_again_s - self._workers.time_s()

    @property
    def may_move(self) -> bool:
        """Whether waiting activations may move to other machines just because that is faster."""
        return self._plan.policy != "static" and self._options.replay is None

    def planned_s(self, name: str, vm: str) -> float:
        """How long an activation holds a slot of a VM by the plan's estimates."""
        return self._held_s(self._workflow, name, vm)

    def expected_s(self, name: str, vm: str) -> float:
        """The same, by the estimates measured so far."""
        return self._held_s(self.known, name, vm)

    def adapt(self, name: str, vm: str, took_s: float) -> None:
        """After an activation has ended: keep the limits, or reconsider the plan after a surprise."""
        if not self._dispatcher.waiting or self.pause_left_s > 0 or self._keep_limits():
            return
        planned_s = self.planned_s(name, vm)
        surprise_s = abs(took_s - planned_s)
        small = surprise_s < _SURPRISE * planned_s or surprise_s < 0.01 * self._plan.makespan_s
        if self.may_move and not small:
            self.reconsider("surprise")

    def reconsider(self, why: str) -> None:
        """Plan waiting activations anew if that is faster, then pause."""
        begun_s = time.monotonic()
        queues = self._replanned(self._dispatcher.queues)
        self._pause_after(begun_s)
        self._follow(queues, why)

    def replan_after_give_back(self, why: str) -> None:
        """Plan waiting activations anew on the remaining VMs, because others were given back."""
        self._follow(self._replanned(None), why)

    def replan_lost(self, orphaned: list[str]) -> None:
        """Plan waiting activations anew, because some were queued on a VM that is lost."""
        queues = self._replanned(None)
        self._dispatcher.replace_queues(queues)
        lanes = {name: lane for lane, names in queues.items() for name in names}
        self._record("lost", {name: lanes[name][0] for name in orphaned})

    def _keep_limits(self) -> bool:
        """Plan waiting activations anew if a limit would be broken; answers whether that was done."""
        if not self._guard.limits:
            return False
        begun_s = time.monotonic()
        known, fleet, running = self._known_state()
        queues, now_s = self._dispatcher.queues, self._log.clock_s()
        changed = self._guard.better_queues(known, fleet, self._world, queues, running, now_s)
        self._pause_after(begun_s)
        if changed is not None:
            self._follow(*changed)
        return changed is not None

    def _pause_after(self, begun_s: float) -> None:
        self._look_again_s = self._workers.time_s() + max(_PAUSE_S, 10 * (time.monotonic() - begun_s))

    def _follow(self, queues: Queues, why: str) -> None:
        """Follow new queues from now on, and record which activations moved."""
        before = {each: lane for lane, queue in self._dispatcher.queues.items() for each in queue}
        self._dispatcher.replace_queues(queues)
        after = {each: lane for lane, queue in queues.items() for each in queue}
        moved = {each: lane[0] for each, lane in after.items() if lane != before[each]}
        if moved:
            self._record(why, moved)

    def _record(self, why: str, moved: Mapping[str, str]) -> None:
        self._log.record({"fact": "replanned", "at_s": self._log.clock_s(), "why": why, "moved": dict(moved)})

    def _replanned(self, current: Queues | None) -> Queues:
        """Queues of waiting activations on the remaining VMs; `current` stays unless others are better."""
        known, fleet, running = self._known_state()
        return replan(known, fleet, self._world, set(self._dispatcher.waiting), running, current)

    def _known_state(self) -> tuple[Workflow, Fleet, dict[str, tuple[Lane, float]]]:
        """What is known now: estimates measured so far, remaining VMs, running activations."""
        left = tuple(each for each in self._plan.fleet.vms if each.name in self._workers.vms)
        if not left:
            raise RunFailed(
                "The last VM was lost; what is done is kept. Start workers and continue with --resume."
            )
        now_s, begun_s = self._log.clock_s(), self._log.begun_s
        running = {name: (lane, now_s - begun_s[name]) for name, lane in self._dispatcher.running.items()}
        if self._options.replay is None:
            heard = [(self._plan.fleet, self._log.facts)]
            self.known = learn_run_times(self._workflow, self._plan.fleet, self._world, heard)
        return self.known, Fleet(left), running

    def _held_s(self, workflow: Workflow, name: str, vm: str) -> float:
        problem = build_problem(workflow, self._plan.fleet, self._world)
        at, kind = workflow.index[name], problem.vms[self._plan.fleet.index[vm]]["kind"]
        held = problem.tasks[at]["hold_s"] + problem.tasks[at]["stage_s"]
        return float(held + problem.run_s[at, kind])
