"""The scheduler plug-in of Snakemake 9: `snakemake --scheduler prudent`.

Snakemake finds it by this package's name. Run times are learned from the folder's own records and from the
runs that `--scheduler-prudent-runs` names; the rule is that of `prudent.workflows.ready`.
"""

# Snakemake reads the types of the settings at run time: no annotations as text here.
import contextlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.settings import SchedulerSettingsBase

from prudent.core.errors import BadInput
from prudent.core.units import format_duration
from prudent.workflows.fleet import Fleet
from prudent.workflows.ready import MachinePool, ReadyJob, in_order, longest_paths, select
from prudent.workflows.sizing.predictor import SizePredictor
from prudent.workflows.sizing.runs import read_samples

_UNKNOWN_S = 60.0
"""A rule that never ran, in a workflow of which nothing is known."""


@dataclass
class SchedulerSettings(SchedulerSettingsBase):  # type: ignore[misc]
    """What `--scheduler-prudent-…` says."""

    runs: Optional[str] = field(  # noqa: UP045  the one form that Snakemake understands
        default=None,
        metadata={
            "help": "Earlier runs to learn run times from, with commas between them: folders where Snakemake "
            "ran, or traces. The folder of this run is always among them."
        },
    )
    fleet: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "Machines to place jobs on, such as 4*m5.large,c5.4xlarge: each job is given the type of "
            "machine that it is to run on, as the resource that --scheduler-prudent-resource names."
        },
    )
    resource: str = field(
        default="machine_type",
        metadata={"help": "The resource by which the executor takes the type of machine."},
    )


class Scheduler(SchedulerBase):  # type: ignore[misc]
    """Starts the jobs that the most depends on, on machines that end them in time for the least money."""

    def __post_init__(self) -> None:
        self._run_times = SizePredictor()
        self._usual_s = _UNKNOWN_S
        self._usual_bytes: dict[str, float] = {}
        self._path_s: dict[Hashable, float] = {}
        self._pool: MachinePool | None = None
        self._placed: dict[Hashable, frozenset[int]] = {}
        try:
            if self.settings.fleet:
                self._pool = MachinePool(Fleet.parse(self.settings.fleet))
            self._learn(self.settings.runs)
        except BadInput as error:
            raise WorkflowError(str(error)) from None

    def _learn(self, runs: str | None) -> None:
        paths = [Path(word.strip()) for word in (runs or "").split(",") if word.strip()]
        samples = [sample for path in paths for sample in read_samples(path)]
        with contextlib.suppress(BadInput):  # Nothing ran here so far.
            samples += read_samples(Path.cwd())
        sizes: defaultdict[str, list[float]] = defaultdict(list)
        for sample in samples:
            self._run_times.observe(sample.program, sample.input_bytes, sample.runtime_s)
            sizes[sample.program].append(sample.input_bytes)
        self._usual_bytes = {rule: median(each) for rule, each in sizes.items()}
        if times := [sample.runtime_s for sample in samples]:
            self._usual_s = sum(times) / len(times)

    def dag_updated(self) -> None:
        """The paths are measured anew when a checkpoint changes what there is to do."""
        self._path_s = {}

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Mapping[Any, int | None],
    ) -> Sequence[Any]:
        """The jobs to start now."""
        if not self._path_s:
            self._path_s = self._paths(input_sizes)
        free = {name: float(left) for name, left in available_resources.items() if not isinstance(left, str)}
        ready = {id(job): job for job in selectable_jobs}
        described = [self._described(key, job, input_sizes) for key, job in ready.items()]
        if self._pool is None:
            return [ready[job.key] for job in select(described, free)]  # type: ignore[index]
        self._release(remaining_jobs)
        waiting = (self._path_s.get(id(single), 0.0) for job in remaining_jobs for single in _singles(job))
        return self._placed_jobs(self._pool, described, ready, free, max(waiting, default=0.0))

    def _placed_jobs(
        self,
        pool: MachinePool,
        described: Iterable[ReadyJob],
        ready: Mapping[int, Any],
        free: dict[str, float],
        urgent_s: float,
    ) -> list[Any]:
        """Those that fit what is free in all and on one machine, each told its machine."""
        chosen: list[Any] = []
        for each in in_order(described):
            try:
                pool.refuse_what_never_fits(each)
            except BadInput as error:
                raise WorkflowError(str(error)) from None
            if not select([each], free):
                continue
            vm = pool.place(each, urgent_s - each.path_s)
            if vm is None:
                continue
            for name, amount in each.holds.items():
                if name in free:
                    free[name] -= amount
            job = ready[each.key]  # type: ignore[index]
            # Snakemake lets a resource be added once: a job that is tried again keeps its machine's type.
            if each.key not in self._placed:
                self._placed[each.key] = frozenset(map(id, _singles(job)))
                for single in _singles(job):
                    single.add_aux_resource(self.settings.resource, vm.machine)
            chosen.append(job)
        return chosen

    def _release(self, remaining_jobs: Iterable[Any]) -> None:
        """What waits again, or is finished, holds no machine any more."""
        assert self._pool is not None
        waiting = {id(job) for job in remaining_jobs}
        unfinished = {id(job) for job in self.dag.needrun_jobs() if not self.dag.finished(job)}
        for key in self._pool.running:
            if key in waiting or not self._placed[key] & unfinished:
                self._pool.release(key)

    def _described(self, key: int, job: Any, input_sizes: Mapping[Any, int | None]) -> ReadyJob:
        holds = {
            name: float(amount)
            for name, amount in job.scheduler_resources.items()
            if not isinstance(amount, str)
        }
        path_s = max((self._path_s.get(id(single), 0.0) for single in _singles(job)), default=0.0)
        run_s = sum(self._run_s(single, input_sizes) for single in _singles(job))
        return ReadyJob(key, run_s, path_s, holds, float(job.priority))

    def _paths(self, input_sizes: Mapping[Any, int | None]) -> dict[Hashable, float]:
        jobs = [job for job in self.dag.needrun_jobs() if not self.dag.finished(job)]
        known = {id(job) for job in jobs}
        parents: dict[Hashable, list[Hashable]] = {
            id(job): [id(each) for each in self.dag.job_dependencies(job) if id(each) in known]
            for job in jobs
        }
        paths = longest_paths(parents, {id(job): self._run_s(job, input_sizes) for job in jobs})
        longest = format_duration(max(paths.values(), default=0.0))
        self.logger.info(f"prudent: {len(jobs)} jobs, the longest path takes about {longest}.")
        return paths

    def _run_s(self, job: Any, input_sizes: Mapping[Any, int | None]) -> float:
        """What the rule took before on inputs like these, else the `runtime` it asks for, else the usual."""
        if not list(job.output):
            return 0.0  # A rule such as "all" only names what is wanted.
        rule = str(getattr(getattr(job, "rule", None), "name", ""))
        known = [each for file in job.input if (each := input_sizes.get(file)) is not None]
        size = float(sum(known))
        if len(known) < len(list(job.input)):  # They are not made yet: as large as they usually are, then.
            size = self._usual_bytes.get(rule, size)
        if (told := self._run_times.predict(rule, size)) is not None:
            return told.expected
        minutes = job.scheduler_resources.get("runtime")
        return float(minutes) * 60.0 if isinstance(minutes, int | float) else self._usual_s


def _singles(job: Any) -> list[Any]:
    """The jobs of a group, or the job alone."""
    jobs = getattr(job, "jobs", None)
    if jobs is None:
        return [job]
    return list(jobs() if callable(jobs) else jobs)
