"""The end of a search, wherever its trials ran: choice, ensemble, a closer look, training on all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.cloud.meter import Meter
from prudent.core.money import Price
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.engines.engine import RefittingSession, TrainingSession
from prudent.training.engines.partition import share_for_test
from prudent.training.engines.predictions import PREDICTIONS_FILE
from prudent.training.engines.saved_session import SavedSession
from prudent.training.engines.scoring import Scorer
from prudent.training.insight.insight import INSIGHT_FILE
from prudent.training.leaderboard import LeaderboardEntry
from prudent.training.models.description import read_facts
from prudent.training.request.limits import RowsFile
from prudent.training.request.request import TrainingRequest
from prudent.training.search.closing import SearchClosing
from prudent.training.search.final import FinalBoard, Refit, judge, refit_s
from prudent.training.search.job import MARGIN_S
from prudent.training.search.stopping import TrialTimes
from prudent.tuning.study.study import Study

MACHINES_GONE = "the money for its machines was spent; raise the budget and continue with --resume"
MORE_ROWS_SHARE = 0.25
"""Of the time that a search took, so much more may go into whether more rows would help."""


@dataclass(frozen=True)
class EndingLimits:
    """How much time and money the end of a search may take, at which price, and who is charged.

    `whole_s` is the time until the answer is due. Of rented machines, `paid_s` tells for how long they are
    paid, and `gone` why there are none any more.
    """

    price: Price
    charge: Callable[[float], None]
    whole_s: Callable[[], float]
    left_usd: Callable[[], float] = lambda: math.inf
    rented: bool = False
    paid_s: Callable[[], float] = lambda: math.inf
    gone: str = ""
    more_rows_s: float = 0.0
    """For how long models may be trained to see whether more rows would help."""


def charge_for_ending(study: Study, price: Price) -> Callable[[float], None]:
    """What charges a study for models that are trained on all rows."""
    return lambda usd: study.charge("models on all rows", usd, price)


def rented_limits(study: Study, meter: Meter, times: TrialTimes, gone: str) -> EndingLimits:
    """The limits of an ending on rented machines: one model has all of them, and pays all of them."""
    price = Price(meter.usd_per_s * 3600.0, "", "rented machines")

    def paid_s() -> float:
        return meter.lasts_s() - MARGIN_S

    charge = charge_for_ending(study, price)
    return EndingLimits(price, charge, times.whole_s, rented=True, paid_s=paid_s, gone=gone)


class SearchEnding:
    """The end of one search; `folder` holds its trials. Without machines it does what needs none."""

    def __init__(
        self,
        request: TrainingRequest,
        session: TrainingSession,
        folder: Path,
        metric: str,
        limits: EndingLimits,
    ) -> None:
        self._request, self._folder, self._limits = request, folder, limits
        self._session: TrainingSession = SavedSession.of(session) if limits.gone else session
        self._scorer = Scorer.of(request.domain, metric, session.shape.classes)
        self._closing = SearchClosing(request, self._session, folder)

    def chosen(self, entries: Sequence[LeaderboardEntry]) -> FinalBoard:
        """The entries, the best first, with the scores to expect of them."""
        return judge(entries, self._session, self._scorer, self._request.seed)

    def final(self, entries: Sequence[LeaderboardEntry], took_s: float) -> FinalBoard:
        """The same with the ensemble, the leader looked at, and the few best trained on all rows.

        An interrupt (Ctrl-C) ends it with what there is.
        """
        try:
            return self._final(self.chosen(entries), took_s)
        except KeyboardInterrupt:
            self._session = SavedSession.of(self._session)
            return self.chosen(entries)

    def saved(self, final: FinalBoard) -> SavedSession:
        """What a session without machines must know to answer the same."""
        known = SavedSession.of(self._session)
        return replace(known, warnings=final.warnings, kept=self._closing.sample or known.kept)

    def _final(self, chosen: FinalBoard, took_s: float) -> FinalBoard:
        if not chosen.entries:
            return chosen
        session, limits, closing = self._session, self._limits, self._closing
        entries = closing.with_ensemble(chosen.entries)
        if isinstance(session, SavedSession):
            warnings = session.warnings
        else:
            warnings = closing.examine(entries[0], took_s, limits.more_rows_s)
        if self._request.refit and isinstance(session, RefittingSession):
            refit = Refit(session, self._folder, self._request.seed, limits.price, limits.charge)
            left_s = -1.0 if isinstance(session, SavedSession) else min(limits.whole_s(), limits.paid_s())
            anew = refit.entries(closing.to_refit(entries), left_s, limits.left_usd())
            entries = closing.refitted(entries, anew)
        return replace(
            chosen, entries=tuple(entries), warnings=warnings, unfinished=self._unfinished(entries[0])
        )

    # What could not be done

    def _unfinished(self, leader: LeaderboardEntry) -> str:
        """What time or money did not allow, in a sentence; nothing where all was done."""
        lacking = self._lacking(leader)
        if not lacking:
            return ""
        *others, last = lacking
        listed = f"{', '.join(others)} or {last}" if others else last
        return f"The best model was not {listed}, because {self._reason(leader)}."

    @property
    def _judged(self) -> bool:
        return self._scorer.task in (CLASSIFICATION, REGRESSION)

    def _lacking(self, leader: LeaderboardEntry) -> list[str]:
        asked, session, folder = self._request, self._session, Path(leader.model_path)
        if not isinstance(session, RefittingSession):
            return []
        found = []
        if self._limits.rented and (folder / PREDICTIONS_FILE).exists() and self._judged:
            shares = not isinstance(asked.test, RowsFile)
            if shares and share_for_test(asked.test, session.shape.rows, True) and leader.test_score is None:
                found.append("judged by the test part")
            if not (folder / INSIGHT_FILE).exists():
                found.append("looked at closer")
        if asked.refit and not read_facts(folder).refitted:
            found.append("trained on all rows")
        return found

    def _reason(self, leader: LeaderboardEntry) -> str:
        limits = self._limits
        if limits.gone:
            return limits.gone
        needed_s = refit_s(read_facts(Path(leader.model_path)), leader.fraction) / 4.0
        paid_s = min(limits.price.seconds_for(limits.left_usd()), limits.paid_s())
        if paid_s <= needed_s:
            return "the money left did not pay for it; raise the budget and continue with --resume"
        if limits.whole_s() <= needed_s:
            return "the time left was too short for it; allow more time"
        return "that failed or took too long"
