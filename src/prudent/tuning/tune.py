"""Run a study of a job: ask, run, cut in time, tell, until the money or the ideas are gone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.units import format_money
from prudent.tuning.crew import Crew, LiveCrew, Member, Reached, VirtualCrew
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.job import Job
from prudent.tuning.limits import OUT_OF_MONEY, Limit
from prudent.tuning.result import Result
from prudent.tuning.study import Ask, Study
from prudent.tuning.trial import Outcome, Progress, Trial


@dataclass(frozen=True)
class Started:
    """A trial begins."""

    ask: Ask


@dataclass(frozen=True)
class Shown:
    """A trial under way reported something."""

    number: int
    progress: Progress


@dataclass(frozen=True)
class Ended:
    """A trial ended; the study's best and money are up to date."""

    trial: Trial


Event = Started | Shown | Ended
Watch = Callable[[Event, Study], None]


def tune(
    job: Job,
    goal: Goal | str | Mapping[str, Any],
    budget_usd: float | None = None,
    strategy: str | None = None,
    options: Mapping[str, Any] | None = None,
    early_stop: bool = True,
    parallel: int = 1,
    seed: int = 0,
    *,
    journal: str | Path | None = None,
    resume: bool = False,
    warm_start: Iterable[Trial] = (),
    watch: Watch | None = None,
    max_trials: int | None = None,
) -> Result:
    """Find the configuration of a job that meets a goal best, spending at most `budget_usd`.

    strategy=None takes the best one for this goal. With `early_stop` a run is cut once it cannot be the
    answer. `parallel` runs at most so many trials at once. `journal` makes the study resumable; `warm_start` hands
    in trials of earlier studies as free knowledge; `watch` is called with every event. An interrupt (Ctrl-C)
    ends the runs under way and answers with what is known.
    """
    if parallel < 1:
        raise BadInput(f"parallel is {parallel}; at least one trial must run at a time.")
    study = Study(
        job.space,
        Goal.parse(goal),
        job.price,
        budget_usd,
        strategy,
        options,
        measures=job.measures,
        fraction=job.fraction,
        early_stop=early_stop,
        seed=seed,
        fingerprint=job.fingerprint(),
        journal=journal,
        resume=resume,
        warm_start=warm_start,
    )
    try:
        check_budget(study)
        crew: Crew = VirtualCrew() if job.virtual else LiveCrew()
        loop = _Loop(job, study, crew, parallel, watch or _silent, max_trials)
        interrupted = loop.run()
        return summary(study, job.name, interrupted)
    finally:
        study.close()


def check_budget(study: Study) -> None:
    """Refuse a budget that cannot pay for the shortest run of the cheapest configuration."""
    budget = study.ledger.budget_usd
    if budget is None:
        return
    if budget <= 0:
        raise BadInput(f"The budget is {format_money(budget)}; give an amount above 0.")
    if not study.problem.listed:
        return
    everything = study.problem.everything
    least = float((everything.minimum_s * everything.usd_per_s).min())
    if least > budget:
        raise BadInput(
            f"The budget of {format_money(budget)} pays for no run: the cheapest configuration is billed "
            f"at least {format_money(least)}; raise the budget or add cheaper machines."
        )


def summary(study: Study, job_name: str, interrupted: bool = False) -> Result:
    """The result of a study as it stands."""
    history = study.history
    return Result(
        goal=study.goal,
        best=history.best,
        recommended=study.recommended,
        trials=study.trials,
        spent_usd=study.spent_usd,
        budget_usd=study.ledger.budget_usd,
        strategy=study.strategy_name,
        seed=study.seed,
        nearest=None if history.best else history.nearest,
        entries=study.ledger.entries,
        known=study.known,
        interrupted=interrupted,
        job=job_name,
    )


def _silent(event: Event, study: Study) -> None:
    del event, study


class _Loop:
    """The life of one call to `tune`."""

    def __init__(
        self, job: Job, study: Study, crew: Crew, parallel: int, watch: Watch, max_trials: int | None
    ) -> None:
        self._job, self._study, self._crew = job, study, crew
        self._parallel, self._watch = parallel, watch
        self._max_trials = math.inf if max_trials is None else max_trials

    def run(self) -> bool:
        """Work until nothing is left to do; True if it was interrupted."""
        try:
            self._fill()
            while self._crew.members:
                self._handle(*self._crew.wait(self._study.limit))
                self._fill()
        except KeyboardInterrupt:
            self._drop()
            return True
        except BaseException:
            self._drop()
            raise
        return False

    def _fill(self) -> None:
        while len(self._crew.members) < self._parallel:
            if len(self._study.trials) + len(self._crew.members) >= self._max_trials:
                return
            ask = self._study.ask()
            if ask is None:
                return
            self._watch(Started(ask), self._study)
            self._crew.add(ask.number, self._job.start(dict(ask.configuration), ask.number))

    def _handle(self, member: Member, event: Progress | Outcome | Reached) -> None:
        if isinstance(event, Progress):
            member.progress.append(event)
            self._watch(Shown(member.number, event), self._study)
        elif isinstance(event, Outcome):
            self._end(member, event)
        else:
            self._limit(member, event.limit)

    def _limit(self, member: Member, limit: Limit) -> None:
        if limit.why == OUT_OF_MONEY and self._study.extend(member.number):
            return
        self._end(member, member.run.cut(limit.seconds, limit.why))

    def _end(self, member: Member, outcome: Outcome) -> None:
        self._crew.remove(member.number)
        trial = self._study.tell(member.number, outcome, member.progress)
        self._watch(Ended(trial), self._study)

    def _drop(self) -> None:
        """Stop what is under way without charging it; a resumed study begins it again."""
        for member in list(self._crew.members.values()):
            member.run.cut(member.seen_s, "interrupted")
            self._crew.remove(member.number)
            self._study.abandon(member.number)
