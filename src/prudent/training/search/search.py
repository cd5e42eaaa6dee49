"""The search of a request: a study whose job trains models, those of all methods side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prudent.core.errors import PrudentError
from prudent.training.engines.engine import TrainingSession
from prudent.training.leaderboard import EventCallback, TrialFailure
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.search.allocation import MethodAllocation
from prudent.training.search.board import TrialBoard
from prudent.training.search.ending import (
    MACHINES_GONE,
    MORE_ROWS_SHARE,
    EndingLimits,
    SearchEnding,
    charge_for_ending,
    rented_limits,
)
from prudent.training.search.final import FinalBoard
from prudent.training.search.job import TrainingJob, TrialJob
from prudent.training.search.method_search import QUEUED, SCORE, search_for
from prudent.training.search.methods import MethodPlan, method_plans
from prudent.training.search.rented_job import MachinesInUse, RentedTrainingJob
from prudent.training.search.space import MethodSpace
from prudent.training.search.stopping import SearchLimits, TrialTimes
from prudent.tuning.jobs.job import Job
from prudent.tuning.study.settlement import INTERRUPTED as INTERRUPTED_CHARGE
from prudent.tuning.study.study import Study
from prudent.tuning.tune import Event, TrialEnded, run_trials

LEFT_FOR_MORE_DATA = 0.2
"""The share of a budget that a search on parts of the data reserves for training the best on all of them."""

INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class SearchOutcome:
    """What a search gave: models best first, why it ended, and what is known of the data."""

    final: FinalBoard
    failures: Sequence[TrialFailure]
    ended: str
    metric: str
    data_description: Mapping[str, Any]
    spent_usd: float = 0.0
    interrupted_usd: float = 0.0
    trouble: PrudentError | None = None
    """Machines that would not end."""


class TrainingSearch:
    """The study of a request in a session. Trials of earlier sessions are taken in first.

    The clock is that of the whole request: what earlier sessions took counts. `machines` are those that were
    rented for it, if any: then what they cost is the bill, and not the time of trials.
    """

    def __init__(
        self,
        request: TrainingRequest,
        session: TrainingSession,
        output: OutputFolder,
        limits: SearchLimits,
        watch: EventCallback,
        machines: MachinesInUse | None = None,
    ) -> None:
        self._session, self._machines, self._metric = session, machines, limits.metric
        self._request, self._work, self._began_s = request, output.trials, time.monotonic()
        plans = method_plans(request, session.shape)
        more_data = _on_more_data(plans)
        space = MethodSpace([*plans, *more_data])
        self._times = TrialTimes(replace(limits, reserved_share=LEFT_FOR_MORE_DATA if more_data else 0.0))
        self._allocation = self._allocate(request, space, len(more_data))
        parts = (request, space, session, output.trials, self._times, self._allocation)
        self._job = TrainingJob(*parts) if machines is None else RentedTrainingJob(*parts, machines)
        self._study = Study(
            space,
            f"maximise {SCORE}",
            self._job.price,
            limits.budget_usd if machines is None else None,
            self._allocation,
            measures=self._job.measures,
            early_stop=False,
            seed=request.seed,
            fingerprint=self._job.fingerprint(),
            journal=output.journal,
            resume=True,
        )
        spent_usd = None if machines is None else machines.meter.spent_usd
        self._board = TrialBoard(space, output.trials, lambda: self._metric, watch, spent_usd)

    def run(self) -> SearchOutcome:
        """Make trials until a limit is reached, all is tried, or somebody interrupts."""
        study, board = self._study, self._board
        described = {**self._session.description, "fingerprint": self._session.shape.fingerprint}
        final = FinalBoard(())

        def finish(interrupted: bool) -> None:
            nonlocal final
            final = self._final(interrupted)

        interrupted = run_study(self._job, study, board, finish)
        lost_usd = math.fsum(one.usd for one in study.ledger.entries if one.note == INTERRUPTED_CHARGE)
        ended = INTERRUPTED if interrupted else self._job.ended(self._allocation.exhausted)
        trouble = self._job.trouble if isinstance(self._job, RentedTrainingJob) else None
        return SearchOutcome(
            final,
            board.failures,
            ended,
            self._metric,
            described,
            study.spent_usd,
            lost_usd,
            trouble,
        )

    def _final(self, interrupted: bool) -> FinalBoard:
        """Choose the best, judge it once more and train it on all rows, while there is time and money."""
        self._job.free_kept()
        took_s = time.monotonic() - self._began_s
        limits = self._ending_limits(took_s, interrupted)
        ending = SearchEnding(self._request, self._session, self._work, self._metric, limits)
        if interrupted:
            return ending.chosen(self._board.entries)
        final = ending.final(self._board.entries, took_s)
        if self._machines is not None:
            ending.saved(final).write(self._work.parent)
        return final

    def _ending_limits(self, took_s: float, interrupted: bool) -> EndingLimits:
        study, machines, limits = self._study, self._machines, self._times.limits
        if machines is None:
            curve_s = 0.0 if limits.budget_usd is not None else MORE_ROWS_SHARE * took_s
            price, own = limits.price, charge_for_ending(study, limits.price)
            left_s = min(self._times.left_s(), curve_s)
            return EndingLimits(
                price, own, self._times.whole_s, lambda: study.ledger.left_usd, more_rows_s=left_s
            )
        gone = MACHINES_GONE if interrupted or machines.is_gone() else ""
        return rented_limits(study, machines.meter, self._times, gone)

    def _allocate(self, request: TrainingRequest, space: MethodSpace, more_data: int) -> MethodAllocation:
        limits, machines = self._times.limits, self._machines
        left_usd = math.inf if limits.budget_usd is None else limits.budget_usd
        training_s = limits.training_s(left_usd if machines is None else machines.meter.left_usd)
        searches = [search_for(plan, request.seed, limits.price, training_s) for plan in space.plans.values()]
        return MethodAllocation(
            space, searches, request.seed, self._times, limits.limited, self._reserve_usd, more_data
        )

    def _reserve_usd(self, likely_s: float, left_usd: float) -> float:
        """Twice what a trial should take, or a share of what is left; it may ask for more."""
        if math.isinf(left_usd):
            return math.inf
        limits = self._times.limits
        return min(2.0 * limits.price.cost_usd(likely_s), left_usd / (2.0 * limits.parallelism))


def run_study(
    job: TrialJob, study: Study, board: TrialBoard, finish: Callable[[bool], None] | None = None
) -> bool:
    """Take in the trials of earlier sessions, and make more; True if it was interrupted. Closes the study.

    `finish` is called at the end of the trials; what it costs belongs to the study.
    """
    assert isinstance(job, Job)
    parallelism = job.times.limits.parallelism
    job.study = study
    job.times.add_earlier(sum(entry.seconds for entry in study.ledger.entries) / parallelism)
    for trial in study.trials:
        job.take(trial)
    board.complete(study.trials)
    if study.ledger.entries:
        board.report_spending(study)

    def watch(event: Event, study: Study) -> None:
        if isinstance(event, TrialEnded):
            job.take(event.trial)
        board.watch(event, study)

    try:
        return run_trials(job, study, parallelism, watch, finish=finish)
    finally:
        study.close()
        board.report_spending(study)


def _on_more_data(plans: Sequence[MethodPlan]) -> list[MethodPlan]:
    """The same methods once more, for what did best on a part of the data; none where all of it is used."""
    if plans[0].fraction is None:
        return []
    return [
        replace(plan, index=len(plans) + plan.index, search=QUEUED, default_trials=10**9) for plan in plans
    ]
