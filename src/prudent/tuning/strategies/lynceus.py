"""OBOL and Lynceus: look-ahead Bayesian optimisation that counts every dollar.

Minimise C(x) subject to constraints while the sum of what is spent stays within the budget. After a few first
runs each decision weighs expected, constrained improvement, with the future it opens, against what it costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prudent.core.units import format_money
from prudent.tuning.goal import COST, TIME, Constraint
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.acquisition import probability_below
from prudent.tuning.strategies.beliefs import CHEAPEST_USD_PER_S, Belief, ShiftedBelief, SurrogateFitter
from prudent.tuning.strategies.candidates import candidate_pool
from prudent.tuning.strategies.initial_design import first_affordable, initial_configurations
from prudent.tuning.strategies.lookahead import (
    Acquisition,
    LookaheadSettings,
    Mask,
    ScoredCandidate,
    choose,
    explore,
)
from prudent.tuning.strategies.strategy import best_configuration, require
from prudent.tuning.trial import Configuration, Proposal

Array = NDArray[np.float64]

SURPRISE_FACTOR, SURPRISE_SHARE = 4.0, 0.25
"""A run is cut when its bill passes this many times what was expected and this share of the money left:
one bad guess, say about a far dearer cluster, must not eat the budget."""


@dataclass(frozen=True)
class LynceusOptions:
    """How Lynceus thinks; the defaults are those that our benchmarks chose."""

    lookahead: int = 0
    nodes: int = 3
    gamma: float = 0.9
    epsilon: float = 0.0
    start: Literal["price", "latin", "random", "sobol"] = "price"
    start_trials: int = 4
    surrogate: Literal["gp", "trees"] = "gp"
    trees: int = 10
    confidence: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.lookahead <= 4, "lookahead must be 0 to 4; each step costs `nodes` times more.")
        require(1 <= self.nodes <= 9, "nodes must be 1 to 9; 3 is usual.")
        require(0 < self.gamma <= 1, "gamma must be above 0 and at most 1; 0.9 is usual.")
        require(self.epsilon >= 0, "epsilon must be 0 or more; 0 goes on while there is money.")
        require(self.start_trials >= 1, "start_trials must be at least 1.")
        require(self.trees >= 2, "trees must be at least 2; 10 is usual.")
        require(
            0.5 <= self.confidence < 1, "confidence must be at least 0.5 and below 1; 0.99 is the paper's."
        )


@dataclass(frozen=True)
class ObolOptions(LynceusOptions):
    """As the paper has it: trees, a random start, two steps ahead, 99 % sure of paying."""

    lookahead: int = 2
    start: Literal["price", "latin", "random", "sobol"] = "random"
    start_trials: int = 12
    surrogate: Literal["gp", "trees"] = "trees"
    confidence: float = 0.99


class Lynceus:
    """Constrained expected improvement per dollar, looking ahead."""

    Options: type[LynceusOptions] = LynceusOptions

    def __init__(self, problem: Problem, options: LynceusOptions, seed: int) -> None:
        self._problem = problem
        self._options = options
        self._seed = seed
        self._fitter = SurrogateFitter(problem, options.surrogate, seed, options.trees)
        self._starts: dict[int, list[Configuration]] = {}

    def propose(self, history: History, money_left: float) -> Proposal | None:
        if self._is_early(history):
            return self._initial(history, money_left)
        pool, allowed = self._candidates(history, money_left)
        if not allowed.any():
            return None
        belief, acquisition = self._acquisition(history, pool)
        best = self._best_loss(history, belief)
        if self._weighs_price(history):
            allowed = allowed & self._worth_their_price(acquisition, belief, best, money_left)
        choice = self._choose(acquisition, belief, allowed, best, money_left)
        if choice is not None and choice.reward <= 0 and history.best is None:
            choice = explore(acquisition, belief, allowed, best, money_left)
        elif choice is None or self._is_enough(choice, history):
            return None
        likely = math.exp(float(acquisition.cost_mean[choice.index] + 2 * acquisition.cost_std[choice.index]))
        return Proposal(
            pool.configurations[choice.index],
            self._why(acquisition, choice.index, choice.bill_usd),
            expected_usd=choice.bill_usd,
            likely_usd=min(likely, money_left),
            cap_usd=max(SURPRISE_FACTOR * choice.bill_usd, SURPRISE_SHARE * money_left),
        )

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)

    def why_enough(self, history: History, money_left: float) -> str:
        if self._is_early(history) or not self._weighs_price(history):
            return ""
        pool, allowed = self._candidates(history, money_left)
        if not allowed.any():
            return ""
        belief, acquisition = self._acquisition(history, pool)
        best = self._best_loss(history, belief)
        if (allowed & self._worth_their_price(acquisition, belief, best, money_left)).any():
            return ""
        return f"no further trial was expected to save its own price over {self._planned_runs}"

    @property
    def _planned_runs(self) -> str:
        runs = self._problem.goal.runs_planned
        return "the one run that is planned" if runs == 1 else f"the {runs:,} runs that are planned"

    def _weighs_price(self, history: History) -> bool:
        """Whether a trial must earn its price: something keeps the goal, and will run so many times."""
        return self._problem.goal.runs_planned is not None and history.best is not None

    def _worth_their_price(
        self, acquisition: Acquisition, belief: Belief, best: float, money_left: float
    ) -> Mask:
        """Candidates whose trial is expected to cost less than it saves over all planned runs.

        That is where the Gittins index g of a candidate, the cost at which looking pays for itself
        (planned runs · E[(g - cost)⁺] = bill), lies below the best cost known; the rule of Pandora's boxes
        is to stop when there is none.
        """
        runs = self._problem.goal.runs_planned or 0
        bill = acquisition.bill(belief.mean, belief.std, best, money_left)
        return np.asarray(runs * acquisition.saving_usd(belief.mean, belief.std, best) > bill)

    def _candidates(self, history: History, money_left: float) -> tuple[Candidates, Mask]:
        """What may be run next: untried, able to be the answer, and payable."""
        pool, allowed = candidate_pool(self._problem, history, self._seed, self._full_only)
        return pool, allowed & self._eligible(pool, history) & pool.payable(money_left)

    def _choose(
        self, acquisition: Acquisition, belief: Belief, allowed: Mask, best: float, money_left: float
    ) -> ScoredCandidate | None:
        settings = self._lookahead_settings()
        if not self._problem.early_stop:
            allowed = allowed & acquisition.affordable(
                belief.mean, belief.std, money_left, settings.confidence_z
            )
        return choose(acquisition, belief, allowed, best, money_left, settings)

    def _is_enough(self, choice: ScoredCandidate, history: History) -> bool:
        """Whether even the best candidate is not worth a run."""
        del history
        return choice.reward <= self._options.epsilon

    def _eligible(self, pool: Candidates, history: History) -> Mask:
        """Candidates that this strategy considers at all: those that can be the answer."""
        del history
        if not self._full_only:
            return np.ones(len(pool), dtype=np.bool_)
        return np.array([self._problem.is_full(c) for c in pool.configurations], dtype=np.bool_)

    @property
    def _full_only(self) -> bool:
        """Whether runs on a part of the data are left out: they cannot answer a goal at full data."""
        return self._problem.goal.speaks_of_full_data

    def _is_early(self, history: History) -> bool:
        """Whether the first trials go on, or none of them has told anything to learn from."""
        taken = len(history) + len(history.pending)
        measure = self._problem.goal.measure
        if measure in (COST, TIME):
            told = any(trial.time_s > 0 for trial in history.working)
        else:
            told = any(trial.finished and measure in trial.measures for trial in history)
        return taken < self._options.start_trials or not told

    def _initial(self, history: History, money_left: float) -> Proposal | None:
        """The next of the first trials; more of them while none has told anything."""
        tried = {self._problem.space.key(c) for c in history.configurations}
        count = max(self._options.start_trials, 2 * len(tried) + 1)
        if count not in self._starts:
            self._starts[count] = initial_configurations(
                self._problem, self._options.start, count, self._seed, self._full_only
            )
        fresh = [c for c in self._starts[count] if self._problem.space.key(c) not in tried]
        configuration = first_affordable(self._problem, fresh, money_left)
        if configuration is None:
            configuration = self._cheapest(history, money_left)
        if configuration is None:
            return None
        why = f"first look, {self._options.start} start"
        return Proposal(configuration, why, cap_usd=first_cap_usd(self._problem, configuration, money_left))

    def _cheapest(self, history: History, money_left: float) -> Configuration | None:
        """The cheapest configuration that the money can start, where it can start no first trial."""
        pool, allowed = self._candidates(history, money_left)
        if not allowed.any():
            return None
        return pool.configurations[int(np.where(allowed, pool.least_usd, np.inf).argmin())]

    def _lookahead_settings(self) -> LookaheadSettings:
        from scipy.special import ndtri

        options = self._options
        return LookaheadSettings(
            options.lookahead, options.nodes, options.gamma, float(ndtri(options.confidence))
        )

    def _acquisition(self, history: History, pool: Candidates) -> tuple[Belief, Acquisition]:
        """The belief of the objective, and everything else the goal speaks of, at the candidates."""
        problem, goal = self._problem, self._problem.goal
        cost = self._fitter.log_cost(history, pool)
        log_price = np.log(np.maximum(pool.usd_per_s, CHEAPEST_USD_PER_S))
        bound, others = np.full(len(pool), np.inf), self._fitter.works(history, pool)
        margins: list[Belief] = []
        for constraint in goal.constraints:
            limit = _as_log_cost(constraint, log_price)
            if limit is None:
                margin = self._fitter.margin(constraint, history, pool)
                margins += [] if margin is None else [margin]
            elif constraint.is_upper:
                bound = np.minimum(bound, limit)
        cap = bound.copy() if problem.early_stop else np.full(len(pool), np.inf)
        floor = np.where(pool.minimum_s > 0, np.log(np.maximum(pool.minimum_s, 1e-9)) + log_price, -np.inf)
        if goal.measure == COST:
            acquisition = Acquisition(
                True, cost.mean, cost.std, bound, floor, others, cap, problem.early_stop, tuple(margins),
                pool.beside_usd, pool.least_usd,
            )  # fmt: skip
            return cost, acquisition
        others = others * probability_below(cost.mean, cost.std, bound)
        unbounded = np.full(len(pool), np.inf)
        acquisition = Acquisition(
            False, cost.mean, cost.std, unbounded, floor, others, cap, False, tuple(margins),
            pool.beside_usd, pool.least_usd,
        )  # fmt: skip
        return self._objective(history, pool, cost, log_price), acquisition

    def _objective(self, history: History, pool: Candidates, cost: Belief, log_price: Array) -> Belief:
        goal = self._problem.goal
        if goal.measure == TIME:
            return ShiftedBelief(cost, -log_price, 1.0 if goal.minimise else -1.0)
        belief = self._fitter.measure(goal.measure, history, pool)
        assert belief is not None, "the first trials go on until the objective was measured"
        return ShiftedBelief(belief, np.zeros(len(pool)), 1.0 if goal.minimise else -1.0)

    def _best_loss(self, history: History, belief: Belief) -> float:
        """y*: the best feasible loss; while there is none, three deviations worse than anything seen."""
        goal = self._problem.goal
        losses = [self._loss(t.values[goal.measure]) for t in history.working if goal.measure in t.values]
        if history.best is not None:
            return self._loss(history.best.values[goal.measure])
        return max(losses, default=float(belief.mean.max())) + 3.0 * float(belief.std.max())

    def _loss(self, value: float) -> float:
        """An objective value in the scale of its belief."""
        goal = self._problem.goal
        if goal.measure in (COST, TIME):
            value = math.log(max(value, 1e-12))
        return goal.loss(value)

    def _why(self, acquisition: Acquisition, index: int, bill_usd: float) -> str:
        mean, std = float(acquisition.cost_mean[index]), float(acquisition.cost_std[index])
        expected = format_money(math.exp(mean))
        return f"expects {expected} a run (x/÷ {math.exp(std):.1f}), for about {format_money(bill_usd)} now"


class Obol(Lynceus):
    """The same with the settings of the first paper."""

    Options = ObolOptions


def first_cap_usd(problem: Problem, configuration: Configuration, money_left: float) -> float:
    """The most that one of the first runs may cost; never less than what the shortest run costs."""
    price = problem.price(configuration)
    return max(SURPRISE_SHARE * money_left, price.cost_usd(price.minimum_s))


def _as_log_cost(constraint: Constraint, log_price: Array) -> Array | None:
    """A bound on time or cost as a bound on the log cost of each candidate; None for other measures."""
    if constraint.measure == COST:
        return np.full(len(log_price), math.log(max(constraint.bound, 1e-12)))
    if constraint.measure == TIME:
        return math.log(max(constraint.bound, 1e-9)) + log_price
    return None
