"""Nephele: the cheapest run that is accurate enough, the fraction of the data being one more choice.

Minimise C(x, s) subject to A(x, s) >= A_min, T(x, s) <= T_max, while what is spent stays within the budget.
The search is that of Lynceus: cost and accuracy beliefs over all (x, s), constrained improvement per dollar,
look-ahead in both. What the fraction adds is knowledge of what is cheap: a run on a part of the data.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from prudent.core.seeds import rng_for
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.beliefs import Belief
from prudent.tuning.strategies.initial_design import HalvingDesign
from prudent.tuning.strategies.lookahead import Acquisition, LookaheadSettings, Mask, ScoredCandidate
from prudent.tuning.strategies.lynceus import Lynceus, LynceusOptions, first_cap_usd
from prudent.tuning.strategies.strategy import require
from prudent.tuning.trial import Configuration, Proposal, Trial

CHANCE = 0.02
"""A measure that misses its bound by no more than this share of it may do better by chance."""


@dataclass(frozen=True)
class NepheleOptions(LynceusOptions):
    """How Nephele thinks; the defaults are those that our benchmarks chose.

    accuracy_nodes: M, nodes of each constraint's belief in look-ahead (`nodes` is N, of the cost).
    halving: the first trials are so many configurations on the least data, a third of them on more, and so
    on; 0 starts with `start_trials` as `start` says, on any share of the data.
    start_usd: the first trials go on until so much is spent (the thesis: $5).
    feasible: "means" considers only candidates whose predicted means keep every constraint, and runs a random
    one when there are none (the thesis); "probability" weighs every candidate by its chance.
    drop: leave out configurations that a run on another share of the data showed to be hopeless.
    """

    accuracy_nodes: int = 1
    halving: int = 6
    start_usd: float | None = None
    feasible: Literal["probability", "means"] = "probability"
    drop: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.halving >= 0, "halving must be 0 (no such start) or more; 6 is usual.")
        require(1 <= self.accuracy_nodes <= 9, "accuracy_nodes must be 1 to 9; 1 and 3 are usual.")
        require(
            self.start_usd is None or self.start_usd > 0, "start_usd must be above 0; leave it out for none."
        )


class Nephele(Lynceus):
    """Lynceus over configurations and fractions of the data."""

    Options = NepheleOptions

    def __init__(self, problem: Problem, options: NepheleOptions, seed: int) -> None:
        super().__init__(problem, options, seed)
        self._nephele = options
        self._halving: HalvingDesign | None = None
        if problem.fraction is not None and options.halving and not self._full_only:
            self._halving = HalvingDesign(problem, options.halving, seed)

    def _lookahead_settings(self) -> LookaheadSettings:
        return dataclasses.replace(super()._lookahead_settings(), margin_nodes=self._nephele.accuracy_nodes)

    def _is_early(self, history: History) -> bool:
        spent = sum(trial.spent_usd for trial in history)
        spent += sum(proposal.expected_usd or 0.0 for proposal in history.pending)
        if self._nephele.start_usd is not None and spent < self._nephele.start_usd:
            return True
        if self._halving is not None and self._halving.next(history) is not None:
            return True
        return super()._is_early(history)

    def _initial(self, history: History, money_left: float) -> Proposal | None:
        configuration = None if self._halving is None else self._halving.next(history)
        if configuration is None:
            return super()._initial(history, money_left)
        share = float(configuration[str(self._problem.fraction)])
        why = f"first look, on {share:.3g} of the data"
        return Proposal(configuration, why, cap_usd=first_cap_usd(self._problem, configuration, money_left))

    def _choose(
        self, acquisition: Acquisition, belief: Belief, allowed: Mask, best: float, money_left: float
    ) -> ScoredCandidate | None:
        if self._nephele.feasible == "probability":
            return super()._choose(acquisition, belief, allowed, best, money_left)
        promising = allowed & _feasible_by_means(acquisition, belief, money_left)
        if promising.any():
            return super()._choose(acquisition, belief, promising, best, money_left)
        free = np.flatnonzero(allowed)
        index = int(rng_for(self._seed, "nephele", len(free)).choice(free))
        bill = acquisition.bill(belief.mean, belief.std, best, money_left)
        return ScoredCandidate(index, math.inf, float(bill[index]))

    def _eligible(self, pool: Candidates, history: History) -> Mask:
        eligible = super()._eligible(pool, history)
        if not self._nephele.drop or self._problem.fraction is None:
            return eligible
        return eligible & ~dropped(self._problem, history, pool)


def _feasible_by_means(acquisition: Acquisition, belief: Belief, money_left: float) -> Mask:
    """Γ: candidates whose predicted means keep every constraint and the money left."""
    kept = belief.mean <= acquisition.bound
    kept &= acquisition.cost_mean <= math.log(max(money_left, 1e-12))
    for margin in acquisition.margins:
        kept &= margin.mean >= 0
    return np.asarray(kept)


def dropped(problem: Problem, history: History, pool: Candidates) -> Mask:
    """Candidates not worth a run, because the same configuration was run on another share of the data.

    More data never makes a run cheaper: one that was too slow, too dear, or no better than the best on a part
    of the data is so on more of it. And more data does not hurt: a run that missed a lower bound (accuracy)
    on much data will miss it on less. Hyperband drops by rank; these two rules drop for a reason.
    """
    assert problem.fraction is not None
    name = problem.fraction
    hopeless_from: dict[tuple[object, ...], float] = {}
    hopeless_to: dict[tuple[object, ...], float] = {}
    for trial in history.working:
        place, share = _elsewhere(trial.configuration, name), float(trial.configuration[name])
        if _costs_too_much(problem.goal, trial, history.best):
            hopeless_from[place] = min(share, hopeless_from.get(place, math.inf))
        if trial.finished and _misses(problem.goal, trial):
            hopeless_to[place] = max(share, hopeless_to.get(place, 0.0))
    out = np.zeros(len(pool), dtype=np.bool_)
    for index, configuration in enumerate(pool.configurations):
        here, share = _elsewhere(configuration, name), float(configuration[name])
        out[index] = share >= hopeless_from.get(here, math.inf) or share <= hopeless_to.get(here, 0.0)
    return out


def _elsewhere(configuration: Configuration, fraction: str) -> tuple[object, ...]:
    """A configuration without its fraction."""
    return tuple(value for name, value in configuration.items() if name != fraction)


def _costs_too_much(goal: Goal, trial: Trial, best: Trial | None) -> bool:
    """Whether a run, cut or not, took more time or money than an answer may."""
    if trial.time_s > goal.max_time_s * (1 - 1e-9) or trial.cost_usd > goal.max_cost_usd * (1 - 1e-9):
        return not trial.feasible
    if best is None or trial is best or not goal.minimise or goal.measure not in (COST, TIME):
        return False
    return trial.values[goal.measure] >= best.values[goal.measure] * (1 - 1e-9)


def _misses(goal: Goal, trial: Trial) -> bool:
    """Whether a run missed a lower bound on a measure by more than chance would explain."""
    return any(
        constraint.excess(trial.measures.get(constraint.measure)) > CHANCE
        for constraint in goal.constraints
        if not constraint.is_upper and constraint.measure in trial.measures
    )
