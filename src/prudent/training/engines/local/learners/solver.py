"""Mean loss plus elastic net, minimised as Spark's linear models are.

    minimise  mean loss(X w + b)  +  regParam * (elasticNetParam |w|₁ + (1 - elasticNetParam)/2 |w|²)

over features divided by their deviation, so that the penalty treats all alike; the intercept b is free. The
absolute part is made smooth by writing w = u - v with u, v >= 0, which L-BFGS-B bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.local.column_statistics import mean_and_deviation

Vector = NDArray[np.float64]
Loss = Callable[[Vector], tuple[float, Vector]]
"""From raw outputs (rows, outputs) to the mean loss, and each row's slope by each output."""


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """Weights (features, outputs) for features as they are, and intercepts (outputs)."""

    weights: Vector
    intercepts: Vector

    def apply(self, X: NDArray[Any]) -> Vector:
        return X.astype(np.float64) @ self.weights + self.intercepts


@dataclass(frozen=True, eq=False)
class StandardisedFeatures:
    """Features moved to mean 0 (where there is an intercept to take that up) and scaled to deviation 1.

    A constant column gets factor 0: it says nothing, and its weight is 0.
    """

    Z: Vector
    shift: Vector
    factor: Vector

    @classmethod
    def of(cls, X: NDArray[Any], centred: bool, sample: bool = True) -> StandardisedFeatures:
        """`sample` is for the deviation of a sample, n - 1 in its denominator, instead of n."""
        mean, spread = mean_and_deviation(X)
        if not sample:
            spread *= np.sqrt(max(len(X) - 1, 1) / len(X))
        shift = mean if centred else np.zeros_like(mean)
        # Rounding leaves a constant column a deviation that is tiny beside its values.
        varies = spread > 1e-7 * np.maximum(np.abs(mean), 1e-30)
        factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
        Z = X.astype(np.float64)
        Z -= shift
        Z *= factor
        return cls(Z, shift, factor)

    def unscaled(self, weights: Vector, intercepts: Vector) -> LinearFunction:
        """The same line for features as they are."""
        plain = weights * self.factor[:, None]
        return LinearFunction(plain, intercepts - self.shift @ plain)


@dataclass(frozen=True)
class ElasticNetPenalty:
    """Elastic net; `scales` weighs features by 1/deviation² where the penalty is for them as they are."""

    weight: float
    absolute_share: float
    scales: NDArray[np.float64] | None = None

    @property
    def absolute(self) -> float:
        return self.weight * self.absolute_share

    @property
    def square(self) -> float:
        return self.weight * (1.0 - self.absolute_share)


def minimise(
    Z: Vector,
    loss: Loss,
    outputs: int,
    intercepts: Vector | None,
    penalty: ElasticNetPenalty,
    most_steps: int,
    tolerance: float,
) -> tuple[Vector, Vector]:
    """Weights and intercepts; `intercepts` is where those begin, None where there are none."""
    from scipy.optimize import minimize

    rows, features = Z.shape
    size = features * outputs
    free = 0 if intercepts is None else outputs
    parts = 2 if penalty.absolute > 0 else 1
    root = np.ones(features) if penalty.scales is None else np.sqrt(penalty.scales)
    absolute, square = penalty.absolute * root[:, None], penalty.square * (root**2)[:, None]

    def split(x: Vector) -> tuple[Vector, Vector]:
        weights = x[:size] - x[size : 2 * size] if parts == 2 else x[:size]
        shift = x[parts * size :] if free else np.zeros(outputs)
        return weights.reshape(features, outputs), shift

    def objective(x: Vector) -> tuple[float, Vector]:
        weights, shift = split(x)
        value, slopes = loss(Z @ weights + shift)
        value += float((square * weights**2).sum()) / 2
        slope = Z.T @ slopes / rows + square * weights
        pieces = [slope.ravel()]
        if parts == 2:
            flat = np.broadcast_to(absolute, weights.shape).ravel()
            value += float(flat @ (x[:size] + x[size : 2 * size]))
            pieces = [slope.ravel() + flat, flat - slope.ravel()]
        if free:
            pieces.append(slopes.sum(axis=0) / rows)
        return value, np.concatenate(pieces)

    start = np.zeros(parts * size + free)
    if intercepts is not None:
        start[parts * size :] = intercepts
    bounds = [(0.0, None)] * (2 * size) + [(None, None)] * free if parts == 2 else None
    options = {
        "maxiter": most_steps,
        "ftol": tolerance,
        "gtol": tolerance * 0.1,
        "maxfun": 20 * most_steps + 20,
    }
    if most_steps == 0:
        return split(start)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return split(found.x)
