"""A study in a file: the job, its parameters and prices, the goal and the budget (JOB.yaml).

Every complaint names the file and the key. Relative paths are relative to the file. A `function:` is
imported from the file's folder or from what is installed, and a `command:` is run by the shell: a job file is
a program, so only run those you trust.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prudent.core.documents import KeyPath, read_yaml_file
from prudent.core.errors import BadInput, did_you_mean, unknown
from prudent.core.units import USD, parse_in
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.job import Job
from prudent.tuning.jobs.kinds import KINDS, JobKind
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.registry import strategies
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Trial

_STUDY_KEYS = (
    "name", "measures", "fraction", "goal", "budget", "strategy", "options", "parallel", "seed",
    "early_stop", "max_trials",
)  # fmt: skip
_NAME = re.compile(r"[\w][\w.-]*")


@dataclass(frozen=True)
class JobFile:
    """What a job file says. The job itself is built by `build`, once it is known where its logs go."""

    name: str
    folder: Path
    kind: JobKind = field(repr=False)
    said: Mapping[str, Any] = field(repr=False)
    where: KeyPath = field(repr=False)
    goal: Goal
    budget_usd: float | None = None
    strategy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    seed: int = 0
    early_stop: bool = True
    max_trials: int | None = None

    @classmethod
    def read(cls, path: str | Path) -> JobFile:
        """The job file at `path`."""
        path = Path(path)
        said, where = read_yaml_file(path, "job file")
        return cls.parse(said, path.resolve().parent, path.stem, where)

    @classmethod
    def parse(cls, said: Any, folder: Path, name: str = "job", where: KeyPath | None = None) -> JobFile:
        """The same from a mapping; `folder` is what relative paths are relative to.

        >>> said = {"table": "runs.csv", "parameters": ["vm"], "goal": "minimise cost_usd", "budget": "$2"}
        >>> job_file = JobFile.parse(said, Path("."))
        >>> job_file.budget_usd, job_file.kind.name, str(job_file.goal)
        (2.0, 'table', 'minimise cost_usd')
        """
        where = where or KeyPath("the job")
        with where:
            if not isinstance(said, Mapping):
                raise BadInput("It holds no keys; write at least command, parameters, goal and budget.")
            kind = _kind(said)
        where.check_keys(said, (*_STUDY_KEYS, *kind.keys), _hints(kind))
        with where / "goal":
            goal = Goal.parse(where.require(said, "goal", 'write it like "minimise cost_usd".'))
        name = where.text(said, "name", name)
        with where / "name":
            if not _NAME.fullmatch(name):
                raise BadInput(f'"{name}" cannot name a folder; use letters, digits, "-", "_" and ".".')
        return cls(
            name=name,
            folder=folder,
            kind=kind,
            said=said,
            where=where,
            goal=goal,
            budget_usd=_budget(where / "budget", said.get("budget")),
            strategy=_strategy(where / "strategy", said.get("strategy")),
            options=where.mapping(said, "options"),
            parallel=where.integer(said, "parallel", 1, least=1),
            seed=where.integer(said, "seed", 0, least=0),
            early_stop=where.flag(said, "early_stop", True),
            max_trials=where.integer(said, "max_trials", None, least=1),
        )

    def build(self, logs: Path | None = None) -> Job:
        """The job, checked as far as can be without running it."""
        return self.kind.build(self.said, self.where, self.folder, self.name, logs)

    def study(self, job: Job, known: Sequence[Trial] = ()) -> Study:
        """The study that this file describes, without a journal: to look at, not to run."""
        return Study(
            job.space,
            self.goal,
            job.price,
            self.budget_usd,
            self.strategy,
            self.options,
            measures=job.measures,
            fraction=job.fraction,
            early_stop=self.early_stop,
            seed=self.seed,
            warm_start=known,
        )

    def problem(self, job: Job) -> Problem:
        """What a report tells of the job beside the trials."""
        return Problem(job.space, self.goal, job.price, tuple(job.measures), job.fraction, self.early_stop)

    def changed(
        self,
        goal: str | None = None,
        budget: str | None = None,
        strategy: str | None = None,
        options: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> JobFile:
        """The same study with some things said otherwise, such as on the command line; None leaves a thing.

        Another strategy starts from its own defaults: the options in the file are for the one in the file.
        """
        changes: dict[str, Any] = {key: value for key, value in others.items() if value is not None}
        if goal is not None:
            with KeyPath("--goal"):
                changes["goal"] = Goal.parse(goal)
        if budget is not None:
            changes["budget_usd"] = _budget(KeyPath("--budget"), budget)
        if strategy is not None:
            changes["strategy"] = _strategy(KeyPath("--strategy"), strategy)
        kept = self.options if strategy in (None, self.strategy) else {}
        changes["options"] = {**kept, **(options or {})}
        return replace(self, **changes)


def _kind(said: Mapping[str, Any]) -> JobKind:
    found = [kind for kind in KINDS if kind.name in said]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"It has both {found[0].name} and {found[1].name}; keep one of them.")
    names = [kind.name for kind in KINDS]
    near = next((hint for key in said if (hint := did_you_mean(str(key), names))), "")
    raise BadInput(f"It does not say what to run.{near} Add command, table or function.")


def _hints(kind: JobKind) -> dict[str, str]:
    """Keys that exist, but for another kind of job."""
    hints: dict[str, str] = {}
    for other in KINDS:
        for key in other.keys:
            if key not in kind.keys:
                hints.setdefault(key, f"is for a {other.name}, and this job is a {kind.name}; remove it.")
    return hints


def _budget(where: KeyPath, said: Any) -> float | None:
    if said is None:
        return None
    with where:
        budget = parse_in(said, USD)
        if budget <= 0:
            raise BadInput(f"The budget is {said}; give an amount above 0, such as $2.")
        return budget


def _strategy(where: KeyPath, said: Any) -> str | None:
    if said is None:
        return None
    with where:
        if said not in strategies():
            raise unknown("strategy", said, strategies())
    return str(said)
