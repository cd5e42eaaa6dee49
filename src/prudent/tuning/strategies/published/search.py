"""Constrained improvement as the papers write it: Gaussians over dollars, from trees or a Gaussian process.

OBOL, Lynceus, CherryPick, GP-EI, GP-EIc and Nephele differ in a few settings (`presets`). What our own
strategies add is left out: no prior about prices, no censored samples, no cut at a surprise, no scale in
logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.core.units import format_money
from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.acquisition import expected_improvement, probability_below
from prudent.tuning.strategies.beliefs import Belief, TreesBelief
from prudent.tuning.strategies.candidates import candidate_pool
from prudent.tuning.strategies.initial_design import initial_configurations
from prudent.tuning.strategies.lookahead import (
    Acquisition,
    LookaheadSettings,
    Mask,
    ScoredCandidate,
    choose,
)
from prudent.tuning.strategies.published.extrapolators import CutRun, extrapolated_usd, extrapolators
from prudent.tuning.strategies.strategy import best_configuration, require
from prudent.tuning.surrogates.gp import GaussianProcess
from prudent.tuning.trial import CUT, Configuration, Proposal, Trial

Array = NDArray[np.float64]

SURE = 1e-9
"""A deviation below this share of the mean is none: expected improvement is then 0 (Lynceus, equation 2)."""
AGREED = 1.001
"""The deviation of trees that agree is told as the root of a floor: no more than rounding lies between."""
LEAST_USD = 1e-9


@dataclass(frozen=True)
class PublishedOptions:
    """The settings in which the papers differ.

    feasible: Γ is what the money left pays with `confidence` ("money"), what keeps every limit by its
    predicted means ("means", with a random run where that is nothing), or everything ("any").
    per_dollar: take the best reward over cost, not the best reward. constrained: weigh improvement by the
    chance that the goal is kept, and answer with a run that keeps it. scale: what a Gaussian is fitted to.
    start_share, start_usd: first runs are this share of the configurations, or go on until so much is spent.
    monitor_s: early time-outs are noticed at multiples of this only ("discrete"); 0 at once ("ideal").
    stop_below, least_trials: end when the reward is below this share of the best, after so many runs at
    least.
    """

    surrogate: Literal["trees", "gp"] = "trees"
    trees: int = 10
    scale: Literal["dollars", "log"] = "dollars"
    lookahead: int = 0
    nodes: int = 3
    accuracy_nodes: int = 1
    gamma: float = 0.9
    epsilon: float = 0.0
    confidence: float = 0.99
    feasible: Literal["money", "means", "any"] = "money"
    per_dollar: bool = True
    constrained: bool = True
    start: Literal["random", "latin"] = "random"
    start_trials: int = 5
    start_share: float = 0.0
    start_usd: float = 0.0
    extrapolation: str = "linear"
    monitor_s: float = 0.0
    stop_below: float = 0.0
    least_trials: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.lookahead <= 5, "lookahead must be 0 to 5, as in the papers.")
        require(1 <= self.nodes <= 9 and 1 <= self.accuracy_nodes <= 9, "nodes must be 1 to 9; 3 is usual.")
        require(0 <= self.gamma <= 1, "gamma must be 0 to 1; 0.9 is the papers'.")
        require(self.epsilon >= 0, "epsilon must be $0 or more; 0 goes on while there is money.")
        require(0.5 <= self.confidence < 1, "confidence must be 0.5 to below 1; 0.99 is the papers'.")
        require(self.start_trials >= 1, "start_trials must be at least 1; 5 is the papers'.")
        require(0 <= self.start_share < 1, "start_share must be 0 to below 1; 0.03 is the thesis's.")
        require(self.start_usd >= 0, "start_usd must be $0 or more; 5 is the thesis's.")
        require(self.trees >= 2, "trees must be at least 2; 10 is the papers'.")
        require(self.monitor_s >= 0, "monitor_s must be 0 s or more; 30 is the paper's.")
        require(self.stop_below >= 0, "stop_below must be 0 or more; 0.1 is CherryPick's.")
        known = ", ".join(extrapolators())
        require(self.extrapolation in extrapolators(), f"extrapolation must be one of {known}.")


@dataclass(frozen=True, eq=False)
class PublishedAcquisition(Acquisition):
    """What the goal makes of Gaussians over dollars: EIc = EI · P(limits hold), the predicted mean as bill.

    cost_mean and cost_std are in dollars, or their logarithm where `log` says so; bound is on the same scale.
    agreed: the deviation of trees that all say the same.
    """

    log: bool = False
    by_means: bool = False
    agreed: float = 0.0

    def reward(self, mean: Array, std: Array, best: Array | float, holds: Array | None = None) -> Array:
        """EI(x) · P(constraint) (OBOL equation 1, Lynceus 3); 0 where all trees agree (Lynceus 2)."""
        least = SURE * np.maximum(np.abs(mean), LEAST_USD)
        unsure, std = std > np.maximum(least, AGREED * self.agreed), np.maximum(std, least)
        gain = np.where(unsure, expected_improvement(mean, std, best), 0.0)
        return gain * probability_below(mean, std, self.bound) * (self.holds if holds is None else holds)

    def bill(self, mean: Array, std: Array, best: Array | float, money_left: Array | float) -> Array:
        """C(x): the predicted mean in dollars."""
        predicted = mean if self.is_cost else np.broadcast_to(self.cost_mean, np.shape(mean))
        return np.maximum(np.exp(np.minimum(predicted, 300.0)) if self.log else predicted, LEAST_USD)

    def affordable(self, mean: Array, std: Array, money_left: Array | float, confidence_z: float) -> Mask:
        """Γ (Algorithm 2, line 3): P(C(x) <= B) >= confidence; or by means (thesis, Algorithm 3, line 2)."""
        if not self.is_cost:
            mean, std = self.cost_mean, self.cost_std
        money = np.log(np.maximum(money_left, LEAST_USD)) if self.log else money_left
        if self.by_means:
            return np.asarray((mean <= money) & (mean <= self.bound))
        return np.asarray(mean + confidence_z * std <= money)

    def paid(self, outcomes: Array, last: NDArray[np.int64], bests: Array) -> Array:
        """What a pretended outcome takes from the budget."""
        usd = outcomes if self.is_cost else self.cost_mean[last]
        return np.asarray(np.exp(np.minimum(usd, 300.0)) if self.log else np.maximum(usd, 0.0))

    def possible(self, outcomes: Array) -> Array:
        """No run costs nothing: nodes at or below $0 are passed over, as in the authors' published code."""
        if not self.is_cost or self.log:
            return np.ones_like(outcomes)
        return np.asarray(outcomes > 0, dtype=np.float64)


