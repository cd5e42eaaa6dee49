"""What a report draws of a model: where it errs, what it looks at, how it learned; all as plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING
from prudent.training.engines.fit_task import LearningCurve
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.models.metrics import confusion, silhouettes

if TYPE_CHECKING:
    from prudent.training.engines.fitted_transforms import FittedTransform

MOST_POINTS = 2000
"""Rows that a chart shows."""
_FEATURES = 30  # bars that a chart can show


def prediction_figures(
    scorer: Scorer,
    predicted: NDArray[Any],
    actual: NDArray[Any] | None,
    X: NDArray[Any] | None,
    labels: Sequence[Any],
) -> dict[str, Any]:
    """What there is to draw of predictions; X is needed for clusters only, `actual` for all others."""
    some = _spread_places(len(predicted))
    if X is not None and scorer.task == CLUSTERING:
        return silhouette_figure(predicted[some], silhouettes(X, predicted)[some])
    assert actual is not None
    if scorer.task == CLASSIFICATION:
        return confusion_figure(confusion(actual, predicted, scorer.classes), labels)
    return residuals_figure(predicted[some], actual[some])


FOLDS, TEST = "folds", "test"
"""Which rows a picture is of: those that folds held out in turn, or the test part; else those held out."""


def judged_figures(
    scorer: Scorer, said: Predictions, labels: Sequence[Any], of: str = FOLDS
) -> dict[str, Any]:
    """What there is to draw of predictions for rows that their models had not seen, each row once.

    Of clusters there is nothing.
    """
    if said.actual is None or scorer.task == CLUSTERING:
        return {}
    once = said.once()
    return {**prediction_figures(scorer, once.predicted, once.actual, None, labels), "of": of}


def confusion_figure(counts: NDArray[np.int64], labels: Sequence[Any]) -> dict[str, Any]:
    return {"confusion": {"labels": list(labels), "counts": counts.tolist()}}


def residuals_figure(predicted: NDArray[Any], actual: NDArray[Any]) -> dict[str, Any]:
    return {"residuals": {"predicted": rounded(predicted), "actual": rounded(actual)}}


def silhouette_figure(clusters: NDArray[Any], values: NDArray[Any]) -> dict[str, Any]:
    return {"silhouette": {"cluster": clusters.astype(np.int64).tolist(), "value": rounded(values)}}


def importance_figure(
    weights: NDArray[np.float64], transforms: Sequence[FittedTransform], names: Sequence[str]
) -> dict[str, Any]:
    """The features that weigh most, as shares of the whole; `names` are the columns before the transforms."""
    for transform in transforms:
        names = transform.names(names)
    total = float(weights.sum())
    shares = weights / total if total > 0 else weights
    first = np.argsort(-shares, kind="stable")[:_FEATURES]
    return {"importance": {"feature": [names[place] for place in first], "value": rounded(shares[first])}}


def learning_curve_figures(curve: LearningCurve) -> dict[str, Any]:
    return {
        "curve": {"step": list(curve.step), "train": list(curve.train), "validation": list(curve.validation)},
        "stopped": {"best": curve.best_step, "of": curve.most_steps, "why": curve.stop_reason},
    }


def rounded(values: NDArray[Any]) -> list[float]:
    """Six digits are more than a chart shows, and make a third of the file."""
    return [float(f"{value:.6g}") for value in values]


def _spread_places(rows: int) -> NDArray[np.int64]:
    """Places of rows enough for a chart, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, MOST_POINTS)).astype(np.int64))
