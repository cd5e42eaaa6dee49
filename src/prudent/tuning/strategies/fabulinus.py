"""Fabolas and Fabulinus: learn on a part of the data which configuration is best on all of it.

Maximise A(x, 1) subject to C(x, 1) <= C_max (or any goal about the full data), testing only fractions s < 1.
After a thrifty start each step runs the (x, s) that tells most about the optimum at s = 1 per dollar. The
answer is the best predicted configuration at s = 1, tested or not, among those that keep the constraints
almost surely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.core.units import format_money
from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.acquisition import hermite_nodes
from prudent.tuning.strategies.beliefs import SurrogateFitter
from prudent.tuning.strategies.candidates import FractionCandidates, FractionGrid, Indices
from prudent.tuning.strategies.entropy import (
    PosteriorDraws,
    information,
    information_of_marginals,
    joint_draws,
)
from prudent.tuning.strategies.extrapolation import CurveBelief, Extrapolator, GPCurve, TreesCurve, Warp
from prudent.tuning.strategies.goal_posterior import (
    FeasibleInterval,
    GoalPosterior,
    bill_usd,
    goal_posterior,
    prediction_of,
)
from prudent.tuning.strategies.initial_design import ScalingDesign
from prudent.tuning.strategies.strategy import require
from prudent.tuning.trial import Configuration, Proposal

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FabolasOptions:
    """How Fabolas thinks; the defaults are those that our benchmarks chose.

    `curves: paper` takes the bases of the paper, without trend and bends, `code` those of its published code,
    which has the fraction on a log scale; `start_fractions: every` runs each
    first configuration at every fraction below 1, as the paper does; `overhead_usd`, the value of the time
    that deciding and starting take, is added to the bill of a test; `epsilon` ends the search when no test
    tells more than this many nats.
    """

    surrogate: Literal["gp", "trees"] = "gp"
    curves: Literal["power", "paper", "code"] = "power"
    representers: int = 40
    draws: int = 32
    breadth: int = 256
    nodes: int = 3
    overhead_usd: float = 0.003
    start: Literal["price", "latin", "random", "sobol"] = "latin"
    start_configurations: int = 6
    start_fractions: Literal["thrifty", "every"] = "thrifty"
    confidence: float = 0.99
    trees: int = 10
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        require(self.representers >= 2, "representers must be at least 2; 40 is usual.")
        require(self.draws >= 8, "draws must be at least 8; 32 per setting of the model is usual.")
        require(self.breadth >= 1, "breadth must be at least 1; so many tests are looked at closely.")
        require(1 <= self.nodes <= 9, "nodes must be 1 to 9; 3 is usual.")
        require(self.overhead_usd > 0, "overhead_usd must be above 0; a tenth of a cent is little.")
        require(self.start_configurations >= 2, "start_configurations must be at least 2.")
        require(
            0.5 <= self.confidence < 1, "confidence must be at least 0.5 and below 1; 0.99 is the paper's."
        )
        require(self.trees >= 2, "trees must be at least 2; 10 is usual.")
        require(self.epsilon >= 0, "epsilon must be 0 or more; 0 goes on while there is money.")


@dataclass(frozen=True)
class FabulinusOptions(FabolasOptions):
    """How Fabulinus keeps the constraints in sight.

    `acquisition: es` is the paper's ES · CEA, evaluated on the share `beta` of the tests that is best by CEA.
    `constrained` searches for the optimum among draws that keep the constraints, so a test is worth what it
    tells of the objective and of the constraints.
    """

    acquisition: Literal["constrained", "es"] = "constrained"
    beta: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.beta <= 1, "beta must be above 0 and at most 1; a tenth is the usual.")


@dataclass(frozen=True, eq=False)
class ModelSnapshot:
    """What is believed at one moment."""

    pool: FractionCandidates
    cost: CurveBelief
    measures: dict[str, tuple[CurveBelief, Warp]]
    posterior: GoalPosterior


class Fabolas:
    """Entropy search per dollar; constraints only judge the answer."""

    Options: type = FabolasOptions

    def __init__(self, problem: Problem, options: FabolasOptions, seed: int) -> None:
        self._problem, self._options, self._seed = problem, options, seed
        self._grid = FractionGrid(problem, seed)
        self._extrapolator = Extrapolator(self._grid, options.surrogate, options.curves, seed, options.trees)
        self._fitter = SurrogateFitter(problem, "gp", seed)
        self._first = ScalingDesign(
            problem,
            self._grid.ladder[:-1],
            options.start,
            options.start_configurations,
            options.start_fractions == "every",
            seed,
        )
        self._snapshots: dict[tuple[object, ...], ModelSnapshot] = {}

    def propose(self, history: History, money_left: float) -> Proposal | None:
        first = self._first.next(history, money_left)
        if first is not None:
            return first
        if not self._told(history):
            return None
        snapshot = self._snapshot(history)
        tests = self._affordable(snapshot, money_left)
        if not len(tests):
            return None
        bill = bill_usd(snapshot.pool, snapshot.cost, tests) + self._options.overhead_usd
        told = self._information(snapshot, tests, bill)
        index = int((told / bill).argmax())
        if told[index] <= self._options.epsilon and self._options.epsilon > 0:
            return None
        place, usd = tests[index], float(bill[index]) - self._options.overhead_usd
        likely = usd * math.exp(2.0 * min(float(snapshot.cost.std[place]), 1.0))
        why = f"tells most about the full data per dollar, for about {format_money(usd)}"
        chosen = snapshot.pool.candidates.configurations[place]
        return Proposal(dict(chosen), why, expected_usd=usd, likely_usd=min(likely, money_left))

    def recommend(self, history: History) -> Configuration | None:
        if not self._told(history):
            return None
        snapshot = self._snapshot(history)
        place = snapshot.posterior.recommended(snapshot.pool.full, self._options.confidence)
        return dict(snapshot.pool.candidates.configurations[place])

    def predict(self, history: History, configuration: Configuration) -> dict[str, float]:
        """What is expected of a configuration on the full data, and how surely; see `PredictiveStrategy`."""
        if not self._told(history):
            return {}
        at_full = self._problem.with_fraction(configuration, self._grid.ladder[-1])
        pool = self._grid.pool_of(self._problem.candidates([at_full]), history)
        snapshot = self._fitted(history, pool)
        return prediction_of(snapshot.pool, snapshot.cost, snapshot.measures, snapshot.posterior)

    def _told(self, history: History) -> bool:
        """Whether there is something to learn from: a run with a time, and every measure of the goal."""
        if not any(trial.time_s > 0 for trial in history.working):
            return False
        ended = [trial for trial in history if trial.finished]
        return all(any(name in trial.measures for trial in ended) for name in self._reported)

    @property
    def _reported(self) -> tuple[str, ...]:
        """The goal's measures that runs report themselves."""
        return tuple(name for name in self._problem.goal.measures if name not in (COST, TIME))

    def _snapshot(self, history: History) -> ModelSnapshot:
        key = (*(t.number for t in history), *(str(p.configuration) for p in history.pending))
        if key not in self._snapshots:
            self._snapshots = {key: self._fitted(history, self._grid.pool_for(history))}
        return self._snapshots[key]

    def _fitted(self, history: History, pool: FractionCandidates) -> ModelSnapshot:
        cost = self._extrapolator.log_cost(history, pool)
        measures = {name: self._extrapolator.measure(name, history, pool) for name in self._reported}
        works = self._works(history, pool.candidates)
        return ModelSnapshot(
            pool, cost, measures, goal_posterior(self._problem.goal, pool, cost, measures, works)
        )

    def _works(self, history: History, candidates: Candidates) -> Array:
        return self._fitter.works(history, candidates)

    def _affordable(self, snapshot: ModelSnapshot, money_left: float) -> Indices:
        """Untried tests that the money left pays for, even if they cost one deviation more than expected."""
        tests, cost = snapshot.pool.tests, snapshot.cost
        billed = snapshot.pool.candidates
        upper = cost.mean[tests] + cost.std[tests]
        own_usd = np.maximum(money_left - billed.beside_usd[tests], 1e-12)
        return tests[(upper <= np.log(own_usd)) & billed.payable(money_left)[tests]]

    def _information(self, snapshot: ModelSnapshot, tests: Indices, bill: Array) -> Array:
        """How much each test (k,), which costs its bill (k,), tells about the optimum on the full data."""
        objective = snapshot.posterior.objective
        full = snapshot.pool.full
        hope = snapshot.posterior.sign * (objective.curve.mean + objective.offset) + objective.curve.std
        return self._searched(snapshot, tests, bill, self._foremost(full, hope[full]), ())

    def _foremost(self, full: Indices, hope: Array) -> Indices:
        """The representers: places where the optimum is likely to be."""
        return full[np.argsort(-hope, kind="stable")[: self._options.representers]]

    def _searched(
        self,
        snapshot: ModelSnapshot,
        tests: Indices,
        bill: Array,
        chosen: Indices,
        intervals: tuple[FeasibleInterval, ...],
    ) -> Array:
        """Entropy search for the optimum among representers, within intervals if there are any.

        Only the tests that shrink the variance of the representers most per dollar are searched: a test that
        moves none of them tells nothing.
        """
        objective = snapshot.posterior.objective
        if isinstance(objective.curve, TreesCurve):
            return self._searched_in_trees(snapshot, tests, chosen)
        assert isinstance(objective.curve, GPCurve)
        curves: list[tuple[CurveBelief, FeasibleInterval | None]] = [(objective.curve, None)]
        for interval in intervals:
            if interval.curve is objective.curve:
                curves[0] = (interval.curve, interval)
            else:
                curves.append((interval.curve, interval))
        shrunk = np.sum([_shrunk(curve, tests, chosen) for curve, _ in curves], axis=0) / bill
        kept = np.sort(np.argsort(-shrunk, kind="stable")[: self._options.breadth])
        rng = rng_for(self._seed, "draws")
        settings = len(objective.curve.process.components)
        out = np.zeros(len(kept))
        for h in range(settings):
            beliefs = [
                self._drawn(curve, interval, h, tests[kept], chosen, rng) for curve, interval in curves
            ]
            offset = objective.offset[chosen]
            out += information(beliefs, snapshot.posterior.sign, offset, self._options.nodes)
        told = np.zeros(len(tests))
        told[kept] = np.maximum(out / settings, 1e-9)
        return told

    def _drawn(
        self,
        curve: CurveBelief,
        interval: FeasibleInterval | None,
        h: int,
        tests: Indices,
        chosen: Indices,
        rng: np.random.Generator,
    ) -> PosteriorDraws:
        assert isinstance(curve, GPCurve)
        normals = rng.standard_normal((self._options.draws, len(chosen) + 1))
        bounds = None if interval is None else (interval.lower[chosen], interval.upper[chosen])
        return joint_draws(curve.process, h % len(curve.process.components), tests, chosen, normals, bounds)

    def _searched_in_trees(self, snapshot: ModelSnapshot, tests: Indices, chosen: Indices) -> Array:
        objective, sign = snapshot.posterior.objective, snapshot.posterior.sign
        curve = objective.curve
        assert isinstance(curve, TreesCurve)
        line, weights = hermite_nodes(self._options.nodes)
        outcomes = curve.mean[tests][:, None] + curve.std[tests][:, None] * line
        repeated = np.repeat(tests, len(line))
        mean, std = curve.given(repeated, outcomes.reshape(-1), chosen)
        shape = (len(tests), len(line), len(chosen))
        offset = objective.offset[chosen]
        normals = rng_for(self._seed, "draws").standard_normal((8 * self._options.draws, len(chosen)))
        after = (sign * (mean + offset)).reshape(shape), std.reshape(shape)
        now = sign * (curve.mean[chosen] + offset), curve.std[chosen]
        return np.maximum(information_of_marginals(*after, weights, now, normals), 1e-9)


