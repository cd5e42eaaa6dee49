"""What a report draws of a model: where it errs, what it looks at, how it learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION, REGRESSION
from prudent.training.engines.fit_task import Judge, Model, PreparedRows
from prudent.training.engines.fitted_transforms import FittedTransform
from prudent.training.models.metrics import confusion, silhouettes

_POINTS = 2000
_FEATURES = 30  # bars that a chart can show


def picture(
    scorer: Judge,
    model: Model,
    held_out: PreparedRows,
    predicted: NDArray[Any],
    steps: Sequence[FittedTransform],
    names: Sequence[str],
    labels: Sequence[Any],
    seed: int,
) -> dict[str, Any]:
    """Everything there is to draw, as plain lists; `predicted` is for the held-out rows."""
    if scorer.task == CLASSIFICATION:
        counts = confusion(held_out.target, predicted, scorer.classes)
        drawn: dict[str, Any] = {"confusion": {"labels": list(labels), "counts": counts.tolist()}}
    elif scorer.task == REGRESSION:
        drawn = {"residuals": _residuals(predicted, held_out, seed)}
    else:
        drawn = {"silhouette": _silhouettes(predicted, held_out, seed)}
    if model.importance is not None:
        for step in steps:
            names = step.names(names)
        drawn["importance"] = _importance(model.importance, names)
    learning_curve = model.learning_curve
    if learning_curve is not None:
        drawn["curve"] = {
            "step": list(learning_curve.step),
            "train": list(learning_curve.train),
            "validation": list(learning_curve.validation),
        }
        drawn["stopped"] = {"best": learning_curve.best, "of": learning_curve.of, "why": learning_curve.why}
    return drawn


def _residuals(predicted: NDArray[Any], held_out: PreparedRows, seed: int) -> dict[str, list[float]]:
    rows = _some(len(held_out.X), seed)
    return {"predicted": _short(predicted[rows]), "actual": _short(held_out.target[rows])}


def _silhouettes(clusters: NDArray[Any], held_out: PreparedRows, seed: int) -> dict[str, list[float]]:
    values = silhouettes(held_out.X, clusters)
    rows = _some(len(clusters), seed)
    return {"cluster": clusters[rows].tolist(), "value": _short(values[rows])}


def _importance(weights: NDArray[np.float64], names: Sequence[str]) -> dict[str, Any]:
    """The features that weigh most, as shares of the whole."""
    total = float(weights.sum())
    shares = weights / total if total > 0 else weights
    first = np.argsort(-shares, kind="stable")[:_FEATURES]
    return {"feature": [names[number] for number in first], "value": _short(shares[first])}


def _some(rows: int, seed: int) -> NDArray[np.int64]:
    if rows <= _POINTS:
        return np.arange(rows)
    return np.sort(rng_for(seed, "picture").choice(rows, _POINTS, replace=False))


def _short(values: NDArray[Any]) -> list[float]:
    """Six digits are more than a picture shows, and make a third of the file."""
    return [float(f"{value:.6g}") for value in values]
