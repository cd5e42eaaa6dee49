"""What is believed of run times before and after the first run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies import machine_features as quantities
from prudent.tuning.strategies.acquisition import normal_cdf
from prudent.tuning.strategies.beliefs import (
    CHEAPEST_USD_PER_S,
    LEAST_MEASURED,
    ShiftedBelief,
    SurrogateFitter,
    last_refit,
)
from prudent.tuning.strategies.machine_features import MachineFeatures
from prudent.tuning.surrogates.averaged_gp import (
    AveragedGP,
    Draws,
    Form,
    Rows,
    TrendPrior,
    weigh,
    without_bounds,
)
from prudent.tuning.trial import CUT, FAILED, Trial

Array = NDArray[np.float64]

SLOPES = {
    quantities.PRICE: (-0.15, 0.25),
    quantities.COUNT: (-0.45, 0.3),
    quantities.VCPUS: (-0.45, 0.3),
    quantities.MEMORY: (0.0, 0.2),
    quantities.SPEED: (-0.5, 0.3),
    quantities.UNIT_PRICE: (-0.15, 0.3),
}
"""Mean and deviation of the slope of log time against the logarithm of each quantity: work is shared out
among machines and their vCPUs, not without loss; a dearer machine of the same size is a little faster."""
PRICE_ALONE = (-0.45, 0.4)
"""The same for the price where it is all that is known."""
WORKS_SLOPES = {
    quantities.PRICE: (0.1, 0.15),
    quantities.COUNT: (0.05, 0.1),
    quantities.MEMORY: (0.1, 0.15),
}
"""How the chance that a run works grows with each quantity."""
READ_DOUBT = 0.15
"""Deviation of the slopes that readings tell: of a run whose cores are busy for a share of its time, that
share is shortened by more of them."""
OWN_PART = 0.5
"""The more parameters a job has of its own, the less the machines alone decide: by so much for each of
them."""
SHARE_SLOPE = (0.7, 0.3)
"""The same for the share of the data."""
LIMIT_DOUBT = 0.8
"""A limit is set near what runs take: within a factor of two, give or take."""
USUAL_RUNS, BUDGET_DOUBT = 12.0, 1.5
"""A budget is set for about so many runs, within a factor of four or so."""
NO_IDEA_S, NO_IDEA_DOUBT = 600.0, 3.0
OF_MACHINES, OF_PARAMETER = 0.35, 0.6
"""Deviations of log time that no trend explains: what machines bring, and each parameter of the job
itself."""
LARGEST = 1.5


class RunTimeFitter(SurrogateFitter):
    """Beliefs of a history, in which run times start from a physical prior."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, "gp", seed)
        self._machines = MachineFeatures(problem, seed)
        self._encoded: dict[int, tuple[Array, Array]] = {}
        self._pool: tuple[Candidates, Rows] | None = None
        self._draws: dict[tuple[object, ...], Draws] = {}

    def log_cost(self, history: History, pool: Candidates) -> ShiftedBelief:
        trials = [trial for trial in history.trials if trial.time_s > 0]
        prior = self._informed(trials)
        rows, places = self._rows_of(trials), self._places(pool)
        draws = self._weighed_draws(trials, rows, prior)
        y, extra = self._targets(trials, rows, prior, draws)
        if history.pending:
            # A trial under way counts as if it came out as expected: no second one beside it.
            under_way = self._rows_at(self._problem.candidates(p.configuration for p in history.pending))
            there = AveragedGP(rows, y, extra, under_way, prior, self._seed, draws)
            rows, y = rows.joined(under_way), np.concatenate([y, there.mean])
            extra = np.concatenate([extra, np.zeros(len(under_way))])
        belief = AveragedGP(rows, y, extra, places, prior, self._seed, draws)
        return ShiftedBelief(belief, np.log(np.maximum(pool.usd_per_s, CHEAPEST_USD_PER_S)))

    def _targets(
        self, trials: Sequence[Trial], rows: Rows, prior: TrendPrior, draws: Draws
    ) -> tuple[Array, Array]:
        """Log times, with Gaussian observations in the place of bounds, and their variances."""
        y, is_bound, doubt = self._log_times(trials)
        return without_bounds(rows, y, is_bound, doubt, prior, draws)

    def _log_times(self, trials: Sequence[Trial]) -> tuple[Array, NDArray[np.bool_], Array]:
        if not trials:
            return np.empty(0), np.empty(0, dtype=np.bool_), np.empty(0)
        y, is_bound, doubt = self._log_costs(trials)
        # What failed would have taken at least as long.
        failed = np.array([trial.status == FAILED for trial in trials], dtype=np.bool_)
        return y - np.log(self._rows(trials)[1]), is_bound | failed, doubt

    def works(self, history: History, pool: Candidates) -> Array:
        """The probability that a candidate does not fail; 1 while nothing failed."""
        trials = [trial for trial in history.trials if trial.status != CUT]
        y = np.array([0.0 if trial.status == FAILED else 1.0 for trial in trials])
        if not (y == 0.0).any():
            return np.ones(len(pool))
        size = last_refit(len(trials))
        rows, key = self._rows_of(trials), ("works", *(trial.number for trial in trials[:size]))
        sure, prior = np.zeros(len(trials)), self._works_prior
        if key not in self._draws:
            self._draws[key] = weigh(rows.at(np.arange(size)), y[:size], sure[:size], prior, self._seed)
        belief = AveragedGP(rows, y, sure, self._places(pool), prior, self._seed, self._draws[key])
        return np.maximum(normal_cdf((belief.mean - 0.5) / np.maximum(belief.std, 0.1)), 1e-3)

    def _weighed_draws(self, trials: Sequence[Trial], rows: Rows, prior: TrendPrior) -> Draws:
        """Settings by the trials up to the last checkpoint, and by nothing that came later."""
        size = last_refit(len(trials))
        key: tuple[object, ...] = tuple(trial.number for trial in trials[:size])
        if key not in self._draws:
            y, is_bound, doubt = self._log_times(trials[:size])
            rows = rows.at(np.arange(size))
            if np.count_nonzero(~is_bound) < LEAST_MEASURED:
                kept = ~is_bound
                self._draws[key] = weigh(rows.at(kept), y[kept], doubt[kept], prior, self._seed)
            else:
                guess = np.where(is_bound, y + 0.5 * prior.amplitude, y)
                draws = weigh(rows, guess, doubt, prior, self._seed)
                if is_bound.any():
                    values, extra = without_bounds(rows, y, is_bound, doubt, prior, draws)
                    draws = weigh(rows, values, extra, prior, self._seed)
                self._draws[key] = draws
        return self._draws[key]

    # Rows of the model

    def _places(self, pool: Candidates) -> Rows:
        if self._pool is None or self._pool[0] is not pool:
            self._pool = (pool, self._rows_at(pool))
        return self._pool[1]

    def _rows_of(self, trials: Sequence[Trial]) -> Rows:
        missing = [trial for trial in trials if trial.number not in self._encoded]
        if missing:
            rows = self._rows_at(self._problem.candidates(trial.configuration for trial in missing))
            for place, trial in enumerate(missing):
                self._encoded[trial.number] = (rows.features[place], rows.trend[place])
        known = [self._encoded[trial.number] for trial in trials]
        if not known:
            empty = self._rows_at(self._problem.candidates([]))
            return Rows(np.empty((0, self._width)), np.empty((0, empty.trend.shape[1])))
        return Rows(np.stack([one for one, _ in known]), np.stack([other for _, other in known]))

    def _rows_at(self, candidates: Candidates) -> Rows:
        machines = self._machines.of(candidates)
        low, span, centre = self._scaling
        features = np.column_stack([self._own(candidates.features), (machines - low) / span])
        trend = machines - centre
        if self._problem.fraction is not None:
            shares = [float(str(c[self._problem.fraction])) for c in candidates.configurations]
            trend = np.column_stack([trend, np.log(np.array(shares))])
        return Rows(features, trend)

    def _own(self, features: Array) -> Array:
        """The columns of the space itself; the price is among the quantities of machines."""
        return features[:, : self._problem.space.width]

    @property
    def _width(self) -> int:
        return self._problem.space.width + len(self._machines.names)

    @cached_property
    def _scaling(self) -> tuple[Array, Array, Array]:
        """Lowest, span and centre of the machine columns, over the space."""
        columns = self._machines.of_space
        low, high = columns.min(axis=0), columns.max(axis=0)
        return low, np.maximum(high - low, 1e-9), columns.mean(axis=0)

    # What is believed before the first run

    @cached_property
    def _works_prior(self) -> TrendPrior:
        """Most runs work, and larger machines fail less."""
        slopes = [WORKS_SLOPES.get(name, (0.0, 0.1)) for name in self._machines.names]
        if self._problem.fraction is not None:
            slopes.append((-0.05, 0.1))
        means, stds = np.array(slopes, dtype=np.float64).reshape(len(slopes), 2).T
        return TrendPrior(0.8, 0.4, means, stds, 0.4, self._column_groups, self._forms)

    @cached_property
    def _prior(self) -> TrendPrior:
        names, beside = self._machines.names, self._machines.beside
        alone = names == (quantities.PRICE,)
        slopes = [PRICE_ALONE] if alone else [SLOPES[name] for name in names]
        if self._problem.fraction is not None:
            slopes, beside = [*slopes, SHARE_SLOPE], tuple(n for n in beside if n != self._problem.fraction)
        means, stds = np.array(slopes, dtype=np.float64).reshape(len(slopes), 2).T
        means = means / (1.0 + OWN_PART * len(beside))
        amplitude = min(math.sqrt(OF_MACHINES**2 + len(beside) * OF_PARAMETER**2), LARGEST)
        offset, offset_std = self._usual_log_time
        return TrendPrior(offset, offset_std, means, stds, amplitude, self._column_groups, self._forms)

    def _informed(self, trials: Sequence[Trial]) -> TrendPrior:
        """The prior with forms whose slopes follow from readings, by trials up to the last checkpoint.

        More cores shorten the part of a run in which they are busy and nothing else (Amdahl's law):
        d log T / d log cores = - cpu_share.
        """
        told = [trial.readings for trial in trials[: last_refit(len(trials))]]
        shares = [one.cpu_share for one in told if one is not None and one.cpu_share is not None]
        scaled = [name in (quantities.COUNT, quantities.VCPUS) for name in self._machines.names]
        if not shares or not any(scaled):
            return self._prior
        slopes = {
            **SLOPES,
            **dict.fromkeys((quantities.COUNT, quantities.VCPUS), (-float(np.mean(shares)), READ_DOUBT)),
            quantities.PRICE: (0.0, SLOPES[quantities.PRICE][1]),
        }
        means, stds = self._prior.slopes.copy(), self._prior.slopes_std.copy()
        for place, name in enumerate(self._machines.names):
            means[place], stds[place] = slopes[name]
        forms = [*self._forms, *(replace(form, informed=True) for form in self._forms)]
        return replace(self._prior, forms=forms, informed=(means, stds))

    @cached_property
    def _usual_log_time(self) -> tuple[float, float]:
        """Mean and deviation of the log time at the centre of the space, by the limits of the goal."""
        goal, usd_per_s = self._problem.goal, max(self._machines.usual_usd_per_h / 3600, CHEAPEST_USD_PER_S)
        told = [(math.log(NO_IDEA_S), NO_IDEA_DOUBT)]
        if math.isfinite(goal.max_time_s) and goal.max_time_s > 0:
            told.append((math.log(goal.max_time_s), LIMIT_DOUBT))
        if math.isfinite(goal.max_cost_usd) and goal.max_cost_usd > 0:
            told.append((math.log(goal.max_cost_usd / usd_per_s), LIMIT_DOUBT))
        weights = np.array([std**-2 for _, std in told])
        mean = float(weights @ np.array([mean for mean, _ in told]) / weights.sum())
        return mean, float(weights.sum()) ** -0.5

    @cached_property
    def _column_groups(self) -> list[slice]:
        own = [columns for _, columns in self._problem.space.groups if columns.stop > columns.start]
        width = self._problem.space.width
        return [
            *own,
            *(slice(width + place, width + place + 1) for place in range(len(self._machines.names))),
        ]

    @cached_property
    def _forms(self) -> list[Form]:
        """Kernels on the parameters as they are, with the price; or on what they rent."""
        machines, priced = self._machines.names, self._machines.priced
        named = [name for name, columns in self._problem.space.groups if columns.stop > columns.start]
        raw = (*(True for _ in named), *(name == quantities.PRICE for name in machines))
        physical = (*(name not in priced for name in named), *(True for _ in machines))
        forms = [Form(raw), Form(raw, smooth=False), Form(raw, share=0.3)]
        if len(machines) > 1:
            forms += [Form(physical), Form(physical, smooth=False)]
        return forms
