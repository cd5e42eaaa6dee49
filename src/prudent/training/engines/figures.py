"""What a report draws of a model: where it errs, what it looks at, how it learned; all as plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.engines.fit_task import FittedModel, LearningCurve, PreparedRows
from prudent.training.engines.scoring import Scorer
from prudent.training.models.metrics import confusion, silhouettes

if TYPE_CHECKING:
    from prudent.training.engines.fitted_transforms import FittedTransform

MOST_POINTS = 2000
"""Rows that a chart shows."""
_FEATURES = 30  # bars that a chart can show


def report_figures(
    scorer: Scorer,
    model: FittedModel,
    held_out: PreparedRows,
    predicted: NDArray[Any],
    transforms: Sequence[FittedTransform],
    names: Sequence[str],
    labels: Sequence[Any],
    seed: int,
) -> dict[str, Any]:
    """Everything there is to draw; `predicted` is for the held-out rows."""
    if scorer.task == CLASSIFICATION:
        figures = confusion_figure(confusion(held_out.target, predicted, scorer.classes), labels)
    elif scorer.task == REGRESSION:
        rows = _sampled_rows(len(held_out.X), seed)
        figures = residuals_figure(predicted[rows], held_out.target[rows])
    else:
        values = silhouettes(held_out.X, predicted)
        rows = _sampled_rows(len(predicted), seed)
        figures = silhouette_figure(predicted[rows], values[rows])
    if model.importance is not None:
        figures |= importance_figure(model.importance, transforms, names)
    if model.learning_curve is not None:
        figures |= learning_curve_figures(model.learning_curve)
    return figures


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


def _sampled_rows(rows: int, seed: int) -> NDArray[np.int64]:
    if rows <= MOST_POINTS:
        return np.arange(rows)
    return np.sort(rng_for(seed, "picture").choice(rows, MOST_POINTS, replace=False))
