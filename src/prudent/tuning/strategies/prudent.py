"""The default: beliefs before the first run, models by evidence, and money that decides how bold a run is.

There is no fixed start. Every run, the first one included, is the candidate with the best expected
improvement that keeps the limits, divided by a power of its bill: the whole bill while the money pays many
runs, less of it the fewer are left, for cheap runs that teach little are no help when the money ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.goal import COST, TIME
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.acquisition import probability_below
from prudent.tuning.strategies.beliefs import Belief
from prudent.tuning.strategies.lookahead import Acquisition, Mask, ScoredCandidate
from prudent.tuning.strategies.lynceus import Lynceus, LynceusOptions
from prudent.tuning.strategies.run_time import RunTimeFitter
from prudent.tuning.strategies.strategy import require

Array = NDArray[np.float64]

CHANCE = 0.3
"""How much chance adds to the logarithm of the first score; to those that follow less and less."""


@dataclass(frozen=True)
class PrudentOptions:
    """How the default thinks.

    bold_runs: with money for about so many runs, the bill counts by half (its square root).
    epsilon: stop when no run promises more than this (a share of the best cost or time).
    """

    bold_runs: float = 6.0
    epsilon: float = 0.0
    start_trials: int = 3

    def __post_init__(self) -> None:
        require(
            self.bold_runs >= 0, "bold_runs must be 0 (the bill always counts in full) or more; 6 is usual."
        )
        require(self.epsilon >= 0, "epsilon must be 0 or more; 0 goes on while there is money.")
        require(self.start_trials >= 1, "start_trials must be at least 1.")


class PrudentStrategy(Lynceus):
    """Constrained improvement for the money, from the first run on."""

    Options: type = PrudentOptions

    def __init__(self, problem: Problem, options: PrudentOptions, seed: int) -> None:
        super().__init__(
            problem, LynceusOptions(start_trials=options.start_trials, epsilon=options.epsilon), seed
        )
        self._own = options
        self._fitter = RunTimeFitter(problem, seed)

    def _is_early(self, history: History) -> bool:
        """Cost and time are believed from the start; another objective must have been measured."""
        return self._problem.goal.measure not in (COST, TIME) and super()._is_early(history)

    def _acquisition(self, history: History, pool: Candidates) -> tuple[Belief, Acquisition]:
        belief, acquisition = super()._acquisition(history, pool)
        # Chance decides between candidates that look alike, less and less as runs tell them apart.
        rng = rng_for(self._seed, "alike", len(history) + len(history.pending))
        chance = CHANCE / (1 + len(history)) * rng.standard_normal(len(pool))
        return belief, replace(acquisition, others=acquisition.others * np.exp(chance))

    def _choose(
        self, acquisition: Acquisition, belief: Belief, allowed: Mask, best: float, money_left: float
    ) -> ScoredCandidate | None:
        if not allowed.any():
            return None
        bill = acquisition.bill(belief.mean, belief.std, best, money_left)
        reward = acquisition.reward(belief.mean, belief.std, best) * self._ends(acquisition, money_left)
        ratio = np.where(allowed, reward / bill, -1.0)
        if ratio.max() <= 0:
            index = int(ratio.argmax())
            return ScoredCandidate(index, 0.0, float(bill[index]))
        few = self._own.bold_runs * float(bill[int(ratio.argmax())])
        power = 1.0 / (1.0 + few / money_left)
        with np.errstate(divide="ignore"):
            score = np.where(allowed, np.log(np.maximum(reward, 1e-300)) - power * np.log(bill), -np.inf)
        index = int(score.argmax())
        return ScoredCandidate(index, float(reward[index]), float(bill[index]))

    def _ends(self, acquisition: Acquisition, money_left: float) -> Array:
        """The probability that the money left pays a run to its end."""
        left = np.log(np.maximum(money_left - acquisition.beside, 1e-12))
        return probability_below(acquisition.cost_mean, acquisition.cost_std, left)
