"""Which models to average, with which weights: greedy selection with replacement.

Caruana et al., "Ensemble selection from libraries of models" (ICML 2004): begin with the best few, add the
model that improves the average most, as often as that helps; bags of the candidates lessen overfitting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[np.float64]
"""What a model says of rows: (rows,) values, or (rows, classes) probabilities."""
ScoreFunction = Callable[[NDArray[Any], Outputs], float]
"""The score of outputs for rows whose truth is known; larger is better."""

_STEPS, _BAGS, _BAG_SHARE, _FIRST = 20, 4, 0.6, 4
_LEAST_WEIGHT, MOST_MEMBERS = 0.04, 8
"""A member that counts less, or comes after so many others, costs more to predict than it brings."""
_TIE = 1e-9
PARTS = 4
"""Into so many parts rows are cut to judge weights by rows that did not choose them."""


@dataclass(frozen=True, eq=False)
class OutOfFoldOutputs:
    """What models say of rows that none of them was trained on, what is true there, and what counts.

    `outputs` are (models, rows) or (models, rows, classes). `rows` are the numbers of the rows
    where one may be there several times, as it was judged by several repeats of the folds.
    """

    outputs: Outputs
    actual: NDArray[Any]
    score: ScoreFunction
    rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.outputs)

    def at(self, rows: NDArray[Any]) -> OutOfFoldOutputs:
        """The same models on some of the rows."""
        numbers = None if self.rows is None else self.rows[rows]
        return replace(self, outputs=self.outputs[:, rows], actual=self.actual[rows], rows=numbers)

    def weighted(self, weights: Outputs) -> Outputs:
        """The weighted average of what they say."""
        used = np.flatnonzero(weights)
        return np.asarray(np.tensordot(weights[used], self.outputs[used], axes=1))

    def score_of(self, outputs: Outputs) -> float:
        return self.score(self.actual, outputs)

    def ranking(self) -> list[int]:
        """The models by their own scores, the best first."""
        scores = [self.score_of(one) for one in self.outputs]
        return [int(place) for place in np.argsort(-np.asarray(scores), kind="stable")]


def select_weights(candidates: OutOfFoldOutputs, rng: np.random.Generator) -> Outputs:
    """The weight of each model, from 0 to 1, together 1.

    A single model has all the weight where no average is better than it on these rows.

    >>> truth = np.array([0.0, 1.0, 2.0, 3.0])
    >>> furthest = lambda y, p: -np.abs(y - p).max()
    >>> low_and_high = OutOfFoldOutputs(np.array([truth - 1, truth + 1]), truth, furthest)
    >>> select_weights(low_and_high, np.random.default_rng(0))
    array([0.5, 0.5])
    """
    order = candidates.ranking()
    best = np.zeros(len(order))
    best[order[0]] = 1.0
    bags = [_greedy(candidates, order)]
    size = max(2, round(_BAG_SHARE * len(order)))
    for _ in range(_BAGS if len(order) > size else 0):
        drawn = set(rng.choice(len(order), size, replace=False).tolist())
        bags.append(_greedy(candidates, [one for one in order if one in drawn]))
    found = _without_trifles(np.mean(bags, axis=0))
    # Of equals the one with fewer members: a single model, then one walk, then the average of all.
    ranked = sorted((best, bags[0], found), key=np.count_nonzero)
    return max(ranked, key=lambda weights: round(candidates.score_of(candidates.weighted(weights)) / _TIE))


def cross_fitted(candidates: OutOfFoldOutputs, rng: np.random.Generator) -> Outputs:
    """For every row what an ensemble says whose weights were chosen by other rows."""
    found = np.empty(candidates.outputs.shape[1:])
    row = _row_places(candidates)
    part = rng.permutation(row.max() + 1) % PARTS
    for number in range(PARTS):
        here = part[row] == number
        if here.any():
            weights = select_weights(candidates.at(~here), rng)
            found[here] = candidates.at(here).weighted(weights)
    return found


@dataclass(frozen=True)
class ScoreDifference:
    """By how much one model's score is above another's on the same rows, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether it is better beyond chance."""
        return self.low > 0


def score_difference(
    one: Outputs, other: Outputs, judged_by: OutOfFoldOutputs, rng: np.random.Generator, samples: int = 300
) -> ScoreDifference:
    """One model beside another by a paired bootstrap: both are judged by the same drawn rows."""
    actual, score = judged_by.actual, judged_by.score
    row = _row_places(judged_by)
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row)
    starts = np.cumsum(counts) - counts
    drawn = []
    for _ in range(samples):
        chosen = rng.integers(len(counts), size=len(counts))
        sizes = counts[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = order[np.repeat(starts[chosen], sizes) + within]
        drawn.append(score(actual[rows], one[rows]) - score(actual[rows], other[rows]))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return ScoreDifference(judged_by.score_of(one) - judged_by.score_of(other), float(low), float(high))


def _row_places(candidates: OutOfFoldOutputs) -> NDArray[np.int64]:
    """Which of the different rows each is, from 0."""
    if candidates.rows is None:
        return np.arange(len(candidates.actual))
    return np.unique(candidates.rows, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _greedy(candidates: OutOfFoldOutputs, order: Sequence[int]) -> Outputs:
    """The weights at the best moment of one walk; `order` has those who may join, the best first."""
    counts = np.zeros(len(candidates))
    best, best_score = counts, -np.inf
    total = np.zeros(candidates.outputs.shape[1:])
    for chosen in _walk(candidates, order, total):
        counts = counts.copy()
        counts[chosen] += 1
        reached = candidates.score_of(total / counts.sum())
        if reached > best_score + _TIE:
            best, best_score = counts, reached
    return np.asarray(best / best.sum())


def _walk(candidates: OutOfFoldOutputs, order: Sequence[int], total: Outputs) -> Iterator[int]:
    """The members in the order in which they join; `total` is the sum of what they say by then."""
    inside: list[int] = []
    while len(inside) < _STEPS:
        if not inside:
            joining = list(order[: _first(candidates, order)])
        else:
            # Those inside come first: of equals the first is taken, which adds no member.
            free = [*dict.fromkeys(inside), *(one for one in order if one not in inside)]
            sums = (total + candidates.outputs[one] for one in free)
            scores = np.array([candidates.score_of(each / (len(inside) + 1)) for each in sums])
            joining = [free[int(np.argmax(scores > scores.max() - _TIE))]]
        for one in joining:
            total += candidates.outputs[one]
            inside.append(one)
            yield one


def _first(candidates: OutOfFoldOutputs, order: Sequence[int]) -> int:
    """With how many of the best to begin: as many as their plain average is best with."""
    averages = {
        count: candidates.score_of(candidates.outputs[list(order[:count])].mean(axis=0))
        for count in range(1, min(_FIRST, len(order)) + 1)
    }
    return max(averages, key=lambda count: averages[count])


def _without_trifles(weights: Outputs) -> Outputs:
    """The weights of the members that matter."""
    kept = np.argsort(-weights, kind="stable")[:MOST_MEMBERS]
    found = np.zeros(len(weights))
    found[kept] = weights[kept] / weights[kept].sum()
    found[found < _LEAST_WEIGHT] = 0.0
    return np.asarray(found / found.sum())