class PublishedSearch:
    """Sequential model-based optimisation within a budget (OBOL Algorithm 1, Lynceus Algorithm 1)."""

    Options: type[PublishedOptions] = PublishedOptions

    def __init__(self, problem: Problem, options: PublishedOptions, seed: int) -> None:
        self._problem, self._options, self._seed = problem, options, seed
        self._starts: dict[int, list[Configuration]] = {}

    def propose(self, history: History, money_left: float) -> Proposal | None:
        if self._is_early(history):
            return self._initial(history)
        pool, allowed = candidate_pool(self._problem, history, self._seed, self._full_only)
        allowed = allowed & self._eligible(pool)
        belief, acquisition = self._acquisition(history, pool)
        choice = self._choose(history, belief, acquisition, allowed, money_left)
        if choice is None or self._is_enough(choice, history):
            return None
        why = f"expects to gain {choice.reward:.3g} for about {format_money(choice.bill_usd)}"
        return Proposal(
            pool.configurations[choice.index],
            why,
            expected_usd=choice.bill_usd,
            likely_usd=min(2 * choice.bill_usd, money_left),
            check_s=self._options.monitor_s,
        )

    def recommend(self, history: History) -> Configuration | None:
        """The best run that keeps the goal; without constraints in the choice there are none here either."""
        if self._options.constrained:
            return best_configuration(history)
        goal = history.goal
        told = [trial for trial in history if trial.finished and goal.measure in trial.values]
        best = min(told, key=lambda trial: goal.loss(trial.values[goal.measure]), default=None)
        return None if best is None else dict(best.configuration)

    @property
    def _full_only(self) -> bool:
        """Runs on a part of the data are for Nephele."""
        return self._problem.fraction is not None

    def _eligible(self, pool: Candidates) -> Mask:
        if not self._full_only:
            return np.ones(len(pool), dtype=np.bool_)
        return np.array([self._problem.is_full(c) for c in pool.configurations], dtype=np.bool_)

    # The first runs

    @property
    def _count(self) -> int:
        """How many runs there are at first, where money does not say so."""
        options, size = self._options, self._problem.space.size
        if not options.start_share or size is None:
            return options.start_trials
        if self._full_only and self._problem.listed:
            size = sum(self._problem.is_full(c) for c in self._problem.everything.configurations)
        return max(round(options.start_share * size), 2)

    def _is_early(self, history: History) -> bool:
        if self._options.start_usd:
            spent = sum(trial.spent_usd for trial in history)
            spent += sum(proposal.expected_usd or 0.0 for proposal in history.pending)
            if spent < self._options.start_usd:
                return True
        elif len(history) + len(history.pending) < self._count:
            return True
        return not self._told(history)

    def _told(self, history: History) -> bool:
        """Whether every model has a sample."""
        measures = [name for name in history.goal.measures if name not in (COST, TIME)]
        if not any(trial.time_s > 0 for trial in history.working):
            return False
        return all(any(name in trial.measures for trial in history) for name in measures)

    def _initial(self, history: History) -> Proposal | None:
        key = self._problem.space.key
        tried = {key(c) for c in history.configurations}
        count = max(self._count, 2 * len(tried) + 1)
        if self._options.start == "random":
            count = 1 << count.bit_length()  # the same order however many are wanted
        if count not in self._starts:
            self._starts[count] = initial_configurations(
                self._problem, self._options.start, count, self._seed, self._full_only
            )
        fresh = next((c for c in self._starts[count] if key(c) not in tried), None)
        if fresh is None:
            return None
        return Proposal(fresh, f"first look, {self._options.start} start", check_s=self._options.monitor_s)

    # The choice

    def _choose(
        self, history: History, belief: Belief, acquisition: PublishedAcquisition, allowed: Mask, money: float
    ) -> ScoredCandidate | None:
        from scipy.special import ndtri

        options, best = self._options, self._best_loss(history, belief)
        z = float(ndtri(options.confidence))
        feasible = allowed
        if options.feasible != "any":
            feasible = allowed & acquisition.affordable(belief.mean, belief.std, money, z)
        if options.feasible == "means":
            for margin in acquisition.margins:
                feasible = feasible & (margin.mean >= 0)
            if not feasible.any() and allowed.any():
                return self._random(history, belief, acquisition, allowed)
        if not feasible.any():
            return None
        if options.per_dollar:
            settings = LookaheadSettings(
                options.lookahead, options.nodes, options.gamma, z, options.accuracy_nodes
            )
            return choose(acquisition, belief, feasible, best, money, settings)
        reward = np.where(feasible, acquisition.reward(belief.mean, belief.std, best), -1.0)
        index = int(reward.argmax())
        bill = acquisition.bill(belief.mean, belief.std, best, money)
        return ScoredCandidate(index, float(reward[index]), float(bill[index]))

    def _random(
        self, history: History, belief: Belief, acquisition: PublishedAcquisition, allowed: Mask
    ) -> ScoredCandidate:
        """Nothing is predicted to keep the limits: any untested run (thesis, Algorithm 3, line 4)."""
        rng = rng_for(self._seed, "published random", len(history) + len(history.pending))
        index = int(rng.choice(np.flatnonzero(allowed)))
        bill = acquisition.bill(belief.mean, belief.std, 0.0, math.inf)
        return ScoredCandidate(index, math.inf, float(bill[index]))

    def _is_enough(self, choice: ScoredCandidate, history: History) -> bool:
        """Whether U <= ε in dollars (Algorithm 1, line 5), or by CherryPick's own rule."""
        options, best = self._options, history.best
        if options.stop_below and len(history) >= options.least_trials and best is not None:
            least = abs(best.values[history.goal.measure]) * options.stop_below
            return choice.reward < least
        return bool(options.epsilon) and choice.reward <= options.epsilon

    def _best_loss(self, history: History, belief: Belief) -> float:
        """y*: the best run that keeps the goal; while there is none, the worst one and three deviations."""
        goal = history.goal
        kept = [t for t in history if t.finished and (t.feasible or not self._options.constrained)]
        told = [self._loss(t.values[goal.measure]) for t in kept if goal.measure in t.values]
        if told:
            return min(told)
        seen = [self._loss(t.values[goal.measure]) for t in history.working if goal.measure in t.values]
        return max(seen, default=float(belief.mean.max())) + 3.0 * float(belief.std.max())

    # The models

    def _acquisition(self, history: History, pool: Candidates) -> tuple[Belief, PublishedAcquisition]:
        """The belief of the objective, and what the goal makes of all beliefs at the candidates."""
        goal, log, size = history.goal, self._options.scale == "log", len(pool)
        trials = [trial for trial in history.working if trial.time_s > 0]
        cost = self._belief(trials, self._costs(trials, history), pool, history)
        limit = np.full(size, np.inf)
        for constraint in goal.constraints:
            if constraint.is_upper and constraint.measure in (COST, TIME):
                usd = constraint.bound * (1.0 if constraint.measure == COST else pool.usd_per_s)
                limit = np.minimum(limit, usd)
        limit = np.log(np.maximum(limit, LEAST_USD)) if log else limit
        is_cost = goal.measure == COST
        margins = self._margins(history, pool)
        others = np.ones(size) if is_cost else probability_below(cost.mean, cost.std, limit)
        free = np.full(size, np.inf)
        if not self._options.constrained:
            limit, others, margins = free, np.ones(size), ()
        objective = cost if is_cost else self._objective(history, pool)
        acquisition = PublishedAcquisition(
            is_cost, cost.mean, cost.std, limit if is_cost else free, -free, others, free, False, margins,
            log=log, by_means=self._options.feasible == "means",
            agreed=objective.least_std if isinstance(objective, TreesBelief) else 0.0,
        )  # fmt: skip
        return objective, acquisition

    def _objective(self, history: History, pool: Candidates) -> Belief:
        measure = history.goal.measure
        told = [trial for trial in history if trial.finished and measure in trial.values]
        losses = np.array([self._loss(trial.values[measure]) for trial in told])
        return self._belief(told, losses, pool, history)

    def _margins(self, history: History, pool: Candidates) -> tuple[Belief, ...]:
        """How far each measure keeps its bound, in its own unit; at least 0 where it does."""
        found = []
        for constraint in history.goal.constraints:
            if constraint.measure in (COST, TIME):
                continue
            told = [trial for trial in history if constraint.measure in trial.measures]
            sign = -1.0 if constraint.is_upper else 1.0
            values = np.array([sign * (t.measures[constraint.measure] - constraint.bound) for t in told])
            found.append(self._belief(told, values, pool, history))
        return tuple(found)

    def _loss(self, value: float) -> float:
        """An objective on the scale of its Gaussian."""
        goal = self._problem.goal
        if goal.measure in (COST, TIME) and self._options.scale == "log":
            value = math.log(max(value, LEAST_USD))
        return goal.loss(value)

    def _costs(self, trials: Sequence[Trial], history: History) -> Array:
        """What the cost model is fitted to: what runs cost, and estimates for those that were cut."""
        finished = [trial for trial in trials if trial.status != CUT]
        usd = []
        for trial in trials:
            cost = trial.cost_usd
            if trial.status == CUT:
                cost = extrapolated_usd(self._options.extrapolation, self._cut_run(trial, finished, history))
            usd.append(max(cost, LEAST_USD))
        return np.log(usd) if self._options.scale == "log" else np.array(usd)

    def _cut_run(self, trial: Trial, finished: Sequence[Trial], history: History) -> CutRun:
        if self._options.extrapolation != "truncated" or not finished:
            return CutRun(trial, history.goal)
        here = self._problem.candidates([trial.configuration])
        belief = self._belief(finished, np.array([other.cost_usd for other in finished]), here, history)
        return CutRun(trial, history.goal, float(belief.mean[0]), float(belief.std[0]))

    def _belief(self, trials: Sequence[Trial], values: Array, pool: Candidates, history: History) -> Belief:
        """A model of values at the candidates; a trial under way counts as if it came out as expected."""
        rows = self._features(self._problem.candidates(trial.configuration for trial in trials))
        pending = self._features(self._problem.candidates(p.configuration for p in history.pending))
        if len(pending):
            there = self._fitted(rows, values, pending, len(history))
            rows, values = np.concatenate([rows, pending]), np.concatenate([values, there.mean])
        return self._fitted(rows, values, self._features(pool), len(history))

    def _fitted(self, rows: Array, values: Array, places: Array, step: int) -> Belief:
        if self._options.surrogate == "gp":
            groups = [columns for _, columns in self._problem.space.groups if columns.stop > columns.start]
            return GaussianProcess.fit(rows, values, places, groups, self._seed)
        from prudent.tuning.surrogates.trees import Trees

        rng = rng_for(self._seed, "published trees", step)
        floor = max((SURE * float(np.abs(values).max())) ** 2, 1e-30)
        trees = Trees.fit(rows, values, rng, n_trees=self._options.trees, variance_floor=floor)
        return TreesBelief(trees, places)

    def _features(self, candidates: Candidates) -> Array:
        """The parameters alone: the price is no feature in the papers."""
        return np.ascontiguousarray(candidates.features[:, : self._problem.space.width])
