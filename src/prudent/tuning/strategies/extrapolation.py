"""What runs on a part of the data make us believe of the full data: cost and measures at every place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.strategies.beliefs import USUAL_LOG_COST, last_refit
from prudent.tuning.strategies.candidates import FractionCandidates, FractionGrid, Indices
from prudent.tuning.surrogates.gp import Standardization
from prudent.tuning.surrogates.product_gp import (
    Basis,
    FractionSamples,
    FractionShape,
    ProductHyperparameters,
    ProductProcess,
    draw_hyperparameters,
    power_law,
    proportional,
    proportional_in_log,
    saturating,
    saturating_in_log,
)
from prudent.tuning.trial import CUT, Trial

Array = NDArray[np.float64]

SHAPES = {
    "power": (FractionShape(power_law, power=1.0), FractionShape(power_law)),
    "paper": (FractionShape(proportional, plain=True), FractionShape(saturating, plain=True)),
    "code": (FractionShape(proportional_in_log, plain=True), FractionShape(saturating_in_log, plain=True)),
}
"""How log cost and measures depend on the fraction: ours; Fabolas's as its paper prints them; as its code has
them, with the fraction on a log scale. Printed, log cost is a line in s, which overshoots from half to all
data."""
CUT_NOISE = 0.5


"""A cut run is taken at its estimated full cost, with so much more noise relative to the signal."""
CUT_STEP = 0.7
"""Without an estimate its log cost is taken to be so much above where it was cut."""


@dataclass(frozen=True)
class Warp:
    """A scale on which a measure behaves: there and back."""

    name: str
    forward: Callable[[Array], Array]
    back: Callable[[Array], Array]


_EDGE = 1e-4
PLAIN = Warp("plain", lambda y: y, lambda z: z)
LOG = Warp("log", lambda y: np.log(np.maximum(y, 1e-12)), lambda z: np.exp(np.minimum(z, 300.0)))
LOGIT = Warp(
    "logit",
    lambda y: np.log(np.clip(y, _EDGE, 1 - _EDGE) / (1 - np.clip(y, _EDGE, 1 - _EDGE))),
    lambda z: 1.0 / (1.0 + np.exp(-np.clip(z, -50, 50))),
)


def warp_for(values: Array) -> Warp:
    """Shares (accuracy) on the logit scale, other positive measures on the log scale, the rest as they are.

    Errors shrink as powers of the data size, which is a straight line on these scales. And from 0.98 to 0.99
    is a large step there, as it should be: half of the error is gone.
    """
    if (values >= 0).all() and (values <= 1).all():
        return LOGIT
    return LOG if (values > 0).all() else PLAIN


class CurveBelief(Protocol):
    """A Gaussian belief, on a warped scale, at each place of a pool: mean (p,), std (p,)."""

    mean: Array
    std: Array

    def after(self, tests: Indices, targets: Indices) -> tuple[Array, Array]:
        """Mean and std (k, t) at targets after each of k tests came out as predicted."""


class GPCurve:
    """A product process seen at the places of a pool."""

    def __init__(self, process: ProductProcess) -> None:
        self.process = process
        self.mean, self.std = process.mean, process.std

    def after(self, tests: Indices, targets: Indices) -> tuple[Array, Array]:
        std = self.process.std_after(tests, targets)
        return np.broadcast_to(self.mean[targets], std.shape), std


class TreesCurve:
    """Trees fitted to the residuals of a straight line: trees alone cannot extrapolate to more data."""

    def __init__(
        self, samples: FractionSamples, places: Array, fractions: Array, basis: Basis, seed: int, n_trees: int
    ) -> None:
        from prudent.tuning.surrogates.trees import Trees

        X, s, y = samples.X, samples.s, samples.y
        line, doubt = _line(X, s, y, basis)
        residuals = y - np.column_stack([basis(s), X]) @ line
        # Trees that agree are not sure: never below a twentieth of the spread of what was seen.
        floor = max((0.05 * float(y.std())) ** 2, 1e-6)
        self._trees = Trees.fit(
            np.column_stack([X, np.log(s)]),
            residuals,
            rng_for(seed, "trees", len(y)),
            n_trees=n_trees,
            variance_floor=floor,
        )
        self._rows = np.column_stack([places, np.log(fractions)])
        self._trend = np.column_stack([basis(fractions), places]) @ line
        self._beyond = doubt * np.maximum(np.log(fractions / s.max()), 0.0)
        mean, std = self._trees.predict(self._rows)
        self.mean: Array = mean + self._trend
        self.std: Array = np.hypot(std, self._beyond)

    def after(self, tests: Indices, targets: Indices) -> tuple[Array, Array]:
        return self.given(tests, self.mean[tests], targets)

    def given(self, tests: Indices, values: Array, targets: Indices) -> tuple[Array, Array]:
        """Mean and std (k, t) at targets after each of k tests had its value (k,)."""
        rows, trend = self._rows, self._trend
        mean, std = self._trees.fantasies(rows[tests], values - trend[tests], rows[targets])
        return mean + trend[targets], np.hypot(std, self._beyond[targets])


def _line(X: Array, s: Array, y: Array, basis: Basis) -> tuple[Array, float]:
    """Ridge regression on the basis and the features: its coefficients, and the deviation of its slope."""
    design = np.column_stack([basis(s), X])
    ridge = np.diag([1e-3, 1e-2, *([1.0] * X.shape[1])])
    gram = design.T @ design + ridge
    line = np.linalg.solve(gram, design.T @ y)
    noise = float(np.mean((y - design @ line) ** 2)) + 1e-6
    slope = noise * float(np.linalg.inv(gram)[1, 1])
    return line, math.sqrt(slope + 0.1 * noise)


class Extrapolator:
    """Turns a history into curves. Pure in the history; it only remembers settings that it drew before."""

    def __init__(self, grid: FractionGrid, surrogate: str, curves: str, seed: int, n_trees: int = 10) -> None:
        self._grid, self._surrogate, self._seed, self._n_trees = grid, surrogate, seed, n_trees
        self._cost_shape, self._measure_shape = SHAPES[curves]
        self._rows: dict[int, tuple[Array, float, float]] = {}
        self._settings: dict[tuple[object, ...], ProductHyperparameters] = {}

    def log_cost(self, history: History, pool: FractionCandidates) -> CurveBelief:
        """The belief of log(time x price)."""
        trials = [trial for trial in history.working if trial.time_s > 0]
        X, s, log_price = self._samples(trials)
        y = np.log([max(trial.time_s, 1e-6) for trial in trials]) + log_price
        y = y + np.array([_missing(trial) for trial in trials])
        extra = np.array([CUT_NOISE * (trial.status == CUT) for trial in trials])
        samples = FractionSamples(X, s, y, extra)
        return self._curve("cost", trials, samples, self._cost_shape, history, pool)

    def measure(self, name: str, history: History, pool: FractionCandidates) -> tuple[CurveBelief, Warp]:
        """The belief of a measure that runs report at their end, and its scale."""
        trials = [trial for trial in history.trials if trial.finished and name in trial.measures]
        X, s, _ = self._samples(trials)
        values = np.array([trial.measures[name] for trial in trials], dtype=np.float64)
        warp = warp_for(values)
        samples = FractionSamples(X, s, warp.forward(values), np.zeros(len(s)))
        return self._curve(f"{name} {warp.name}", trials, samples, self._measure_shape, history, pool), warp

    def _samples(self, trials: Sequence[Trial]) -> tuple[Array, Array, Array]:
        missing = [trial for trial in trials if trial.number not in self._rows]
        if missing:
            found = self._grid.rows(trial.configuration for trial in missing)
            for trial, row, fraction, log_price in zip(missing, *found, strict=True):
                self._rows[trial.number] = row, float(fraction), float(log_price)
        rows = [self._rows[trial.number] for trial in trials]
        return np.stack([r[0] for r in rows]), np.array([r[1] for r in rows]), np.array([r[2] for r in rows])

    def _curve(
        self,
        name: str,
        trials: Sequence[Trial],
        samples: FractionSamples,
        shape: FractionShape,
        history: History,
        pool: FractionCandidates,
    ) -> CurveBelief:
        fit = self._forest if self._surrogate == "trees" else self._process
        if history.pending:
            # A trial under way counts as if it came out as expected: no second one beside it.
            pending = self._grid.rows(proposal.configuration for proposal in history.pending)[:2]
            there = fit(name, trials, samples, shape, *pending)
            samples = FractionSamples(
                np.concatenate([samples.X, pending[0]]),
                np.concatenate([samples.s, pending[1]]),
                np.concatenate([samples.y, there.mean]),
                np.concatenate([samples.extra_noise, np.zeros(len(there.mean))]),
            )
        return fit(name, trials, samples, shape, pool.features, pool.fractions)

    def _process(
        self,
        name: str,
        trials: Sequence[Trial],
        samples: FractionSamples,
        shape: FractionShape,
        places: Array,
        fractions: Array,
    ) -> CurveBelief:
        usual = USUAL_LOG_COST if name == "cost" else None
        groups, size = self._grid.groups, last_refit(len(trials))
        key = (name, *(trial.number for trial in trials[:size]))
        if key not in self._settings:
            first = samples.first(size).without(shape)
            self._settings[key] = draw_hyperparameters(
                first.scaled(Standardization.of(first.y, usual)), shape, groups, self._seed
            )
        settings = self._settings[key]
        return GPCurve(
            ProductProcess.fit(samples, places, fractions, shape, groups, self._seed, settings, usual)
        )

    def _forest(
        self,
        name: str,
        trials: Sequence[Trial],
        samples: FractionSamples,
        shape: FractionShape,
        places: Array,
        fractions: Array,
    ) -> CurveBelief:
        del name, trials
        return TreesCurve(samples, places, fractions, shape.basis, self._seed, self._n_trees)


def _missing(trial: Trial) -> float:
    """How much log cost is believed to be missing from a run that was cut."""
    if trial.status != CUT:
        return 0.0
    estimate = trial.estimate.get("time_s")
    return max(math.log(estimate / trial.time_s), 0.0) if estimate else CUT_STEP
