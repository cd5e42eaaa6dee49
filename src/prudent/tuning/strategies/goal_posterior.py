"""What a goal makes of beliefs: how good each configuration would be, how surely allowed, and predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.strategies.acquisition import hermite_nodes, normal_cdf
from prudent.tuning.strategies.candidates import FractionCandidates, Indices
from prudent.tuning.strategies.extrapolation import LOG, CurveBelief, GPCurve, Warp
from prudent.tuning.strategies.strategy import prediction_key

Array = NDArray[np.float64]

HOPELESS = 0.01


@dataclass(frozen=True, eq=False)
class ScaledMeasure:
    """A measure on the scale of its belief: value = warp.back(curve + offset), offset (p,)."""

    curve: CurveBelief
    warp: Warp
    offset: Array


@dataclass(frozen=True, eq=False)
class FeasibleInterval:
    """Where one curve must lie for the goal to be kept: lower (p,), upper (p,), on the curve's own scale."""

    curve: CurveBelief
    lower: Array
    upper: Array

    def probability(self, mean: Array, std: Array, places: Indices) -> Array:
        """P(lower <= value <= upper) for beliefs (..., t) at places (t,)."""
        above = normal_cdf((self.upper[places] - mean) / std)
        below = normal_cdf((self.lower[places] - mean) / std)
        return np.asarray(np.maximum(above - below, 0.0))


@dataclass(frozen=True, eq=False)
class GoalPosterior:
    """The goal at the places of a pool, by what is believed.

    sign: 1 where the objective is maximised, -1 where minimised; intervals: what the constraints demand, one
    per curve; works (p,): the probability that a run does not fail.
    """

    objective: ScaledMeasure
    sign: float
    intervals: tuple[FeasibleInterval, ...]
    works: Array

    def value(self, mean: Array, places: Indices) -> Array:
        """The objective in its own units for means (..., t) at places (t,), turned so that more is better."""
        return self.sign * self.objective.warp.back(mean + self.objective.offset[places])

    def probability(self, places: Indices) -> Array:
        """P(every constraint holds) at places (t,)."""
        out = self.works[places].copy()
        for interval in self.intervals:
            out *= interval.probability(interval.curve.mean[places], interval.curve.std[places], places)
        return out

    def excess(self, places: Indices) -> Array:
        """How far the predictions at places (t,) miss the constraints, on the scales of the beliefs."""
        out = np.zeros(len(places))
        for interval in self.intervals:
            mean = interval.curve.mean[places]
            out += np.maximum(mean - interval.upper[places], 0.0) + np.maximum(
                interval.lower[places] - mean, 0.0
            )
        return out

    def recommended(self, places: Indices, confidence: float) -> int:
        """The place of the incumbent, tested or not.

        If no place has a chance to keep the constraints, their probabilities tell nothing: it is then the one
        that is predicted to miss them by least.
        """
        chance = self.probability(places)
        if float(chance.max()) < HOPELESS:
            return int(places[int(self.excess(places).argmin())])
        value = self.value(self.objective.curve.mean[places], places)
        return int(places[int(incumbent(value, chance, confidence))])

    def probability_after(self, tests: Indices, places: Indices) -> Array:
        """The same (k, t) after each of k tests came out as predicted."""
        out = np.broadcast_to(self.works[places], (len(tests), len(places))).copy()
        for interval in self.intervals:
            out *= interval.probability(*interval.curve.after(tests, places), places)
        return out

    def cea(self, tests: Indices, places: Indices, confidence: float) -> Array:
        """Constrained expected accuracy (k,): what the incumbent promises after each test.

        CEA(x, s) = A(x_inc, 1) · P(C(x_inc, 1) <= C_max) (equation 4.5), x_inc the incumbent of that model.
        An objective that is minimised or negative counts by its rank between the worst and the best
        predicted value.
        """
        mean, _ = self.objective.curve.after(tests, places)
        value = self.value(mean, places)
        chance = self.probability_after(tests, places)
        chosen = incumbent(value, chance, confidence)
        rows = np.arange(len(tests))
        return np.asarray(_positive(value)[rows, chosen] * chance[rows, chosen])


def _positive(value: Array) -> Array:
    low, high = float(value.min()), float(value.max())
    if low > 0:
        return value
    return np.asarray((value - low) / max(high - low, 1e-12))


