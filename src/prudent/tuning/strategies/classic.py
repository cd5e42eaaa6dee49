"""Bayesian optimisation as users know it: a Gaussian process and expected improvement, whatever a run costs.

CherryPick, GP-EI and GP-EIc differ from Lynceus in what they leave out (price, look-ahead, budget), so they
are written as that difference. On a job with a data fraction they use the full data only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.beliefs import Belief
from prudent.tuning.strategies.lookahead import Acquisition, Mask, ScoredCandidate
from prudent.tuning.strategies.lynceus import Lynceus, LynceusOptions
from prudent.tuning.strategies.strategy import require


@dataclass(frozen=True)
class ClassicOptions:
    """How many first trials, and how they are drawn."""

    start: Literal["price", "latin", "random", "sobol"] = "latin"
    start_trials: int = 3

    def __post_init__(self) -> None:
        require(self.start_trials >= 1, "start_trials must be at least 1.")


@dataclass(frozen=True)
class CherryPickOptions(ClassicOptions):
    """It stops when EI is below `stop_below` of the best cost and at least `least_trials` were run."""

    stop_below: float = 0.1
    least_trials: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.stop_below >= 0, "stop_below must be 0 or more; 0.1 is the paper's.")


class GpEic(Lynceus):
    """Constrained expected improvement, not divided by the bill."""

    Options: type = ClassicOptions

    def __init__(self, problem: Problem, options: ClassicOptions, seed: int) -> None:
        super().__init__(
            problem, LynceusOptions(start=options.start, start_trials=options.start_trials), seed
        )

    def _choose(
        self, acquisition: Acquisition, belief: Belief, allowed: Mask, best: float, money_left: float
    ) -> ScoredCandidate | None:
        reward = np.where(allowed, acquisition.reward(belief.mean, belief.std, best), -1.0)
        index = int(reward.argmax())
        bill = acquisition.bill(belief.mean, belief.std, best, money_left)
        return ScoredCandidate(index, float(reward[index]), float(bill[index]))

    @property
    def _full_only(self) -> bool:
        return self._problem.fraction is not None


class GpEi(GpEic):
    """Expected improvement of the objective alone; constraints only judge the answer."""

    def _acquisition(self, history: History, pool: Candidates) -> tuple[Belief, Acquisition]:
        belief, acquisition = super()._acquisition(history, pool)
        free = np.full(len(pool), np.inf)
        return belief, dataclasses.replace(acquisition, bound=free, others=np.ones(len(pool)), margins=())


class CherryPick(GpEic):
    """GP on cost with EIc; stops when little more is to be gained."""

    Options = CherryPickOptions

    def __init__(self, problem: Problem, options: CherryPickOptions, seed: int) -> None:
        super().__init__(problem, options, seed)
        self._stop = options

    def _is_enough(self, choice: ScoredCandidate, history: History) -> bool:
        # The objective is a logarithm where it is cost or time, so its improvement is a share of the best.
        return len(history) >= self._stop.least_trials and choice.reward < self._stop.stop_below
