"""A size predicted from earlier runs of a program and the size of its input, one run after the other.

Several simple predictors answer: the mean, the median, a line through input sizes, and the nearest
neighbours. Their answers are averaged in logarithms; each weighs by how far off it was so far, on the program
itself and, while little is known of that, on all programs. What the average was off by, on runs that it had
not seen, is the distribution of its error: it gives the interval, and the offsets of a first attempt and of
its retry with the least expected waste. The idea is that of Sizey (Bader et al., CLUSTER 2024); the
predictors, the weights and the rule of the offset are simpler.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LOW, HIGH = 0.05, 0.95
"""The interval that is told holds nine in ten."""

_PRIOR_DEVIATION = 0.1
"""Before anything is known, two runs of a program are taken to differ by a tenth."""

_PRIOR_WEIGHT, _OTHERS_WEIGHT, _FADES_OVER = 1.0, 4.0, 4.0
"""So many runs the prior counts for, and the errors on all programs together; half as many after four."""

_FLOOR, _SHARP = 0.005, 8.0
_NEIGHBOURS = 3
_KEPT = 500
"""The latest runs of a program that are looked at, and the latest errors of all programs."""

_SHARES = np.array(
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 0.99, 1.0]
)
"""Offsets are sought above these quantiles of the errors."""

_MARGIN = 1e-3
_PRIOR_QUANTILES = np.array([-1.645, -1.036, -0.674, -0.385, -0.126, 0.126, 0.385, 0.674, 1.036, 1.645])
"""Those of the normal distribution, for ten equal parts."""


@dataclass(frozen=True)
class Prediction:
    """What a run is expected to take, the interval of nine in ten, and how much to give it.

    `given` and `retry` are what to give the first attempt, and the second one if the first had too little, so
    that the least is wasted. `runs` counts the earlier runs that it was learned from.
    """

    expected: float
    low: float
    high: float
    given: float
    retry: float
    runs: int


@dataclass
class _History:
    """The runs of one program, latest last, and how far off predictions of them were."""

    inputs: list[float] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    misses: list[Floats] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)


class SizePredictor:
    """Learns one quantity (memory, say) of many programs, run by run.

    `retry_cost` is what a failed attempt costs beyond what it held, as a share of that.

    >>> predictor = SizePredictor()
    >>> for size in range(1, 30):
    ...     predictor.observe("sort", size * 1e6, 50 + 2 * size)
    >>> told = predictor.predict("sort", 40e6)
    >>> 125 < told.expected <= told.given < 150
    True
    """

    def __init__(self, retry_cost: float = 0.5) -> None:
        self.retry_cost = retry_cost
        self._programs: defaultdict[str, _History] = defaultdict(_History)
        self._errors: defaultdict[int, list[float]] = defaultdict(list)
        self._misses: list[Floats] = []

    def observe(self, program: str, input_bytes: float, value: float) -> None:
        """A run took this; what would have been predicted for it is remembered for its error."""
        if not value > 0:
            return
        history, taken = self._programs[program], math.log(value)
        if history.logs:
            answers = _answers(history, input_bytes)
            error = taken - float(self._weights(history) @ answers)
            self._errors[_stage(len(history.logs))].append(error)
            history.errors.append(error)
            miss = np.abs(answers - taken)
            history.misses.append(miss)
            self._misses.append(miss)
        history.inputs.append(max(input_bytes, 0.0))
        history.logs.append(taken)

    def predict(self, program: str, input_bytes: float) -> Prediction | None:
        """What the next run will take; None for a program that never ran."""
        history = self._programs.get(program)
        if history is None or not history.logs:
            return None
        middle = float(self._weights(history) @ _answers(history, input_bytes))
        errors, weights = self._error_sample(history)
        low, high = _quantiles(errors, weights, (LOW, HIGH))
        first, then = _best_offers(errors, weights, self.retry_cost)
        expected, least, most, given, retry = (
            math.exp(middle + each) for each in (0.0, low, high, first, then)
        )
        return Prediction(
            expected, min(least, expected), max(most, expected), given, retry, len(history.logs)
        )

    def _weights(self, history: _History) -> Floats:
        """Each predictor weighs by the square of how near it was, as its usual miss tells."""
        own, every = history.misses[-_KEPT:], self._misses[-_KEPT:]
        total = np.full(_PREDICTORS, _PRIOR_DEVIATION)
        count = 1.0
        if every:
            total, count = total + 2.0 * np.mean(every, axis=0), count + 2.0
        if own:
            total, count = total + np.sum(own, axis=0), count + len(own)
        near = (total / count + _FLOOR) ** -_SHARP
        return np.asarray(near / near.sum(), dtype=float)

    def _error_sample(self, history: _History) -> tuple[Floats, Floats]:
        """Errors of this program, of all at this stage of learning, and of the prior, with their weights."""
        own = np.array(history.errors[-_KEPT:])
        others = np.array(self._errors[_stage(len(history.logs))][-_KEPT:])
        prior = _PRIOR_DEVIATION * _PRIOR_QUANTILES
        faded = _FADES_OVER / (_FADES_OVER + len(own))
        weights = np.concatenate(
            [
                np.ones(len(own)),
                np.full(len(others), faded * min(_OTHERS_WEIGHT / max(len(others), 1), 1.0)),
                np.full(len(prior), faded * _PRIOR_WEIGHT / len(prior)),
            ]
        )
        return np.concatenate([own, others, prior]), weights


def _stage(runs: int) -> int:
    """How much is known of a program: errors shrink with the first runs, later hardly."""
    return min(runs.bit_length(), 5)


_PREDICTORS = 4


def _answers(history: _History, input_bytes: float) -> Floats:
    """What each predictor says, as a logarithm."""
    logs = np.array(history.logs[-_KEPT:])
    inputs = np.array(history.inputs[-_KEPT:])
    return np.array(
        [
            logs.mean(),
            np.median(logs),
            _line(inputs, logs, input_bytes),
            _nearest(inputs, logs, input_bytes),
        ]
    )


def _line(inputs: Floats, logs: Floats, input_bytes: float) -> float:
    """A straight line through values over input sizes, kept within twice of what was ever seen."""
    if len(logs) < 3 or np.ptp(inputs) <= 1e-9 * max(inputs.max(), 1.0):
        return float(logs.mean())
    values = np.exp(logs)
    centred = inputs - inputs.mean()
    slope = float(centred @ values / (centred @ centred))
    value = float(values.mean() + slope * (input_bytes - inputs.mean()))
    return math.log(min(max(value, values.min() / 2.0), values.max() * 2.0))


def _nearest(inputs: Floats, logs: Floats, input_bytes: float) -> float:
    """The mean of the runs whose input was nearest in size, the nearer the more."""
    distances = np.abs(np.log1p(inputs) - math.log1p(max(input_bytes, 0.0)))
    nearest = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
    weights = 1.0 / (distances[nearest] + 0.05)
    return float(weights @ logs[nearest] / weights.sum())


def _quantiles(errors: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    order = np.argsort(errors)
    below = np.cumsum(weights[order]) - weights[order] / 2.0
    return [float(np.interp(share * weights.sum(), below, errors[order])) for share in shares]


def _best_offers(errors: Floats, weights: Floats, retry_cost: float) -> tuple[float, float]:
    """The offset of a first attempt and that of its retry with the least expected waste together.

    Both are sought just above errors there were; the retry may also get twice the first.
    """
    order = np.argsort(errors)
    above = np.interp(_SHARES * weights.sum(), np.cumsum(weights[order]), errors[order]) + _MARGIN
    first = np.unique(np.append(above, _MARGIN))
    best = math.inf, 0.0, 0.0
    for offset in first:
        for then in (*above[above > offset + _MARGIN], offset + math.log(2.0)):
            ladder = np.array([offset, then, *(then + math.log(2.0) * np.arange(1, 8))])
            wasted = float(_wasted(ladder, errors, retry_cost) @ weights)
            if wasted < best[0]:
                best = wasted, float(offset), float(then)
    return best[1], best[2]


def _wasted(ladder: Floats, errors: Floats, retry_cost: float) -> Floats:
    """What attempts with these offsets waste, in units of the prediction, for each error.

    Too little wastes all that the attempt held, and its retry cost; the last one wastes what was not used.
    """
    given = np.exp(ladder)
    step = np.minimum(np.searchsorted(ladder, errors), len(ladder) - 1)
    lost = np.concatenate([[0.0], np.cumsum(given)]) * (1.0 + retry_cost)
    return np.asarray(lost[step] + np.maximum(given[step] - np.exp(errors), 0.0))
