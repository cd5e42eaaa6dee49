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

    objective = _Objective(Z, loss, outputs, intercepts is not None, penalty)
    start = np.zeros(objective.parts * objective.size + objective.free)
    if intercepts is not None:
        start[objective.parts * objective.size :] = intercepts
    bounds = [(0.0, None)] * (2 * objective.size) + [(None, None)] * objective.free
    options = {
        "maxiter": most_steps,
        "ftol": tolerance,
        "gtol": tolerance * 0.1,
        "maxfun": 20 * most_steps + 20,
    }
    if most_steps == 0:
        return objective.split(start)
    found = minimize(
        objective.value_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds if objective.parts == 2 else None,
        options=options,
    )
    return objective.split(found.x)


class _Objective:
    """Loss and penalty as a function of one vector: the weights, or u and v of them, then the intercepts."""

    def __init__(
        self, Z: Vector, loss: Loss, outputs: int, has_intercepts: bool, penalty: ElasticNetPenalty
    ) -> None:
        self._Z, self._loss, self._outputs = Z, loss, outputs
        self.size = Z.shape[1] * outputs
        self.free = outputs if has_intercepts else 0
        self.parts = 2 if penalty.absolute > 0 else 1
        root = np.ones(Z.shape[1]) if penalty.scales is None else np.sqrt(penalty.scales)
        self._absolute = np.repeat(penalty.absolute * root, outputs)
        self._square = penalty.square * (root**2)[:, None]

    def split(self, x: Vector) -> tuple[Vector, Vector]:
        """Weights (features, outputs) and intercepts."""
        size = self.size
        weights = x[:size] - x[size : 2 * size] if self.parts == 2 else x[:size]
        shift = x[self.parts * size :] if self.free else np.zeros(self._outputs)
        return weights.reshape(-1, self._outputs), shift

    def value_and_slope(self, x: Vector) -> tuple[float, Vector]:
        weights, shift = self.split(x)
        value, slopes = self._loss(self._Z @ weights + shift)
        value += float((self._square * weights**2).sum()) / 2
        slope = (self._Z.T @ slopes / len(self._Z) + self._square * weights).ravel()
        pieces = [slope]
        if self.parts == 2:
            value += float(self._absolute @ (x[: self.size] + x[self.size : 2 * self.size]))
            pieces = [slope + self._absolute, self._absolute - slope]
        if self.free:
            pieces.append(slopes.sum(axis=0) / len(self._Z))
        return value, np.concatenate(pieces)
