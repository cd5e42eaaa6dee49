"""Entropy search: how much a test would tell about where the optimum on the full data lies.

p_opt(r) is the probability that representer r is the optimum, by Monte Carlo over joint posterior draws. A
test is worth E_y[KL(p_opt(. | y) || uniform)] - KL(p_opt || uniform), y by Gauss-Hermite nodes. Draws are
not made anew for every pretended outcome: each is moved to where that outcome puts it (Matheron's rule), f'
= f + g (y - y_f), g = cov(f, y) / var(y) and y_f the outcome that goes with the draw. So all tests and
outcomes share their random numbers, and one costs O(draws x representers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.strategies.acquisition import hermite_nodes
from prudent.tuning.surrogates.gp import safe_cholesky
from prudent.tuning.surrogates.kernels import compiled
from prudent.tuning.surrogates.product_gp import Indices, ProductProcess

Array = NDArray[np.float64]

Stacked = tuple[Array, Array, Array, Array, Array, Array, Array]
"""The fields of `PosteriorDraws`, several beliefs of them stacked."""

FAR = 1e30
"""Stands for infinity in compiled code, which may assume that there is none."""


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Joint draws of one belief: d at r representers, and the outcome of each of k tests that goes with each.

    values (d, r); outcomes (k, d); gain (k, r): how a surprise at a test moves the representers; centre and
    spread (k,): the predicted outcome; lower and upper (r,): where values must lie to be allowed.
    """

    values: Array
    outcomes: Array
    gain: Array
    centre: Array
    spread: Array
    lower: Array
    upper: Array


def joint_draws(
    process: ProductProcess,
    h: int,
    tests: Indices,
    representers: Indices,
    normals: Array,
    interval: tuple[Array, Array] | None = None,
) -> PosteriorDraws:
    """Draws of setting h of a process in its own units; normals (d, r + 1) are the randomness."""
    from scipy.linalg import solve_triangular

    part, unit = process.components[h], process.scale.deviation
    factor = safe_cholesky(process.between(h, representers, representers))
    cross = process.between(h, tests, representers)
    within = solve_triangular(factor, cross.T, lower=True, check_finite=False)
    variance = part.share[tests] + part.noise
    own = np.sqrt(np.maximum(variance - np.einsum("ij,ij->j", within, within), 1e-12))
    root = math.sqrt(part.variance)
    step = normals[:, :-1] @ factor.T, normals[:, :-1] @ within + normals[:, -1:] * own
    mean = part.mean * unit + process.scale.mean + process.offset
    none = np.full(len(representers), FAR)
    lower, upper = interval or (-none, none)
    return PosteriorDraws(
        mean[representers] + root * unit * step[0],
        np.ascontiguousarray((mean[tests] + root * unit * step[1]).T),
        np.ascontiguousarray(cross / variance[:, None]),
        mean[tests],
        root * unit * np.sqrt(variance),
        np.clip(lower, -FAR, FAR),
        np.clip(upper, -FAR, FAR),
    )


def information(beliefs: Sequence[PosteriorDraws], sign: float, offset: Array, nodes: int) -> Array:
    """Expected information (k,) of each test about the optimum, beyond what is known.

    beliefs[0] is the objective's: sign · (value + offset) is what is maximised, offset (r,). The optimum is
    sought among the representers whose values lie within the bounds of every belief; where none
    does, it is the one that misses them by least. One belief without bounds: the entropy search of the paper.
    """
    points, weights = joint_nodes(len(beliefs), nodes)
    stacked = _stacked(beliefs)
    now = _expected_kl(_untouched(stacked), sign, offset, points[:1], np.ones(1))
    return np.asarray(_expected_kl(stacked, sign, offset, points, weights)) - float(now[0])


def _stacked(beliefs: Sequence[PosteriorDraws]) -> Stacked:
    return (
        np.stack([belief.values for belief in beliefs]),
        np.stack([belief.outcomes for belief in beliefs]),
        np.stack([belief.gain for belief in beliefs]),
        np.stack([belief.centre for belief in beliefs]),
        np.stack([belief.spread for belief in beliefs]),
        np.stack([belief.lower for belief in beliefs]),
        np.stack([belief.upper for belief in beliefs]),
    )


