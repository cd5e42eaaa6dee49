"""What the history makes us believe of every candidate: its cost, its measures, whether it works."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.goal import Constraint
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.acquisition import normal_cdf
from prudent.tuning.strategies.margins import margins_of
from prudent.tuning.surrogates.gp import (
    GaussianProcess,
    GPHyperparameters,
    Standardization,
    pseudo_observations,
    weigh_hyperparameters,
)
from prudent.tuning.trial import CUT, FAILED, Trial

if TYPE_CHECKING:
    from prudent.tuning.surrogates.trees import Trees

Array = NDArray[np.float64]

CHEAPEST_USD_PER_S = 1e-9 / 3600.0
"""A free machine counts as next to free: the logarithm of its cost stays finite and follows its time."""


LEAST_MEASURED = 3
"""With fewer runs that ended by themselves, cut ones do not count towards the hyper-parameters."""
USUAL_LOG_COST = 0.7
"""How much log costs usually differ within a space: by a factor of two, give or take."""


TRUSTED, LEAST_DOUBT = 0.5, 0.2
"""Guesses of a cut run's log time are used when typically off by no more than the first; never held surer
than the second."""
SLOPE, SLOPE_DOUBT = 0.5, 0.5
"""Log cost against log price: 1 if dearer machines are no faster, 0 if they are faster by as much as they are
dearer. Before anything was measured it may be either."""
UNKNOWN_STRETCH = 0.7
"""How much longer, in log time, a cut run is taken to be by a model that knows no bounds: twice as long."""


class Belief(Protocol):
    """A Gaussian belief at each candidate: mean (m,), std (m,)."""

    mean: Array
    std: Array

    def given(self, indices: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        """Mean and std (k, m) after pretending paths of samples: candidate indices and values (k, h)."""

    def narrowed(self, indices: NDArray[np.int64]) -> Belief:
        """The same belief at some of the candidates only."""


class ShiftedBelief:
    """A belief with an offset per candidate and perhaps its sign turned: time from cost, loss from gain."""

    def __init__(self, belief: Belief, offset: Array, sign: float = 1.0) -> None:
        self.belief, self.offset, self._sign = belief, offset, sign
        self.mean = sign * (belief.mean + offset)
        self.std = belief.std

    def narrowed(self, indices: NDArray[np.int64]) -> ShiftedBelief:
        return ShiftedBelief(self.belief.narrowed(indices), self.offset[indices], self._sign)

    def given(self, indices: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        mean, std = self.belief.given(indices, self._sign * values - self.offset[indices])
        return self._sign * (mean + self.offset), std


def last_refit(samples: int) -> int:
    """The number of samples when hyper-parameters were last weighed: at first after each, then more rarely.

    Weighing costs O(samples³), and its result changes less and less. The model is still conditioned on all
    samples.
    """
    if samples <= 24:
        return samples
    step = 4
    while samples >= step * 12:
        step *= 2
    return samples - samples % step


@dataclass(frozen=True, eq=False)
class RegressionTargets:
    """What a model is fitted to, by trial: values, some of them only lower bounds, and the doubt in them.

    `doubt` is the variance of a value beyond the usual noise; `usual` is the deviation that such values have.
    """

    y: Array
    is_cut: NDArray[np.bool_]
    doubt: Array
    usual: float | None = None

    @classmethod
    def sure(cls, values: Sequence[float]) -> RegressionTargets:
        """Targets that are all measured, none of them a bound."""
        y = np.array(values, dtype=np.float64)
        return cls(y, np.zeros(len(y), dtype=np.bool_), np.zeros(len(y)))

    @property
    def measured(self) -> RegressionTargets:
        """Without the lower bounds."""
        kept = ~self.is_cut
        return RegressionTargets(self.y[kept], self.is_cut[kept], self.doubt[kept], self.usual)


class SurrogateFitter:
    """Turns a history into beliefs. Pure in the history; it only remembers what it computed before."""

    def __init__(self, problem: Problem, surrogate: str, seed: int, n_trees: int = 10) -> None:
        self._problem = problem
        self._surrogate = surrogate
        self._seed = seed
        self._n_trees = n_trees
        self._features: dict[int, tuple[Array, float]] = {}
        self._settings: dict[tuple[object, ...], GPHyperparameters] = {}

    def log_cost(self, history: History, pool: Candidates) -> Belief:
        """The belief of log(time x price), cut runs counted as "at least this"."""
        trials = [trial for trial in history.working if trial.time_s > 0]
        X, _ = self._rows(trials)
        pending, _ = self._pending_rows(history)
        if self._surrogate == "trees":
            y, is_cut, _ = self._log_costs(trials)
            return self._trees(trials, X, y + np.where(is_cut, UNKNOWN_STRETCH, 0.0), pool, pending)
        rest = self._process("cost", trials, X, self._rests, pool, pending)
        slope = self._slope(trials)
        return ShiftedBelief(rest, slope * np.log(np.maximum(pool.usd_per_s, CHEAPEST_USD_PER_S)))

    def _log_costs(self, trials: Sequence[Trial]) -> tuple[Array, NDArray[np.bool_], Array]:
        """Log costs, which of them are lower bounds, and the doubt in those that are guesses."""
        _, usd_per_s = self._rows(trials)
        y = np.log([max(trial.time_s, 1e-6) for trial in trials]) + np.log(usd_per_s)
        is_cut = np.array([trial.status == CUT for trial in trials])
        return _with_estimates(trials, y, is_cut)

    def _slope(self, trials: Sequence[Trial]) -> float:
        y, is_cut, _ = self._log_costs(trials)
        return price_slope(np.log(self._rows(trials)[1]), y, is_cut)

    def _rests(self, trials: Sequence[Trial]) -> RegressionTargets:
        """The part of the log costs that the price does not explain."""
        y, is_cut, doubt = self._log_costs(trials)
        log_price = np.log(self._rows(trials)[1])
        return RegressionTargets(
            y - price_slope(log_price, y, is_cut) * log_price, is_cut, doubt, USUAL_LOG_COST
        )

    def measure(self, name: str, history: History, pool: Candidates) -> Belief | None:
        """The belief of a measure that runs report at their end; None while no run has."""
        trials = [trial for trial in history.trials if trial.finished and name in trial.measures]
        if not trials:
            return None
        X, _ = self._rows(trials)

        def measured(trials: Sequence[Trial]) -> RegressionTargets:
            return RegressionTargets.sure([trial.measures[name] for trial in trials])

        pending, _ = self._pending_rows(history)
        if self._surrogate == "trees":
            return self._trees(trials, X, measured(trials).y, pool, pending)
        return self._process(name, trials, X, measured, pool, pending)

    def margin(self, constraint: Constraint, history: History, pool: Candidates) -> Belief | None:
        """The belief of how well a constraint is kept (it holds from 0 on); None while no run has told."""
        told = margins_of(constraint, history.trials)
        if told is None:
            return None
        X, _ = self._rows(told.trials)
        pending, _ = self._pending_rows(history)
        if self._surrogate == "trees":
            return self._trees(told.trials, X, told.values, pool, pending)
        kind = told.scaling.kind

        def margins(trials: Sequence[Trial]) -> RegressionTargets:
            told = margins_of(constraint, trials, kind)
            assert told is not None, "every one of these trials has told something"
            return RegressionTargets(told.values, told.is_bound, np.zeros(len(trials)), told.scaling.usual)

        return self._process(f"{constraint} {kind}", told.trials, X, margins, pool, pending)

    def works(self, history: History, pool: Candidates) -> Array:
        """The probability that a candidate does not fail; 1 while nothing failed."""
        trials = [trial for trial in history.trials if trial.status != CUT]
        failed = np.array([trial.status == FAILED for trial in trials], dtype=np.bool_)
        if not failed.any():
            return np.ones(len(pool))
        X, _ = self._rows(trials)

        def worked(trials: Sequence[Trial]) -> RegressionTargets:
            return RegressionTargets.sure([0.0 if trial.status == FAILED else 1.0 for trial in trials])

        belief = self._process("works", trials, X, worked, pool, X[:0])
        return np.maximum(normal_cdf((belief.mean - 0.5) / np.maximum(belief.std, 0.05)), 1e-3)

    def _rows(self, trials: Sequence[Trial]) -> tuple[Array, Array]:
        """Features (n, width) and price per second (n,) of trials."""
        missing = [trial for trial in trials if trial.number not in self._features]
        if missing:
            encoded = self._problem.candidates(trial.configuration for trial in missing)
            for trial, row, price in zip(missing, encoded.features, encoded.usd_per_s, strict=True):
                self._features[trial.number] = (row, max(float(price), CHEAPEST_USD_PER_S))
        if not trials:
            return np.empty((0, self._problem.space.width)), np.empty(0)
        rows = [self._features[trial.number] for trial in trials]
        return np.stack([row for row, _ in rows]), np.array([price for _, price in rows])

    def _pending_rows(self, history: History) -> tuple[Array, Array]:
        encoded = self._problem.candidates(proposal.configuration for proposal in history.pending)
        return encoded.features, encoded.usd_per_s

    def _process(
        self,
        name: str,
        trials: Sequence[Trial],
        X: Array,
        targets_of: Callable[[Sequence[Trial]], RegressionTargets],
        pool: Candidates,
        pending: Array,
    ) -> GaussianProcess:
        settings = self._weighed(name, trials, X, targets_of)
        targets = targets_of(trials)
        usual, (y, extra) = targets.usual, _without_cuts(X, targets, settings)
        groups = self._problem.groups
        if len(pending):
            # A trial under way counts as if it came out as expected: no second one beside it.
            there = GaussianProcess.fit(X, y, pending, groups, self._seed, settings, extra, usual)
            X, y = np.concatenate([X, pending]), np.concatenate([y, there.mean])
            extra = np.concatenate([extra, np.zeros(len(pending))])
        return GaussianProcess.fit(X, y, pool.features, groups, self._seed, settings, extra, usual)

    def _weighed(
        self,
        name: str,
        trials: Sequence[Trial],
        X: Array,
        targets_of: Callable[[Sequence[Trial]], RegressionTargets],
    ) -> GPHyperparameters:
        """Hyper-parameters by the trials up to the last checkpoint, and by nothing that came later.

        Targets depend on all the trials that they are made of (a slope, a scale). Those of the checkpoint are
        made of its trials alone, so a study that is resumed weighs them as one that was never interrupted.
        """
        size = last_refit(len(trials))
        key = (name, *(trial.number for trial in trials[:size]))
        if key not in self._settings:
            X, targets = X[:size], targets_of(trials[:size])
            if np.count_nonzero(~targets.is_cut) < LEAST_MEASURED:
                # Bounds alone look alike and would make long length scales, and so certainty, seem likely.
                X, targets = X[~targets.is_cut], targets.measured
            y, is_cut, usual = targets.y, targets.is_cut, targets.usual
            guess = np.where(is_cut, y + 0.5 * Standardization.of(y, usual).deviation, y)
            scale = Standardization.of(guess, usual)
            standard, extra = (guess - scale.mean) / scale.deviation, targets.doubt / scale.deviation**2
            settings = weigh_hyperparameters(X, standard, self._problem.groups, self._seed, extra)
            if is_cut.any():
                values, extra = _without_cuts(X, targets, settings)
                scale = Standardization.of(values, usual)
                standard = (values - scale.mean) / scale.deviation
                settings = weigh_hyperparameters(X, standard, self._problem.groups, self._seed, extra)
            self._settings[key] = settings
        return self._settings[key]

    def _trees(self, trials: Sequence[Trial], X: Array, y: Array, pool: Candidates, pending: Array) -> Belief:
        rng = rng_for(self._seed, "trees", len(trials))
        if len(pending):
            there = TreesBelief.fit(X, y, pending, rng, self._n_trees)
            X, y = np.concatenate([X, pending]), np.concatenate([y, there.mean])
        return TreesBelief.fit(X, y, pool.features, rng, self._n_trees)


def price_slope(log_price: Array, log_cost: Array, is_cut: NDArray[np.bool_]) -> float:
    """The slope of log cost over log price, by the runs that ended by themselves.

    What remains when this trend is taken out varies less. A model without it expects a large cluster to cost
    no more than a small one, and tries many.

    >>> price_slope(np.log([1.0, 8.0, 64.0]), np.log([2.0, 16.0, 128.0]), np.zeros(3, bool)) > 0.9
    True
    """
    price, cost = log_price[~is_cut], log_cost[~is_cut]
    if len(price) == 0:
        return SLOPE
    price, cost = price - price.mean(), cost - cost.mean()
    sure, told = (USUAL_LOG_COST / SLOPE_DOUBT) ** 2, float(price @ price)
    return float(np.clip((sure * SLOPE + float(price @ cost)) / (sure + told), 0.0, 1.0))


def _without_cuts(X: Array, targets: RegressionTargets, settings: GPHyperparameters) -> tuple[Array, Array]:
    """Values and extra noise with cut runs replaced by pseudo-observations, by the setting of most weight.

    The extra noise is relative to that of y.
    """
    y, is_cut = targets.y, targets.is_cut
    scale = Standardization.of(y, targets.usual)
    extra = targets.doubt / scale.deviation**2
    if not is_cut.any():
        return y, extra
    base = float(settings.noise[0])
    noise = base + extra
    values, spreads = pseudo_observations(
        X, (y - scale.mean) / scale.deviation, is_cut, noise, settings.scales[0]
    )
    return values * scale.deviation + scale.mean, np.maximum(spreads - base, 0.0)


def _with_estimates(
    trials: Sequence[Trial], y: Array, is_cut: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_], Array]:
    """Log costs; that of a cut run is guessed from its progress, where such guesses have proved good.

    A finished run tells by how much a guess at its half would have been wrong. If at least two of them were
    wrong by no more than `TRUSTED` on average, a guess counts as a measurement with that doubt (a variance).
    Otherwise the cost of a cut run stays a lower bound.
    """
    errors = [t.estimate["log_error"] for t in trials if "log_error" in t.estimate]
    out, still_cut, doubt = y.copy(), is_cut.copy(), np.zeros(len(y))
    typical = math.sqrt(float(np.mean(np.square(errors)))) if len(errors) >= 2 else math.inf
    if typical > TRUSTED:
        return out, still_cut, doubt
    for place in map(int, np.flatnonzero(is_cut)):
        guess = trials[place].estimate.get("time_s")
        if guess is not None:
            out[place] += max(math.log(guess / trials[place].time_s), 0.0)
            still_cut[place] = False
            doubt[place] = max(typical, LEAST_DOUBT) ** 2
    return out, still_cut, doubt


class TreesBelief:
    """Trees fitted to samples, seen through a pool of candidates; `given` refits for every path."""

    def __init__(self, trees: Trees, pool: Array) -> None:
        self._trees = trees
        self._pool = pool
        self.mean, self.std = trees.predict(pool)

    @property
    def least_std(self) -> float:
        """The deviation that is told where all trees agree."""
        return math.sqrt(self._trees.variance_floor)

    @classmethod
    def fit(cls, X: Array, y: Array, pool: Array, rng: np.random.Generator, n_trees: int) -> TreesBelief:
        from prudent.tuning.surrogates.trees import Trees

        # Trees that agree are not sure: never below a twentieth of the spread of what was seen.
        floor = max((0.05 * float(y.std())) ** 2, 1e-6)
        return cls(Trees.fit(X, y, rng, n_trees=n_trees, variance_floor=floor), pool)

    def narrowed(self, indices: NDArray[np.int64]) -> TreesBelief:
        return TreesBelief(self._trees, self._pool[indices])

    def given(self, indices: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        mean, std = self._trees.fantasies(self._pool[indices], values, self._pool)
        return mean, std
