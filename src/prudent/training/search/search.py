"""The search of a request: a study whose job trains models, those of all methods side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prudent.core.errors import PrudentError
from prudent.training.engines.engine import RefittingSession, TrainingSession
from prudent.training.engines.scoring import Scorer
from prudent.training.leaderboard import EventCallback, LeaderboardEntry, TrialFailure
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.search.allocation import MethodAllocation
from prudent.training.search.board import TrialBoard
from prudent.training.search.closing import SearchClosing
from prudent.training.search.final import FinalBoard, Refit, judge
from prudent.training.search.job import MachinesInUse, RentedTrainingJob, TrainingJob, TrialJob
from prudent.training.search.method_search import QUEUED, SCORE, search_for
from prudent.training.search.methods import MethodPlan, method_plans
from prudent.training.search.space import MethodSpace
from prudent.training.search.stopping import SearchLimits, TrialTimes
from prudent.tuning.jobs.job import Job
from prudent.tuning.study.settlement import INTERRUPTED as INTERRUPTED_CHARGE
from prudent.tuning.study.study import Study
from prudent.tuning.tune import Event, TrialEnded, run_trials

LEFT_FOR_MORE_DATA = 0.2
"""The share of a budget that a search on parts of the data reserves for training the best on all of them."""

MORE_ROWS_SHARE = 0.25
"""Of the time that a search took, so much more may go into whether more rows would help."""

INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class SearchOutcome:
    """What a search gave: models best first, why it ended, and what is known of the data."""

    entries: Sequence[LeaderboardEntry]
    failures: Sequence[TrialFailure]
    ended: str
    metric: str
    data_description: Mapping[str, Any]
    spent_usd: float = 0.0
    interrupted_usd: float = 0.0
    trouble: PrudentError | None = None
    """Machines that would not end."""
    warnings: tuple[str, ...] = ()
    """What is suspicious about the data."""
    guess: float | None = None
    tied: tuple[str, ...] = ()


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
        self._study = self._job.study = Study(
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
            final.entries,
            board.failures,
            ended,
            self._metric,
            described,
            study.spent_usd,
            lost_usd,
            trouble,
            final.warnings,
            final.guess,
            final.tied,
        )

    def _final(self, interrupted: bool) -> FinalBoard:
        """Choose the best, judge it once more and train it on all rows, while there is time and money."""
        request, study = self._request, self._study
        scorer = Scorer.of(request.domain, self._metric, self._session.shape.classes)
        final = judge(self._board.entries, self._session, scorer, request.seed)
        gone = self._machines is not None and self._machines.is_gone()
        if interrupted or gone or not final.entries:
            return final
        closing = SearchClosing(request, self._session, self._work)
        entries = closing.with_ensemble(final.entries)
        took_s = time.monotonic() - self._began_s
        warnings = closing.examine(entries[0], took_s, self._left_s(took_s))
        if request.refit and self._machines is None and isinstance(self._session, RefittingSession):
            price = self._times.limits.price

            def charge(usd: float) -> None:
                study.charge("models on all rows", usd, price)

            refit = Refit(self._session, self._work, request.seed, price, charge)
            anew = refit.entries(closing.to_refit(entries), self._times.whole_s(), study.ledger.left_usd)
            entries = closing.refitted(entries, anew)
        return replace(final, entries=tuple(entries), warnings=warnings)

    def _left_s(self, took_s: float) -> float:
        """Time to train the leader once more on parts of the rows; none where every second is paid for."""
        limits = self._times.limits
        if limits.budget_usd is not None or self._machines is not None:
            return 0.0
        return min(self._times.left_s(), MORE_ROWS_SHARE * took_s)

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
        interrupted = run_trials(job, study, parallelism, watch)
        if finish is not None:
            finish(interrupted)
        return interrupted
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
