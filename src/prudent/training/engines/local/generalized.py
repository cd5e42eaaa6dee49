"""Generalised linear regression by iteratively reweighted least squares, as Spark does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, RunFailed
from prudent.training.dataset import Matrix
from prudent.training.engines.local.families import Family, Link, family_of, link_of
from prudent.training.engines.local.graph import Answer, Graph
from prudent.training.engines.local.lesson import Course, Lesson
from prudent.training.engines.local.linear import ValueModel, linear_regression
from prudent.training.engines.local.moments import mean_and_deviation
from prudent.training.engines.local.solver import Line

Vector = NDArray[np.float64]
_PLAIN = {"loss": "squaredError", "elasticNetParam": 0.0, "standardization": True}


@dataclass(frozen=True, eq=False)
class GeneralizedModel:
    """The mean of the target through a link: link(mean) = line."""

    line: Line
    link: Link
    family: Family
    importance: NDArray[np.float64] | None = None
    course: Course | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        return self.family.project(self.link.mean(self.line.of(X)[:, 0]))

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: Graph, rows: str) -> Answer:
        raw = graph.flat(graph.affine(rows, self.line.weights, self.line.intercepts))
        mean = self.link.graph(graph, raw)
        low, high = self.family.bounds
        clipped = graph.add("Max", mean, graph.constant(low)) if np.isfinite(low) else mean
        clipped = graph.add("Min", clipped, graph.constant(high)) if np.isfinite(high) else clipped
        return Answer(clipped, whole=False)


def generalized_regression(lesson: Lesson, chosen: Mapping[str, Any]) -> GeneralizedModel | ValueModel:
    """Weighted least squares on a linearised target, again and again until the weights stay."""
    power = chosen["variancePower"]
    family = family_of(chosen["family"], power)
    link = link_of(chosen["family"], chosen["link"], power, chosen["linkPower"])
    if family.name == "gaussian" and link.name == "identity":
        return linear_regression(lesson, {**chosen, **_PLAIN})
    y = lesson.rows.target.astype(np.float64)
    means = family.start(y)
    X = lesson.rows.X.astype(np.float64)
    if chosen["fitIntercept"]:
        X = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    penalties = np.full(X.shape[1], chosen["regParam"])
    penalties[lesson.rows.X.shape[1] :] = 0.0
    found = _weighted(X, _linear(link, means), np.ones(len(y)), penalties)
    for _ in range(chosen["maxIter"]):
        linear = X @ found
        means = family.project(link.mean(linear))
        slopes = link.slope(means)
        before = found
        found = _weighted(
            X, linear + (y - means) * slopes, 1.0 / (slopes**2 * family.variance(means)), penalties
        )
        if np.abs(found - before).max() < chosen["tol"]:
            break
    return _model(found, lesson, chosen["fitIntercept"], link, family)


def _linear(link: Link, means: Vector) -> Vector:
    with np.errstate(all="ignore"):
        linear = link.linear(means)
    if not np.isfinite(linear).all():
        raise BadInput(f"The target has values that the {link.name} link does not take; use another link.")
    return linear


def _weighted(X: Vector, target: Vector, weights: Vector, penalties: Vector) -> Vector:
    """Least squares with the mean of squares weighted, plus the squared penalty."""
    if not (np.isfinite(target).all() and np.isfinite(weights).all() and weights.sum() > 0):
        raise RunFailed("The weights grew without bounds; set a larger regParam, or use another link.")
    weights = weights / weights.sum()
    scaled = X * weights[:, None]
    gram = scaled.T @ X
    gram[np.diag_indices_from(gram)] += penalties
    return np.asarray(np.linalg.lstsq(gram, scaled.T @ target, rcond=1e-14)[0])


def _model(found: Vector, lesson: Lesson, intercept: bool, link: Link, family: Family) -> GeneralizedModel:
    features = lesson.rows.X.shape[1]
    _, spread = mean_and_deviation(lesson.rows.X)
    line = Line(found[:features, None], found[features:] if intercept else np.zeros(1))
    return GeneralizedModel(line, link, family, np.abs(found[:features]) * spread)
