"""Which of the ready jobs to start now, for engines that ask each time something ends.

The rule is that of HEFT, taken step by step: the job with the longest path behind it comes first, if what is
free suffices for it. On machines that differ, a job on which nothing waits may take the cheaper one: as long
as it ends before the longest path does, the workflow ends no later, unless it waits for machines.
"""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prudent.core.errors import BadInput
from prudent.workflows.fleet import Fleet, Vm

CORES, MEMORY_MB = "_cores", "mem_mb"


@dataclass(frozen=True)
class ReadyJob:
    """A job that may start: what it holds while it runs, how long it and the longest path from it take.

    A higher `priority`, given by the workflow's author, goes before any path.
    """

    key: Hashable
    run_s: float
    path_s: float
    holds: Mapping[str, float] = field(default_factory=dict)
    priority: float = 0.0


def longest_paths(
    parents: Mapping[Hashable, Collection[Hashable]], run_s: Mapping[Hashable, float]
) -> dict[Hashable, float]:
    """Seconds from the start of each job to the end of the longest path that begins with it.

    >>> longest_paths({"a": [], "b": ["a"], "c": ["a"]}, {"a": 1, "b": 5, "c": 2})["a"]
    6.0
    """
    order = list(graphlib.TopologicalSorter(parents).static_order())
    path_s: dict[Hashable, float] = dict.fromkeys(order, 0.0)
    for job in reversed(order):
        path_s[job] += run_s.get(job, 0.0)
        for parent in parents.get(job, ()):
            path_s[parent] = max(path_s[parent], path_s[job])
    return path_s


def in_order(jobs: Iterable[ReadyJob]) -> list[ReadyJob]:
    """The most urgent first."""
    return sorted(jobs, key=lambda job: (-job.priority, -job.path_s))


def select(jobs: Iterable[ReadyJob], free: Mapping[str, float]) -> list[ReadyJob]:
    """The jobs to start with what is free, the most urgent first; what nobody limits is not counted."""
    left, chosen = dict(free), []
    for job in in_order(jobs):
        held = {name: amount for name, amount in job.holds.items() if name in left}
        if all(amount <= left[name] for name, amount in held.items()):
            chosen.append(job)
            for name, amount in held.items():
                left[name] -= amount
    return chosen


class MachinePool:
    """Machines with what is free on each, and which job runs where."""

    def __init__(self, fleet: Fleet) -> None:
        self._vms: Sequence[Vm] = fleet.vms
        self._free = {
            vm.name: [vm.vcpus or float("inf"), vm.memory_gb * 1e3 or float("inf")] for vm in fleet.vms
        }
        self._running: dict[Hashable, tuple[Vm, float, float]] = {}

    @property
    def running(self) -> frozenset[Hashable]:
        """The jobs that hold a machine."""
        return frozenset(self._running)

    def refuse_what_never_fits(self, job: ReadyJob) -> None:
        """Complain about a job that no machine can hold even when it is empty."""
        cores, memory_mb = job.holds.get(CORES, 1.0), job.holds.get(MEMORY_MB, 0.0)
        if not any(
            cores <= (vm.vcpus or cores) and memory_mb <= (vm.memory_gb * 1e3 or memory_mb)
            for vm in self._vms
        ):
            raise BadInput(
                f"A job needs {cores:g} cores and {memory_mb:g} MB, which no machine of the fleet has; add a "
                "larger one."
            )

    def place(self, job: ReadyJob, slack_s: float) -> Vm | None:
        """Give it the cheapest machine on which it ends so much later than on the fastest at most."""
        cores, memory_mb = job.holds.get(CORES, 1.0), job.holds.get(MEMORY_MB, 0.0)
        able = [
            vm for vm in self._vms if self._free[vm.name][0] >= cores and self._free[vm.name][1] >= memory_mb
        ]
        if not able:
            return None
        soonest_s = min(_takes_s(job, vm) for vm in able)
        in_time = [vm for vm in able if _takes_s(job, vm) <= soonest_s + max(slack_s, 0.0) + 1e-9]
        vm = min(in_time, key=lambda each: (_costs(job, each), _takes_s(job, each)))
        self._free[vm.name][0] -= cores
        self._free[vm.name][1] -= memory_mb
        self._running[job.key] = vm, cores, memory_mb
        return vm

    def release(self, key: Hashable) -> None:
        """The job has ended, well or not."""
        vm, cores, memory_mb = self._running.pop(key)
        self._free[vm.name][0] += cores
        self._free[vm.name][1] += memory_mb


def _takes_s(job: ReadyJob, vm: Vm) -> float:
    """The speed of one vCPU counts: the job holds as many as it asks for."""
    return job.run_s * (vm.vcpus or 1) / vm.speed


def _costs(job: ReadyJob, vm: Vm) -> float:
    """Its share of the machine's price."""
    share = job.holds.get(CORES, 1.0) / vm.vcpus if vm.vcpus else 1.0
    return _takes_s(job, vm) * vm.usd_per_h * share
