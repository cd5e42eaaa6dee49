"""What is done with the models of a search once it has ended: an ensemble of them, and a closer look."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from prudent.core.errors import PrudentError
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.data.dataset import Column
from prudent.training.engines.engine import ReadableSession, TrainingSession, UnseenRows
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.ensembles.build import Ensemble, choose_ensemble, write_ensemble
from prudent.training.insight.examination import Examination
from prudent.training.leaderboard import ENSEMBLE, LeaderboardEntry
from prudent.training.request.request import PMML, TrainingRequest
from prudent.training.search.final import rows_for_test, test_predictions, trained_rows, with_score
from prudent.training.search.selection import standard_error, widening

Result = TypeVar("Result")

ENSEMBLE_FOLDER = "ensemble"
LOOK_S = 2.0
_LOOK_SHARE = 0.1
"""A closer look takes no more than this share of the time that the search took."""
_CHECKED_ROWS = 2000


class SearchClosing:
    """Ensemble and insight of one search. What cannot be made is left out: the models are there already."""

    def __init__(self, request: TrainingRequest, session: TrainingSession, folder: Path) -> None:
        self._request, self._folder = request, folder
        self._session = session if isinstance(session, ReadableSession) else None
        self._scorer = Scorer.of(request.domain, request.metric, session.shape.classes)
        self._ensemble: Ensemble | None = None
        self.sample: UnseenRows | None = None
        """The rows on which an ensemble was compared with its members."""

    def with_ensemble(self, ranked: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
        """The models, the best first, with their ensemble if there is one.

        It stands first only if it is better than the best of them beyond chance, else behind that one.
        """
        found, session = list(ranked), self._session
        if session is None or not self._request.ensemble or len(found) < 2:
            return found
        entry = _unless_failed(lambda: self._chosen(found, session))
        if entry is None or self._ensemble is None:
            return found
        if self._ensemble.better.is_clear:
            return [entry, *found]
        place = next((i for i, one in enumerate(found) if i and one.score < entry.score), len(found))
        behind = self._told(entry, min(entry.score, found[0].score), session)  # or it would stand first
        return [*found[:place], behind, *found[place:]]

    def _chosen(
        self, ranked: Sequence[LeaderboardEntry], session: ReadableSession
    ) -> LeaderboardEntry | None:
        """The entry of an ensemble that was chosen and written, with the interval of its score."""
        unseen = session.test_rows()
        chosen = choose_ensemble(
            ranked, self._scorer, self._request.seed, lambda folder: test_predictions(folder, unseen)
        )
        if chosen is None:
            return None
        entry = self._written(chosen, ranked[0], session)
        if entry is None:
            return None
        self._ensemble = chosen
        entry = replace(entry, trial=1 + max(one.trial for one in ranked))
        return self._told(entry, entry.score, session)

    def _told(self, entry: LeaderboardEntry, score: float, session: ReadableSession) -> LeaderboardEntry:
        """The entry with that score, and the interval around it."""
        said, error = Predictions.read(Path(entry.model_path)), math.nan
        if said is not None:
            trained = trained_rows(said, session, rows_for_test(session.test_rows(), [entry]))
            widened = widening(len(np.unique(said.rows)), trained)
            error = standard_error(said, self._scorer, self._request.seed, widened)
        return with_score(entry, score, error, self._scorer)

    def to_refit(self, entries: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
        """Single models in the order in which that is worth it: members first of an ensemble that leads."""
        single = [entry for entry in entries if entry.algorithm != ENSEMBLE]
        if entries and entries[0].algorithm == ENSEMBLE:
            members = {member["trial"] for member in entries[0].members}
            single.sort(key=lambda entry: entry.trial not in members)
        return single

    def refitted(
        self, entries: Sequence[LeaderboardEntry], refitted: Sequence[LeaderboardEntry]
    ) -> list[LeaderboardEntry]:
        """The entries in their order, with what was refitted since; the ensemble is made of that anew."""
        by_trial = {entry.trial: entry for entry in refitted}
        found = [by_trial.get(entry.trial, entry) for entry in entries]
        session, chosen = self._session, self._ensemble
        if chosen is None or session is None:
            return found
        members = tuple(by_trial.get(member.trial, member) for member in chosen.members)
        anew = replace(chosen, members=members)
        leader = next(entry for entry in found if entry.algorithm != ENSEMBLE)
        for place, entry in enumerate(found):
            if entry.algorithm == ENSEMBLE:
                written = _unless_failed(lambda: self._written(anew, leader, session))
                if written is None:
                    return [one for one in found if one is not entry]
                found[place] = replace(entry, predict_ms=written.predict_ms)
        return found

    def examine(self, leader: LeaderboardEntry, took_s: float, left_s: float = 0.0) -> tuple[str, ...]:
        """Look closer at the leader, and for leaks in the data; `left_s` of training time are left."""
        session = self._session
        if session is None or self._scorer.task not in (CLASSIFICATION, REGRESSION):
            return ()
        described = session.description
        columns = tuple(
            Column(str(each["name"]), str(each["kind"]), tuple(each["categories"]))
            for each in described["columns"]
        )
        look_s = min(LOOK_S, max(_LOOK_SHARE * took_s, LOOK_S / 4))
        examination = Examination(
            session, self._scorer, columns, tuple(described["classes"]), self._request.seed, look_s, left_s
        )
        return _unless_failed(lambda: examination.examine(leader)) or ()

    def _written(
        self, chosen: Ensemble, leader: LeaderboardEntry, session: ReadableSession
    ) -> LeaderboardEntry | None:
        """Write the ensemble of its members as they are now."""
        sample = self.sample or session.rows_of(np.unique(chosen.judged.rows)[:_CHECKED_ROWS])
        if sample is None:
            return None
        self.sample = sample
        folder, pmml = self._folder / ENSEMBLE_FOLDER, PMML in self._request.export
        return write_ensemble(chosen, folder, self._scorer, sample.X, leader, pmml)


def _unless_failed(make: Callable[[], Result]) -> Result | None:
    try:
        return make()
    except PrudentError as error:  # machines that are gone, say
        logging.getLogger(__name__).info("Left out what comes on top of the models: %s", error)
        return None
    except Exception:  # what was paid for must not be lost for what comes on top
        logging.getLogger(__name__).warning("Left out what comes on top of the models", exc_info=True)
        return None