def _shrunk(curve: CurveBelief, tests: Indices, targets: Indices) -> Array:
    """How much of the variance of a curve at targets each test takes away (k,), on average."""
    assert isinstance(curve, GPCurve)
    left = curve.process.shrinkage(tests, targets)
    return np.asarray(left / max(float(left.max()), 1e-12))


class Fabulinus(Fabolas):
    """Entropy search per dollar that keeps the constraints in sight."""

    Options = FabulinusOptions

    def _information(self, snapshot: ModelSnapshot, tests: Indices, bill: Array) -> Array:
        options, posterior, full = self._options, snapshot.posterior, snapshot.pool.full
        assert isinstance(options, FabulinusOptions)
        if not posterior.intervals:
            return super()._information(snapshot, tests, bill)
        if options.acquisition == "constrained" and options.surrogate == "gp":
            chosen = self._foremost(full, self._hope(snapshot))
            return self._searched(snapshot, tests, bill, chosen, posterior.intervals)
        promise = posterior.cea(tests, full, options.confidence)
        out = np.zeros(len(tests))
        count = max(1, math.ceil(options.beta * len(tests)))
        luck = rng_for(self._seed, "beta", len(tests)).random(len(tests))
        best = np.lexsort((luck, -promise))[:count]
        out[best] = super()._information(snapshot, tests[best], bill[best]) * promise[best]
        return out

    def _hope(self, snapshot: ModelSnapshot) -> Array:
        """An optimistic look at every configuration: its value times the chance that it is allowed."""
        posterior, full = snapshot.posterior, snapshot.pool.full
        curve = posterior.objective.curve
        value = posterior.value(curve.mean[full] + posterior.sign * curve.std[full], full)
        chance = posterior.works[full].copy()
        for interval in posterior.intervals:
            mean, std = interval.curve.mean[full], interval.curve.std[full]
            nearest = np.clip(mean, interval.lower[full], interval.upper[full])
            mean = mean + np.clip(nearest - mean, -std, std)
            chance *= interval.probability(mean, std, full)
        low = float(value.min())
        return (value - low + 1e-12) * chance
