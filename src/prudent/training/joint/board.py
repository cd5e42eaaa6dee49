"""The board of a joint search: why it ended, and what it recommends."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prudent.core.units import format_money
from prudent.training.joint.space import JointSpace
from prudent.training.leaderboard import EventCallback
from prudent.training.search.board import TrialBoard
from prudent.training.search.search import INTERRUPTED
from prudent.tuning import tune as tuning
from prudent.tuning.history import History
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Configuration, Proposal

SPENT_SHARE = 0.95
"""From this share on a budget counts as spent."""


class JointBoard(TrialBoard):
    """A `TrialBoard` that ends its study when no time is left, or no money for machines.

    `time_left` answers how much time is left after so many seconds.
    """

    def __init__(
        self,
        space: JointSpace,
        folder: Path,
        metric: Callable[[], str],
        watch: EventCallback,
        time_left: Callable[[float], float] = lambda elapsed_s: math.inf,
    ) -> None:
        super().__init__(space, folder, metric, watch)
        self._joint_space, self._time_left = space, time_left
        self._elapsed_s = 0.0

    def left_s(self) -> float:
        """How long a trial that begins now may take."""
        return max(self._time_left(self._elapsed_s), 0.0)

    def watch(self, event: tuning.Event, study: Study) -> None:
        """Take in an event of the study; see `prudent.tuning.tune`."""
        self._elapsed_s = study.clock_s
        if isinstance(event, tuning.TrialStarted):
            self.complete(study.trials)
        super().watch(event, study)
        if isinstance(event, tuning.TrialEnded):
            # Money that could not pay for machines to start pays for no other trial either.
            broke = event.trial.why == OUT_OF_MONEY and event.trial.time_s == 0
            if broke or self.left_s() <= 0:
                study.strategy = _NoMoreTrials(study.strategy)

    def ended(self, result: Result, most: int | None) -> str:
        """Why no further trial was started, for people."""
        if result.interrupted:
            return INTERRUPTED
        if self.left_s() <= 0:
            return "the time was up"
        if most is not None and len(result.trials) >= most:
            return f"{most} trials were made"
        budget_usd = result.budget_usd or 0.0
        broke = any(trial.why == OUT_OF_MONEY for trial in result.trials[-1:])
        if broke or result.spent_usd > SPENT_SHARE * budget_usd:
            return f"the budget of {format_money(budget_usd)} is spent"
        tried = len(result.trials) == self._joint_space.size
        return "everything was tried" if tried else "nothing else was worth its money"

    def recommended(self, result: Result) -> dict[str, Any]:
        """The settings and machines that the search recommends, and what it predicts for them."""
        if result.recommended is None:
            return {}
        chosen = self._joint_space.settings_of(result.recommended)
        return {
            "algorithm": chosen.plan.algorithm.name,
            "hyperparameters": dict(chosen.hyperparameters),
            "transforms": dict(chosen.transforms),
            "fraction": chosen.fraction,
            "machines": chosen.machines,
            "prediction": dict(result.prediction),
        }


class _NoMoreTrials:
    """A strategy that proposes nothing more."""

    def __init__(self, before: Strategy) -> None:
        self._before = before

    def propose(self, history: History, money_left: float) -> Proposal | None:
        del history, money_left
        return None

    def recommend(self, history: History) -> Configuration | None:
        return self._before.recommend(history)
