"""The recommended model looked at closer, and its data looked through for leaks, once a search has ended."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.data.dataset import Column
from prudent.training.engines.engine import ReadableSession, TrainingSession, TrialSpec, UnseenRows
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.ensembles.build import score_function
from prudent.training.ensembles.graph import outputs_of, raw_predictor
from prudent.training.ensembles.selection import OutOfFoldOutputs
from prudent.training.insight.insight import InsightQuestion, insight_of
from prudent.training.insight.leakage import column_powers, leakage_warnings, thinned
from prudent.training.insight.more_rows import FRACTIONS, RowsCurve, rows_curve
from prudent.training.leaderboard import ENSEMBLE, LeaderboardEntry
from prudent.tuning.trial import Outcome

_MOST_CELLS, _MOST_JUDGED = 4_000_000, 5000
_CURVE_SHARE = 2.0
"""A model on a quarter and one on half of the rows take less than so many times one on all of them."""


@dataclass(frozen=True, eq=False)
class Examination:
    """A session whose search has ended, and for how long its leader may be looked at."""

    session: ReadableSession
    scorer: Scorer
    columns: Sequence[Column]
    classes: tuple[Any, ...]
    seed: int
    look_s: float = 2.0
    train_s: float = 0.0
    """How long models may be trained to see whether more rows would help."""

    def examine(self, leader: LeaderboardEntry) -> tuple[str, ...]:
        """Write `insight.json` into the leader's folder, and answer what is suspicious about the data.

        It is to be called while the model is one of trials: not trained on the rows that judged it.
        """
        told = Predictions.read(Path(leader.model_path))
        if told is None:
            return ()
        once = self._spread(told.once())
        judged, test = self.session.rows_of(once.rows), self.session.test_rows()
        if judged is None:
            return ()
        ends_s = time.monotonic() + self.look_s
        learned = self._learned(told, test)
        powers = dict(
            column_powers(thinned(learned), self.columns, lambda: time.monotonic() > ends_s - self.look_s / 2)
        )
        warnings = leakage_warnings(learned, _joined(judged, test), self.columns, powers)
        some = np.unique(np.linspace(0, len(once) - 1, min(len(once), _MOST_JUDGED)).astype(np.int64))
        last = np.isin(once.rows, told.rows[told.split == told.split.max()])
        question = InsightQuestion(
            raw_predictor(Path(leader.model_path), self.scorer.classes),
            _joined(judged.at(last), test),
            self.columns,
            self.classes,
            score_function(self.scorer),
            self.seed,
            False,
            judged.at(some),
            outputs_of(
                once.predicted[some],
                None if once.probabilities is None else once.probabilities[some],
                self.scorer.classes,
            ),
            once.probabilities is not None,
        )
        found = insight_of(
            question, powers, leader.predict_ms, self.look_s, lambda: time.monotonic() > ends_s
        )
        replace(found, more_rows=self.rows_curve(leader, told)).write(Path(leader.model_path))
        return warnings

    def _learned(self, told: Predictions, test: UnseenRows | None) -> UnseenRows:
        """Rows that models have learned from, as many as can be looked through."""
        # In folds every row is learned from by some model, and judged by another.
        apart = [told.rows] if told.split.max() == 0 else []
        apart += [] if test is None else [test.rows]
        every = np.arange(self.session.shape.rows)
        numbers = np.setdiff1d(every, np.concatenate(apart)) if apart else every
        found = self.session.rows_of(numbers[self._places(len(numbers))])
        assert found is not None
        return found

    def _spread(self, told: Predictions) -> Predictions:
        """Predictions for no more rows than can be looked at."""
        return told.at(self._places(len(told)))

    def _places(self, rows: int) -> NDArray[np.int64]:
        most = max(_MOST_CELLS // max(len(self.columns), 1), 1)
        return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64))

    def rows_curve(self, leader: LeaderboardEntry, told: Predictions) -> RowsCurve | None:
        """The leader trained on parts of the rows, if there is time for it."""
        if (
            leader.algorithm == ENSEMBLE
            or leader.fraction < 1
            or leader.train_s * _CURVE_SHARE > self.train_s
        ):
            return None
        folder = Path(leader.model_path).with_name("more-rows")
        parts = []
        try:
            for fraction in FRACTIONS:
                transforms = {name: said for name, said in leader.transforms.items() if name != "sample"}
                spec = TrialSpec(
                    leader.trial,
                    leader.algorithm,
                    leader.hyperparameters,
                    transforms,
                    fraction,
                    self.seed,
                    folder,
                    self.train_s,
                )
                found = Predictions.read(folder) if _run(self.session, spec) else None
                if found is None or not np.array_equal(found.rows, told.rows):
                    return None
                parts.append(found)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        outputs = [
            outputs_of(each.predicted, each.probabilities, self.scorer.classes) for each in (*parts, told)
        ]
        assert told.actual is not None
        models = OutOfFoldOutputs(np.stack(outputs), told.actual, score_function(self.scorer), told.rows)
        every = leader_rows(leader)
        rows = [*(round(fraction * every) for fraction in FRACTIONS), every]
        return rows_curve(rows, models, rng_for(self.seed, "more rows"))


def leader_rows(leader: LeaderboardEntry) -> int:
    """How many rows the leader was trained on when it was judged."""
    from prudent.training.models.description import read_facts

    return read_facts(Path(leader.model_path)).rows_trained


def _run(session: TrainingSession, spec: TrialSpec) -> bool:
    """Train a model to its end; False if it failed or took too long."""
    run = session.start(spec)
    limit_s = spec.limit_s or 0.0
    while True:
        event = run.next(limit_s)
        if event is None:
            run.cut(limit_s, "it took too long")
            return False
        if isinstance(event, Outcome):
            return event.status == "finished"


def _joined(rows: UnseenRows, more: UnseenRows | None) -> UnseenRows:
    if more is None:
        return rows
    return UnseenRows(
        np.concatenate([rows.X, more.X]),
        np.concatenate([rows.y, more.y]),
        np.concatenate([rows.rows, more.rows]),
    )