def _untouched(stacked: Stacked) -> Stacked:
    """One test that tells nothing: what is known now, by the same draws."""
    values, outcomes, gain, centre, spread, lower, upper = stacked
    nothing = np.zeros_like(gain[:, :1])
    return values, outcomes[:, :1], nothing, centre[:, :1], spread[:, :1], lower, upper


def joint_nodes(beliefs: int, nodes: int) -> tuple[Array, Array]:
    """Standard normal nodes (m, beliefs) and weights (m,): Gauss-Hermite's for one, a cross for several.

    >>> points, weights = joint_nodes(2, 3)
    >>> points.shape, round(float(weights @ points[:, 0] ** 2), 12)
    ((5, 2), 1.0)
    """
    if beliefs == 1:
        line, weights = hermite_nodes(nodes)
        return line[:, None], weights
    # Unscented: the mean, and two points along each axis that match the variance.
    reach = math.sqrt(beliefs + 1.0)
    cross = np.concatenate([np.zeros((1, beliefs)), reach * np.eye(beliefs), -reach * np.eye(beliefs)])
    return cross, np.array([1.0 / (beliefs + 1.0), *([0.5 / (beliefs + 1.0)] * (2 * beliefs))])


@compiled
def _expected_kl(
    stacked: Stacked,
    sign: float,
    offset: Array,
    points: Array,
    weights: Array,
) -> Array:
    """E KL(p_opt || uniform) (k,) over the nodes, for draws stacked by belief."""
    values, outcomes, gain, centre, spread, lower, upper = stacked
    beliefs, count, size = values.shape
    tests = centre.shape[1]
    out = np.zeros(tests)
    wins, worth, room = np.zeros(size), np.empty(size), np.empty(size)
    for k in range(tests):
        for j in range(len(points)):
            wins[:] = 0.0
            for d in range(count):
                room[:] = FAR
                # From the last to the first: what is left in `worth` is the objective's.
                for b in range(beliefs - 1, -1, -1):
                    surprise = centre[b, k] + spread[b, k] * points[j, b] - outcomes[b, k, d]
                    for r in range(size):
                        value = values[b, d, r] + gain[b, k, r] * surprise
                        worth[r] = value
                        room[r] = min(room[r], upper[b, r] - value, value - lower[b, r])
                best = -2.0 * FAR
                for r in range(size):
                    allowed = sign * (worth[r] + offset[r])
                    worth[r] = allowed if room[r] >= 0.0 else 1e-6 * FAR * room[r] - 1e-3 * FAR
                    best = max(best, worth[r])
                place = 0
                while worth[place] < best:
                    place += 1
                wins[place] += 1.0
            out[k] += weights[j] * _kl(wins, count)
    return out


@compiled
def _kl(wins: Array, count: int) -> float:
    """KL(wins / count || uniform)."""
    total = math.log(len(wins))
    for r in range(len(wins)):
        if wins[r] > 0.0:
            total += wins[r] / count * math.log(wins[r] / count)
    return total


def information_of_marginals(
    mean: Array, std: Array, weights: Array, now: tuple[Array, Array], normals: Array
) -> Array:
    """The same (k,) for a model that only gives marginals (trees): representers are drawn independently.

    mean, std (k, nodes, r): after each test and outcome, the sign turned so that more is better; now: mean
    and std (r,) before; normals (d, r) are shared by all.
    """
    count = len(normals)
    known = _marginal_kl(now[0][None], now[1][None], normals, count)[0]
    flat = _marginal_kl(mean.reshape(-1, mean.shape[-1]), std.reshape(-1, std.shape[-1]), normals, count)
    return np.asarray(flat.reshape(mean.shape[:2]) @ weights - known)


@compiled
def _marginal_kl(mean: Array, std: Array, normals: Array, count: int) -> Array:
    out, size = np.zeros(len(mean)), mean.shape[1]
    wins, worth = np.zeros(size), np.empty(size)
    for k in range(len(mean)):
        wins[:] = 0.0
        for d in range(count):
            best, place = -2.0 * FAR, 0
            for r in range(size):
                worth[r] = mean[k, r] + std[k, r] * normals[d, r]
                best = max(best, worth[r])
            while worth[place] < best:
                place += 1
            wins[place] += 1.0
        out[k] = _kl(wins, count)
    return out
