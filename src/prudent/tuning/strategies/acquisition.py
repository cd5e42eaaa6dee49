"""Expected improvement, probabilities and expected bills, in closed form.

Everything is about a Gaussian belief N(mean, std²) and is vectorised over candidates.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROOT_2PI = math.sqrt(2.0 * math.pi)


def normal_pdf(z: Array) -> Array:
    """φ(z)."""
    return np.asarray(np.exp(-0.5 * z * z) / _ROOT_2PI)


def normal_cdf(z: Array) -> Array:
    """Φ(z)."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z), dtype=np.float64)


def expected_improvement(
    mean: Array, std: Array, best: float | Array, bound: float | Array = math.inf
) -> Array:
    """E[(best - Y)⁺ · 1(Y <= bound)] for Y ~ N(mean, std²): improvement that keeps a bound on Y itself.

    (best - μ) Φ(z) + σ φ(z), z = (min(best, bound) - μ) / σ. Where the constraint is on the very quantity
    that is minimised (time = cost / price), this is exact; EI · P(constraint) would count it twice.

    >>> ei = expected_improvement(np.array([0.0]), np.array([1.0]), 0.0)
    >>> round(float(ei[0]), 4)
    0.3989
    """
    z = (np.minimum(best, bound) - mean) / std
    return np.maximum((best - mean) * normal_cdf(z) + std * normal_pdf(z), 0.0)


def expected_saving(
    mean: Array,
    std: Array,
    best: float | Array,
    bound: float | Array = math.inf,
    floor: float | Array = -math.inf,
) -> Array:
    """E[(e^best - max(e^Y, e^floor))⁺ · 1(Y <= bound)], Y ~ N(mean, std²) the logarithm of a cost.

    In dollars. A bound above `best` changes nothing; `floor` is the least
    that can be paid (a billing minimum).

    >>> saved = expected_saving(np.array([0.0]), np.array([1e-9]), math.log(3.0))
    >>> round(float(saved[0]), 6)
    2.0
    """
    std = np.minimum(std, 4.0)
    paid = np.exp(np.minimum(mean + std * std / 2.0, 300.0))

    def below(limit: float | Array) -> tuple[Array, Array]:
        z = (limit - mean) / std
        return normal_cdf(z), paid * normal_cdf(z - std)

    top, low = np.minimum(best, bound), np.minimum(np.minimum(best, bound), floor)
    (chance, spent), (chance_low, spent_low) = below(top), below(low)
    at_floor = np.exp(floor) * chance_low
    return np.maximum(np.exp(best) * chance - (spent - spent_low) - at_floor, 0.0)


def probability_below(mean: Array, std: Array, bound: float | Array) -> Array:
    """P(Y <= bound)."""
    return normal_cdf((bound - mean) / std)


def expected_bill(mean: Array, std: Array, cap: float | Array) -> Array:
    """E[min(e^Y, e^cap)], Y ~ N(mean, std²) the logarithm of the cost: what a run cut at a cap costs.

    >>> bill = expected_bill(np.array([0.0]), np.array([1e-9]), math.inf)
    >>> round(float(bill[0]), 6)
    1.0
    """
    std = np.minimum(std, 4.0)
    z = (cap - mean) / std
    below = np.exp(np.minimum(mean + std * std / 2.0, 300.0)) * normal_cdf(z - std)
    above = np.where(np.isfinite(cap), np.exp(np.minimum(cap, 300.0)), 0.0) * normal_cdf(-z)
    return np.asarray(below + above)


def hermite_nodes(count: int) -> tuple[Array, Array]:
    """Standard normal Gauss-Hermite nodes and weights that sum to 1.

    >>> nodes, weights = hermite_nodes(3)
    >>> [round(float(n), 4) for n in nodes], round(float(weights.sum()), 12)
    ([-1.7321, 0.0, 1.7321], 1.0)
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()
