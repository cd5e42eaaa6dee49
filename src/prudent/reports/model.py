"""What the runs of a study taught, as a model that can be asked about any configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.trial import CUT

if TYPE_CHECKING:  # a compiler comes with them, and a report of a few runs does without
    from prudent.tuning.strategies.beliefs import Learner
    from prudent.tuning.surrogates.gp import GaussianProcess

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Item = TypeVar("Item")

FEWEST = 3
"""Runs that a model must have seen; fewer are told better by themselves."""
MOST = 300
"""Runs that a model learns from: its work grows with their cube, and the 301st hardly changes a picture."""
Z80 = 1.2815515655446004
"""Eight in ten outcomes of a Gaussian lie within so many deviations of its mean."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The belief of one measure at m candidates: the process plus `offset` (m,), exp of it if `log`.

    Cost and time are believed in logarithms, and time is cost without the price: one process tells both.
    """

    process: GaussianProcess
    offset: Array
    log: bool
    floor: Array

    @property
    def mean(self) -> Array:
        return self.process.mean + self.offset

    @property
    def std(self) -> Array:
        return self.process.std

    def natural(self, values: Array) -> Array:
        """Values of the process in the measure's own unit; a bill never falls below the billing minimum."""
        return np.maximum(np.exp(np.clip(values, -300.0, 300.0)), self.floor) if self.log else values

    def quantile(self, z: float) -> Array:
        return self.natural(self.mean + z * self.std)

    def average(self, rows: Rows) -> tuple[float, float]:
        """Mean and deviation of the average over candidates: errors that they share do not average out."""
        from prudent.tuning.surrogates.gp_kernels import matern52

        process = self.process
        features = process.candidates[rows]
        means, variances, weights = [], [], []
        for part in process.components:
            reach = part.reach[:, rows].mean(axis=1)
            prior = float(matern52(features, features, part.scales).mean())
            means.append(float(part.white @ reach))
            variances.append(part.variance * max(prior - float(reach @ reach), 1e-12))
            weights.append(part.weight)
        share = np.array(weights) / sum(weights)
        mean = float(share @ means)
        variance = float(share @ (np.array(variances) + np.array(means) ** 2)) - mean**2
        scale = process.scale
        middle = mean * scale.deviation + scale.mean + float(self.offset[rows].mean())
        return middle, float(np.sqrt(max(variance, 1e-12))) * scale.deviation

    def draws(self, rows: Rows, count: int, rng: np.random.Generator) -> Array:
        """Joint samples (count, rows) in the measure's own unit: what they may all be together."""
        from prudent.tuning.surrogates.gp_kernels import matern52

        process = self.process
        weights = np.array([part.weight for part in process.components])
        counts = rng.multinomial(count, weights / weights.sum())
        features = process.candidates[rows]
        drawn = []
        for part, share in zip(process.components, counts, strict=True):
            reach = part.reach[:, rows]
            covariance = matern52(features, features, part.scales) - reach.T @ reach
            root = np.sqrt(part.variance) * _root(covariance)
            drawn.append(part.white @ reach + rng.standard_normal((share, len(rows))) @ root.T)
        scale = process.scale
        natural = np.concatenate(drawn) * scale.deviation + scale.mean + self.offset[rows]
        picked = Forecast(process, self.offset[rows], self.log, self.floor[rows])
        return picked.natural(natural[rng.permutation(count)])


class Model:
    """Asks the Gaussian process of the strategies about the measures of a goal, cost and time among them.

    Every strategy's runs are judged by the same model, so reports of different strategies compare.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self._seed = problem, seed

    @cached_property
    def _learner(self) -> Learner:
        from prudent.tuning.strategies.beliefs import Learner

        return Learner(self.problem, "gp", self._seed)

    @property
    def measures(self) -> tuple[str, ...]:
        """The objective first, then what it costs, then what the constraints speak of."""
        goal = self.problem.goal
        return tuple(dict.fromkeys([goal.measure, COST, *goal.measures]))

    def knows(self, measure: str, history: History) -> bool:
        """Whether enough runs told about a measure."""
        if measure in (COST, TIME):
            return sum(trial.time_s > 0 for trial in history.working) >= FEWEST
        return sum(trial.finished and measure in trial.measures for trial in history) >= FEWEST

    def forecast(self, measure: str, history: History, pool: Candidates) -> Forecast:
        """The belief of a measure at candidates."""
        from prudent.tuning.strategies.beliefs import CHEAPEST_USD_PER_S, Shifted

        history = sample(history)
        nothing = np.zeros(len(pool))
        if measure not in (COST, TIME):
            return Forecast(_process(self._learner.measure(measure, history, pool)), nothing, False, nothing)
        belief = self._learner.log_cost(history, pool)
        assert isinstance(belief, Shifted)  # by what a dearer machine costs more, whatever runs on it
        process, shift = _process(belief.belief), belief.offset
        usd_per_s = np.maximum(pool.usd_per_s, CHEAPEST_USD_PER_S)
        if measure == TIME:
            return Forecast(process, shift - np.log(usd_per_s), True, nothing)
        return Forecast(process, shift, True, pool.minimum_s * pool.usd_per_s)

    def works(self, history: History, pool: Candidates) -> Array:
        """The probability that a candidate does not fail."""
        return self._learner.works(sample(history), pool)


def sample(history: History, most: int = MOST) -> History:
    """A history of at most so many runs; those that ended by themselves tell more than those that were cut.

    Both are thinned out evenly, so that early and late runs stay; the best one always does.
    """
    trials = history.trials
    if len(trials) <= most:
        return history
    cut = [trial for trial in trials if trial.status == CUT]
    ended = spread([t for t in trials if t.status != CUT], most - min(len(cut), most // 4))
    kept = {id(trial) for trial in (*ended, *spread(cut, most - len(ended)))}
    if history.best is not None and id(history.best) not in kept:
        kept.remove(id(ended[-1]))
        kept.add(id(history.best))
    return History(history.goal, tuple(trial for trial in trials if id(trial) in kept), history.pending)


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced, the first and the last among them.

    >>> spread(range(10), 4), spread("abc", 5)
    ([0, 3, 6, 9], ['a', 'b', 'c'])
    """
    if len(items) <= most:
        return list(items)
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, most).round()]


def _root(covariance: Array) -> Array:
    """A lower triangular root; near duplicates make a covariance singular, a little noise mends it."""
    try:
        return np.asarray(np.linalg.cholesky(covariance + 1e-6 * np.eye(len(covariance))), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.cholesky(covariance + 1e-3 * np.eye(len(covariance))), np.float64)


def _process(belief: object) -> GaussianProcess:
    from prudent.tuning.surrogates.gp import GaussianProcess

    assert isinstance(belief, GaussianProcess)
    return belief