def incumbent(value: Array, chance: Array, confidence: float) -> NDArray[np.int64]:
    """The best value among those allowed with the confidence wanted, along the last axis; else the likeliest.

    >>> incumbent(np.array([[3.0, 2.0, 1.0]]), np.array([[0.5, 0.995, 0.999]]), 0.99).tolist()
    [1]
    >>> incumbent(np.array([[3.0, 2.0, 1.0]]), np.array([[0.5, 0.6, 0.55]]), 0.99).tolist()
    [1]
    """
    sure = chance >= confidence
    best = np.where(sure, value, -np.inf).argmax(axis=-1)
    return np.asarray(np.where(sure.any(axis=-1), best, chance.argmax(axis=-1)))


def goal_posterior(
    goal: Goal,
    pool: FractionCandidates,
    cost: CurveBelief,
    measures: dict[str, tuple[CurveBelief, Warp]],
    works: Array,
) -> GoalPosterior:
    """Read a goal on the scales of the beliefs: time is cost over price, so one curve serves both."""
    none = np.zeros(len(pool))

    def scaled(measure: str) -> ScaledMeasure:
        if measure == COST:
            return ScaledMeasure(cost, LOG, none)
        if measure == TIME:
            return ScaledMeasure(cost, LOG, -pool.log_price)
        return ScaledMeasure(*measures[measure], none)

    intervals: dict[int, FeasibleInterval] = {}
    for constraint in goal.constraints:
        measure = scaled(constraint.measure)
        bound = float(measure.warp.forward(np.array([constraint.bound]))[0]) - measure.offset
        if constraint.measure == COST and constraint.is_upper:
            bound = np.where(_least_cost_usd(pool) > constraint.bound, -math.inf, bound)
        interval = intervals.get(
            id(measure.curve), FeasibleInterval(measure.curve, none - math.inf, none + math.inf)
        )
        if constraint.is_upper:
            interval = FeasibleInterval(measure.curve, interval.lower, np.minimum(interval.upper, bound))
        else:
            interval = FeasibleInterval(measure.curve, np.maximum(interval.lower, bound), interval.upper)
        intervals[id(measure.curve)] = interval
    sign = -1.0 if goal.minimise else 1.0
    return GoalPosterior(scaled(goal.measure), sign, tuple(intervals.values()), works)


def _least_cost_usd(pool: FractionCandidates) -> Array:
    """What the time of even the shortest run at each place costs."""
    return np.asarray(pool.candidates.minimum_s * pool.candidates.usd_per_s)


def bill_usd(pool: FractionCandidates, cost: CurveBelief, places: Indices | Sequence[int]) -> Array:
    """Expected dollars of a run at places; the deviation is limited, or the mean would be infinite."""
    spread = np.minimum(cost.std[places], 1.5)
    own_usd = np.exp(cost.mean[places] + spread**2 / 2.0)
    billed = pool.candidates
    return np.asarray(np.maximum(own_usd + billed.beside_usd[places], billed.least_usd[places]))


INTERVAL_Z = 1.959963984540054
"""Low and high enclose 95 % of what is expected."""


def prediction_of(
    pool: FractionCandidates,
    cost: CurveBelief,
    measures: dict[str, tuple[CurveBelief, Warp]],
    posterior: GoalPosterior,
) -> dict[str, float]:
    """Median, deviation and 95 % interval of every measure at the only candidate."""
    out: dict[str, float] = {}
    for name, (curve, warp) in measures.items():
        out |= _told(name, curve, warp, 0.0)
    out |= _told(COST, cost, LOG, 0.0)
    out |= _told(TIME, cost, LOG, -float(pool.log_price[0]))
    out["probability_feasible"] = float(posterior.probability(np.array([0]))[0])
    return out


def _told(name: str, curve: CurveBelief, warp: Warp, offset: float) -> dict[str, float]:
    noise = curve.process.noise_std if isinstance(curve, GPCurve) else 0.0
    centre, spread = float(curve.mean[0]) + offset, math.hypot(float(curve.std[0]), noise)
    middle, low, high = warp.back(
        np.array([centre, centre - INTERVAL_Z * spread, centre + INTERVAL_Z * spread])
    )
    nodes, weights = hermite_nodes(9)
    around = warp.back(centre + spread * nodes)
    mean = float(weights @ around)
    deviation = math.sqrt(max(float(weights @ (around - mean) ** 2), 0.0))
    return {
        name: float(middle),
        prediction_key(name, "std"): deviation,
        prediction_key(name, "low"): float(low),
        prediction_key(name, "high"): float(high),
    }
