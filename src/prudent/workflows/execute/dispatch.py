"""Queues of activations for slots, and the dispatcher: what may start next. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prudent.workflows.fleet import Fleet
from prudent.workflows.simulation.problem import Placement, SchedulingProblem
from prudent.workflows.workflow import Workflow

Lane = tuple[str, int]
"""A slot of a VM: the VM's name and the slot's number."""
Queues = dict[Lane, list[str]]
"""What each slot still has to start, in order."""
Running = Mapping[str, tuple[Lane, float]]
"""Where activations run, and for how many seconds they have."""
Allowed = Callable[[str, Lane], bool]
"""Whether an activation may start on a lane now."""
MAX_LOSSES = 3
"""An activation that was lost with so many VMs is given up: it may be what ends them."""


def queues_of(problem: SchedulingProblem, placement: Placement, running: Collection[str]) -> Queues:
    """A placement as queues, without the activations that run already."""
    lanes = list(problem.fleet.lane_index)
    queues: Queues = {lane: [] for lane in lanes}
    for at in placement.order:
        name = problem.workflow.activations[at].id
        if name not in running:
            queues[lanes[placement.lane[at]]].append(name)
    return queues


def placement_of(
    workflow: Workflow, fleet: Fleet, queues: Mapping[Lane, Sequence[str]], running: Running | None = None
) -> Placement:
    """Queues that hold the whole workflow as a placement; running activations are first on their lanes."""
    placed = [(name, lane) for name, (lane, _) in (running or {}).items()]
    placed += [(name, lane) for lane, queue in queues.items() for name in queue]
    order = np.array([workflow.index[name] for name, _ in placed], dtype=np.int64)
    lane = np.empty(len(workflow), dtype=np.int64)
    lane[order] = [fleet.lane_index[lane] for _, lane in placed]
    return Placement(lane, order)


@dataclass(frozen=True)
class ActivationStart:
    """Start this activation now, on this slot; `attempt` counts from 1."""

    activation: str
    lane: Lane
    attempt: int


class Dispatcher:
    """Each lane runs its activations in the planned order; the first waits until its parents are done.

    A failing activation is tried again at once on the same lane, `retries` times. One that fails for good
    takes its descendants with it (`blocked`); everything else goes on. When a VM is lost, whoever drives this
    asks for `waiting`, plans those anew and calls `replace_queues`.
    """

    def __init__(
        self,
        workflow: Workflow,
        queues: Mapping[Lane, Iterable[str]],
        done: Iterable[str] = (),
        retries: int = 0,
        attempts: Mapping[str, int] | None = None,
    ) -> None:
        self.workflow = workflow
        self.done = set(done)
        self.running: dict[str, Lane] = {}
        self.given_up: set[str] = set()
        self.blocked: dict[str, str] = {}
        self.lost_vms: set[str] = set()
        self._retries = retries
        self._attempts = dict(attempts or {})
        self._failures: dict[str, int] = {}
        self._losses: dict[str, int] = {}
        self._missing = {
            name: sum(parent not in self.done for parent in parents)
            for name, parents in workflow.parents.items()
        }
        self._queues = {lane: deque(names) for lane, names in queues.items()}

    @property
    def waiting(self) -> list[str]:
        """Queued activations that have not started, in the order of the lanes."""
        return [name for queue in self._queues.values() for name in queue]

    @property
    def queues(self) -> dict[Lane, list[str]]:
        """The activations that every lane still has to start, in order."""
        return {lane: list(queue) for lane, queue in self._queues.items()}

    @property
    def ready_vms(self) -> set[str]:
        """VMs with an activation that could start now."""
        busy = set(self.running.values())
        return {
            lane[0]
            for lane, queue in self._queues.items()
            if queue and lane not in busy and not self._missing[queue[0]]
        }

    @property
    def over(self) -> bool:
        """Nothing runs, and nothing will."""
        return not self.running and not any(self._queues.values())

    def starts(self, allowed: Allowed = lambda name, lane: True) -> list[ActivationStart]:
        """Activations that start now; they count as running. Those not `allowed` wait in their lane."""
        busy = set(self.running.values())
        found = []
        for lane, queue in self._queues.items():
            if lane in busy or not queue or self._missing[queue[0]] or not allowed(queue[0], lane):
                continue
            name = queue.popleft()
            self.running[name] = lane
            self._attempts[name] = self._attempts.get(name, 0) + 1
            found.append(ActivationStart(name, lane, self._attempts[name]))
        return found

    def finish(self, name: str) -> None:
        """An activation is done."""
        del self.running[name]
        self.done.add(name)
        for child in self.workflow.children[name]:
            self._missing[child] -= 1

    def fail(self, name: str) -> bool:
        """An attempt failed by itself; answers whether there will be another."""
        lane = self.running.pop(name)
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] > self._retries:
            self._give_up(name)
            return False
        self._queues[lane].appendleft(name)
        return True

    def lose_vm(self, vm: str) -> list[str]:
        """A VM is lost; answers what ran on it. Its queue is `orphaned` until `replace_queues`."""
        self.lost_vms.add(vm)
        ran = [name for name, lane in self.running.items() if lane[0] == vm]
        for name in ran:
            lane = self.running.pop(name)
            self._losses[name] = self._losses.get(name, 0) + 1
            if self._losses[name] >= MAX_LOSSES:
                self._give_up(name)
            else:
                self._queues[lane].appendleft(name)
        return ran

    @property
    def orphaned(self) -> list[str]:
        """Activations queued on a VM that is lost."""
        return [name for lane, queue in self._queues.items() if lane[0] in self.lost_vms for name in queue]

    def replace_queues(self, queues: Mapping[Lane, Iterable[str]]) -> None:
        """Replace all queues by new ones, which hold the same activations on VMs that are there."""
        fresh = {lane: deque(names) for lane, names in queues.items()}
        if sorted(name for queue in fresh.values() for name in queue) != sorted(self.waiting):
            raise AssertionError("the new plan does not hold the activations that wait")
        self._queues = fresh

    def needs(self, vm: str) -> bool:
        """Whether anything runs on a VM, or is to start there."""
        waits = any(queue for lane, queue in self._queues.items() if lane[0] == vm)
        return waits or any(lane[0] == vm for lane in self.running.values())

    def stop(self) -> None:
        """Start nothing any more."""
        for queue in self._queues.values():
            queue.clear()

    def _give_up(self, name: str) -> None:
        self.given_up.add(name)
        doomed = [name]
        for each in doomed:
            for child in self.workflow.children[each]:
                if child not in self.blocked:
                    self.blocked[child] = name
                    doomed.append(child)
        for queue in self._queues.values():
            for child in [each for each in queue if each in self.blocked]:
                queue.remove(child)
