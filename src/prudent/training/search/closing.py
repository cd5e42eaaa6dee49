"""What is done with the models of a search once it has ended: an ensemble of them, and a closer look."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.data.dataset import Column
from prudent.training.engines.engine import TrainingSession
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.ensembles.build import Ensemble, choose_ensemble, write_ensemble
from prudent.training.insight.examination import Examination
from prudent.training.leaderboard import LeaderboardEntry
from prudent.training.request.request import PMML, TrainingRequest

Result = TypeVar("Result")

ENSEMBLE_FOLDER = "ensemble"
_CHECKED_ROWS = 2000
_LOOK_S = 2.0
_LOOK_SHARE = 0.1
"""A closer look takes no more than this share of the time that the search took."""


class SearchClosing:
    """Ensemble and insight of one search. What cannot be made is left out: the models are there already."""

    def __init__(self, request: TrainingRequest, session: TrainingSession, folder: Path) -> None:
        self._request, self._session, self._folder = request, session, folder
        self._scorer = Scorer.of(request.domain, request.metric, session.shape.classes)
        self._ensemble: Ensemble | None = None

    def with_ensemble(self, ranked: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
        """The models, the best first, with their ensemble if there is one.

        It stands first only if it is better than the best of them beyond chance, else behind that one.
        """
        found = list(ranked)
        if not self._request.ensemble or len(found) < 2:
            return found
        entry = _unless_failed(lambda: self._built(found))
        if entry is None or self._ensemble is None:
            return found
        if self._ensemble.better.is_clear:
            return [entry, *found]
        place = next((i for i, one in enumerate(found) if i and one.score < entry.score), len(found))
        return [*found[:place], entry, *found[place:]]

    def examine(self, leader: LeaderboardEntry, took_s: float, left_s: float = 0.0) -> tuple[str, ...]:
        """Look closer at the leader, and for leaks in the data; `left_s` of training time are left."""
        if self._scorer.task not in (CLASSIFICATION, REGRESSION):
            return ()
        described = self._session.description
        examination = Examination(
            self._session,
            self._scorer,
            tuple(
                Column(str(each["name"]), str(each["kind"]), tuple(each["categories"]))
                for each in described["columns"]
            ),
            tuple(described["classes"]),
            self._request.seed,
            min(_LOOK_S, max(_LOOK_SHARE * took_s, _LOOK_S / 4)),
            left_s,
        )
        return _unless_failed(lambda: examination.examine(leader)) or ()

    def _built(self, ranked: Sequence[LeaderboardEntry]) -> LeaderboardEntry | None:
        self._ensemble = choose_ensemble(ranked, self._scorer, self._request.seed, self._session.test_rows())
        return None if self._ensemble is None else self.written(ranked)

    def written(self, ranked: Sequence[LeaderboardEntry]) -> LeaderboardEntry | None:
        """Write the ensemble that was chosen, of its members as they are now."""
        told = Predictions.read(Path(ranked[0].model_path))
        assert self._ensemble is not None
        assert told is not None
        sample = self._session.rows_of(np.unique(told.rows)[:_CHECKED_ROWS])
        if sample is None:
            return None
        trial = 1 + max(one.trial for one in ranked)
        pmml = PMML in self._request.export
        folder = self._folder / ENSEMBLE_FOLDER
        return write_ensemble(self._ensemble, folder, self._scorer, sample.X, ranked[0], trial, pmml)


def _unless_failed(make: Callable[[], Result]) -> Result | None:
    try:
        return make()
    except Exception:  # what was paid for must not be lost for what comes on top
        logging.getLogger(__name__).warning("Left out what comes on top of the models", exc_info=True)
        return None
