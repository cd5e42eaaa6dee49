"""Bagged random trees: a quick regression model for few samples that says how sure it is.

The trees' answers at a point are read as a Gaussian (Lynceus, Nephele). What sets this implementation
apart from a library's forest is the look-ahead: thousands of "what if this run came out so?" per decision,
each with the answers of an ensemble refitted to it, at the price of the few nodes that it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prudent.core.errors import BadInput
from prudent.tuning.surrogates import tree_growth
from prudent.tuning.surrogates.tree_splits import GOLDEN, Array, mixed

_LARGEST = 1e100
_POISSON = np.cumsum(np.exp(-1.0) / np.cumprod([1.0, *range(1, 13)]))
_BAGGING = np.uint64(0xA0761D6478BD642F)


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """An ensemble of regression trees, fitted on construction and never changed.

    Each tree grows on a bootstrap of the samples (Poisson(1) copies of each), draws a cut of two thirds of
    the features in each node, takes the one by which the variance falls most, and is not pruned. `predict`
    gives the mean and the sample deviation of the trees' answers, the variance no smaller than
    `variance_floor`.

    The generator gives one number, the seed; all else follows from it: the same data, settings and seed
    make the same trees, in any thread and whatever was computed before. Candidates and fantasies may come
    in any order without a change to their answers; the order of samples and features matters as a seed does.

    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> trees = Trees.fit(X, np.array([1.0, 2.0, 3.0, 4.0]), np.random.default_rng(7))
    >>> mean, std = trees.predict(X)
    >>> bool(mean[0] < mean[3]), mean.shape, bool((std > 0).all())
    (True, (4,), True)
    """

    samples: tuple[Array, Array, Array]  # x (d, n), y (n,), weight (t, n)
    nodes: tuple[Array, Array, Array, Array]  # rows, links, levels, keys, as in `tree_growth`
    bare: Array  # (t,) the trees whose bootstrap drew nothing, which stand on all samples
    variance_floor: float

    @classmethod
    def fit(
        cls,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        n_trees: int = 10,
        variance_floor: float | None = None,
    ) -> Trees:
        """Fit to samples X (n, d) with answers y (n,).

        Args:
            rng: asked for one number.
            variance_floor: the least variance of a prediction, for where all trees agree; 0.0001 of the
                variance of y unless said.
        """
        x, y = _matrix("X", X), _vector("y", y)
        if y.shape[0] != x.shape[1] or x.size == 0:
            raise BadInput(
                f"X has {x.shape[1]} rows and y {y.shape[0]} values; give both for each of 1 or more samples."
            )
        if n_trees < 1:
            raise BadInput(f"{n_trees} trees cannot answer; give at least 1.")
        floor = 1e-4 * float(np.var(y)) + 1e-12 if variance_floor is None else float(variance_floor)
        if not 0.0 < floor < np.inf:
            raise BadInput(f"The variance floor is {variance_floor}; give a positive number.")
        roots = mixed(
            rng.integers(2**63, dtype=np.uint64) + np.arange(1, n_trees + 1, dtype=np.uint64) * GOLDEN
        )
        weight = _weights(roots, 0, y.size)
        bare: Array = np.logical_not(weight.any(axis=1))
        weight[bare] = 1.0
        return cls((x, y, weight), _grown((x, y, weight), roots), bare, floor)

    def predict(self, Xc: Array) -> tuple[Array, Array]:
        """Mean and deviation (m,) at the candidates Xc (m, d)."""
        _, mean, std = self._placed(self._candidates(Xc))
        return mean, std

    def fantasies(self, Xf: Array, yf: Array, Xc: Array) -> tuple[Array, Array]:
        """Mean and deviation (k, m) at the candidates Xc (m, d), after a refit to each of k fantasies.

        Fantasy i is one sample more, Xf[i] with the answer yf[i]: Xf (k, d), yf (k,); or q samples more:
        Xf (k, q, d), yf (k, q). Every tree answers as that of `Trees.fit` with the same seed on the samples
        followed by the fantasy's, to the last bit. That all fantasies share their randomness is meant:
        their differences come from the fantasies, not from luck in drawing. The floor is that of the fit.

        >>> trees = Trees.fit(np.array([[0.0], [1.0]]), np.array([1.0, 2.0]), np.random.default_rng(1), 100)
        >>> mean, _ = trees.fantasies(np.array([[2.0], [2.0]]), np.array([3.0, 9.0]), np.array([[2.0]]))
        >>> bool(mean[0, 0] < mean[1, 0])
        True
        """
        xc = self._candidates(Xc)
        new_x, new_y = _additions(Xf, yf, self.samples[0].shape[0])
        (k, d, q), m = new_x.shape, xc.shape[1]
        mean, std = np.empty((k, m)), np.empty((k, m))
        if mean.size == 0:
            return mean, std
        x, y, weight = (np.concatenate([a, np.empty((*a.shape[:-1], q))], -1) for a in self.samples)
        n = self.samples[1].size
        weight[:, n:] = _weights(self.nodes[3][:, 0], n, n + q)
        bare = self.bare & weight[:, n:].any(axis=1)
        weight[self.bare & ~bare, n:] = 1.0
        t, nodes = weight.shape[0], 2 * (n + q) - 1
        tree_growth.refit_trees(
            (x, y, weight), self.nodes, bare, xc, self._placed(xc)[0], (new_x, new_y),
            np.empty((q + 2, 3), np.int32), _room_for_nodes(t, n + q),
            (np.empty(m, np.int32), np.empty((nodes, 2), np.int32)), np.empty((t, m)),
            _room(d, n + q, m), self.variance_floor, mean, std,
        )  # fmt: skip
        return mean, std

    def _candidates(self, Xc: Array) -> Array:
        xc = _matrix("the candidates", Xc)
        d = self.samples[0].shape[0]
        if xc.shape[0] != d:
            raise BadInput(
                f"The candidates have {xc.shape[0]} features, the samples {d}; give both the same."
            )
        return xc

    def _placed(self, xc: Array) -> tuple[tuple[Array, Array, Array], Array, Array]:
        _, links, levels, keys = self.nodes
        t, m = keys.shape[0], xc.shape[1]
        places = np.empty((t, m), np.int32), np.zeros((*keys.shape, 2), np.int32), np.empty((t, m))
        room = np.empty(m, np.int32), np.empty(keys.shape[1] + 1, np.int32)
        mean, std = np.empty(m), np.empty(m)
        tree_growth.predict_trees(xc, links, levels, places, room, self.variance_floor, mean, std)
        return places, mean, std


def _numbers(what: str, values: Array) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"Trees need numbers in {what}; encode words as numbers first.") from None
    if not (np.abs(array) <= _LARGEST).all():
        raise BadInput(
            f"Trees need finite numbers in {what}; drop or fill what is NaN, infinite or above 1e100."
        )
    return array


def _matrix(what: str, values: Array) -> Array:
    """Checked and feature-major: trees read one feature of many rows, never one row."""
    array = _numbers(what, values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise BadInput(f"The shape of {what} is {array.shape}; give rows x features, at least one feature.")
    return np.ascontiguousarray(array.T)


def _vector(what: str, values: Array) -> Array:
    array = _numbers(what, values)
    if array.ndim != 1:
        raise BadInput(f"The shape of {what} is {array.shape}; give one number a row.")
    return np.ascontiguousarray(array)


def _additions(Xf: Array, yf: Array, d: int) -> tuple[Array, Array]:
    """Fantasies checked and brought to (k, d, q) and (k, q)."""
    new_x, new_y = _numbers("the fantasies", Xf), _numbers("the fantasies' answers", yf)
    if new_x.ndim == 2:
        new_x, new_y = new_x[:, None], new_y[..., None]
    if new_x.ndim != 3 or new_x.shape[:2] != new_y.shape or new_x.shape[2] != d:
        raise BadInput(
            f"The fantasies have the shape {np.shape(Xf)} and their answers {np.shape(yf)}; "
            f"give (k, {d}) and (k,), or (k, q, {d}) and (k, q)."
        )
    return np.ascontiguousarray(new_x.transpose(0, 2, 1)), np.ascontiguousarray(new_y)


def _weights(roots: Array, first: int, end: int) -> Array:
    """How often the samples first..end stand in each tree's bootstrap: Poisson(1), by tree and row number."""
    rows = np.arange(first + 1, end + 1, dtype=np.uint64)
    uniform = (mixed((roots[:, None] ^ _BAGGING) + rows * GOLDEN) >> np.uint64(11)) * 2.0**-53
    weights: Array = np.searchsorted(_POISSON, uniform, side="right").astype(np.float64)
    return weights


