"""Everything that is told of the recommended model beside its score, as `insight.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.seeds import rng_for
from prudent.training.data.dataset import Column
from prudent.training.engines.engine import UnseenRows
from prudent.training.ensembles.selection import Outputs, ScoreFunction
from prudent.training.insight.calibration import Reliability, ReliabilityBin, reliability
from prudent.training.insight.dependence import PartialDependence, partial_dependence
from prudent.training.insight.importance import (
    ColumnImportance,
    PermutationImportance,
    Predict,
    permutation_importance,
)
from prudent.training.insight.leakage import thinned
from prudent.training.insight.more_rows import RowsCurve, RowsPoint
from prudent.training.insight.segments import Segment, row_errors, weak_segments

INSIGHT_FILE = "insight.json"
_MOST_ROWS, _FEWEST_ROWS = 2000, 200
_LEADING = 4  # columns that are looked at closer
_PASSES = 3  # of all columns, for which there is to be time


@dataclass(frozen=True, eq=False)
class InsightQuestion:
    """A model with what can be known of it.

    `rows` are raw rows that it can be tried on; `seen` says that it learned from them. `told` is what it
    said, not having seen them, of the rows `judged`; None where nobody knows.
    """

    predict: Predict
    rows: UnseenRows
    columns: Sequence[Column]
    classes: tuple[Any, ...]
    score: ScoreFunction
    seed: int
    seen: bool = False
    judged: UnseenRows | None = None
    told: Outputs | None = None
    probable: bool = True
    """Whether what it says of classes are probabilities."""


@dataclass(frozen=True)
class ModelInsight:
    """What a model looks at and where it errs; what there was no time or no reason for is empty."""

    importance: PermutationImportance | None = None
    dependences: tuple[PartialDependence, ...] = ()
    reliability: Reliability | None = None
    segments: tuple[Segment, ...] = ()
    more_rows: RowsCurve | None = None
    seen: bool = False

    def write(self, folder: Path) -> None:
        """Write `insight.json` into a model's folder."""
        said = json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)
        (folder / INSIGHT_FILE).write_text(said, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ModelInsight | None:
        """That of a folder; None where there is none, or none that can be read."""
        try:
            return _of_json(json.loads((folder / INSIGHT_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def insight_of(
    question: InsightQuestion,
    powers: Mapping[int, float],
    predict_ms: float,
    budget_s: float,
    is_over: Callable[[], bool],
) -> ModelInsight:
    """Look at a model for about `budget_s`, in which so many rows are predicted as `predict_ms` each allows.

    `powers` say what each column alone predicts: the strongest come first, should time be short.
    """
    columns = question.columns
    tries = max(budget_s * 1000 / max(predict_ms * _PASSES * len(columns), 1e-6), _FEWEST_ROWS)
    rows = thinned(question.rows, int(min(tries, _MOST_ROWS)))
    order = sorted(range(len(columns)), key=lambda place: -powers.get(place, 0.0))
    importance = permutation_importance(
        question.predict,
        rows.X,
        rows.y,
        [(place, columns[place].name) for place in order],
        question.score,
        rng_for(question.seed, "importance"),
        is_over,
    )
    places = {column.name: place for place, column in enumerate(columns)}
    leading = [places[one.column] for one in importance.columns if one.value > 0][:_LEADING]
    rng = rng_for(question.seed, "dependence")
    drawn = [
        partial_dependence(question.predict, rows.X, place, columns[place], question.classes, rng)
        for place in leading[: max(1, sum(one.matters for one in importance.columns))]
        if not is_over()
    ]
    return ModelInsight(
        importance,
        tuple(one for one in drawn if one is not None),
        _reliability(question),
        _segments(question, leading),
        None,
        question.seen,
    )


def _reliability(question: InsightQuestion) -> Reliability | None:
    if not question.classes or not question.probable or question.judged is None or question.told is None:
        return None
    return reliability(question.told, question.judged.y.astype(np.int64), question.classes)


def _segments(question: InsightQuestion, leading: Sequence[int]) -> tuple[Segment, ...]:
    if question.judged is None or question.told is None:
        return ()
    errors = row_errors(question.told, question.judged.y)
    return weak_segments(errors, question.judged.X, question.columns, leading)


def _of_json(said: Mapping[str, Any]) -> ModelInsight:
    importance, trust, curve = said["importance"], said["reliability"], said["more_rows"]
    return ModelInsight(
        None
        if importance is None
        else PermutationImportance(
            **{**importance, "columns": tuple(ColumnImportance(**one) for one in importance["columns"])}
        ),
        tuple(
            PartialDependence(
                one["column"],
                tuple(one["values"]),
                tuple(tuple(curve) for curve in one["answers"]),
                tuple(one["classes"]),
            )
            for one in said["dependences"]
        ),
        None
        if trust is None
        else Reliability(**{**trust, "bins": tuple(ReliabilityBin(**one) for one in trust["bins"])}),
        tuple(Segment(**one) for one in said["segments"]),
        None
        if curve is None
        else RowsCurve(**{**curve, "points": tuple(RowsPoint(**one) for one in curve["points"])}),
        bool(said["seen"]),
    )