def _room(d: int, n: int, m: int) -> tuple[Array, Array, Array]:
    return np.empty(d, np.int32), np.empty(max(n, m), np.int32), np.empty(n + 1, np.int32)


def _room_for_nodes(t: int, n: int) -> tuple[Array, Array, Array, Array]:
    nodes = 2 * n - 1
    return (
        np.empty((t, n), np.int32),
        np.empty((t, nodes, 4), np.int32),
        np.empty((t, nodes, 2)),
        np.empty((t, nodes), np.uint64),
    )


def _grown(samples: tuple[Array, Array, Array], roots: Array) -> tuple[Array, Array, Array, Array]:
    """Grow trees: to add all samples to trees that have none. One compiled function then serves both."""
    x, y, _ = samples
    (d, n), t = x.shape, roots.size
    fresh = _room_for_nodes(t, n)
    leaf = np.zeros((t, 1, 4), np.int32)
    leaf[:, :, tree_growth.FEATURE] = -1
    no_rows, nothing = np.empty((t, 0), np.int32), np.empty((t, 0))
    tree_growth.refit_trees(
        samples, (no_rows, leaf, np.zeros((t, 1, 2)), roots[:, None]), np.ones(t, np.bool_),
        np.empty((d, 0)), (no_rows, np.zeros((t, 1, 2), np.int32), nothing),
        (x[None], y[None]),
        np.empty((n + 2, 3), np.int32), fresh,
        (np.empty(0, np.int32), np.zeros((2 * n - 1, 2), np.int32)), nothing,
        _room(d, n, 0), 0.0, np.empty((1, 0)), np.empty((1, 0)),
    )  # fmt: skip
    return fresh
