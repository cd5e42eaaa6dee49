"""What the trials of a request gave: models, failures, and what a grid has to come back to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prudent.training.leaderboard import SAMPLE, Entry, Failure
from prudent.training.methods import Plan
from prudent.training.seekers import Wish
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FINISHED, Outcome

TOO_LONG = "it took too much of the time left"
TIME_UP = "the time was up"
CUT_SHORT = (TOO_LONG, TIME_UP, OUT_OF_MONEY)
"""What ends a trial that could have given a model: a grid, which is looked at whole, comes back to it."""


@dataclass(frozen=True)
class CutShort:
    """A trial of a grid that needs more time than it had: of which plan, which one, and how long that was."""

    index: int
    wish: Wish
    lasted_s: float


def finished(outcome: Outcome) -> bool:
    """Whether a trial gave a model."""
    return outcome.status == FINISHED and "score" in outcome.measures


class Results:
    """Models and failures by trial; a trial that is begun again has one result, and the cost of both."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.entries: list[Entry] = []
        self.failures: list[Failure] = []
        self.cut_short: dict[int, CutShort] = {}

    def __len__(self) -> int:
        return len(self.entries) + len(self.failures)

    @property
    def numbers(self) -> set[int]:
        return {entry.trial for entry in self.entries} | {failure.trial for failure in self.failures}

    def add(
        self, index: int, plan: Plan, wish: Wish, number: int, folder: Path, outcome: Outcome, cost_usd: float
    ) -> Entry | Failure:
        """Take in how a trial of a plan ended; `number` is the trial's among all of the request."""
        cost_usd += self._forget(number)
        hyperparameters, transforms, fraction = plan.parts(wish.configuration)
        if not finished(outcome):
            why, cut = outcome.why or "it gave no score", outcome.status == CUT
            failure = Failure(number, plan.algorithm.name, hyperparameters, why, cost_usd, cut)
            self.failures.append(failure)
            if plan.search == "grid" and cut and why in CUT_SHORT:
                self.cut_short[number] = CutShort(index, wish, outcome.time_s)
            return failure
        if plan.fraction is not None:
            transforms = {**transforms, SAMPLE: {"fraction": fraction}}
        measures = outcome.measures
        entry = Entry(
            0,
            plan.algorithm.name,
            hyperparameters,
            measures["score"],
            self._metric,
            measures.get("value", measures["score"]),
            str(folder),
            measures.get("train_s", outcome.time_s),
            measures.get("predict_ms", 0.0),
            cost_usd,
            number,
            transforms,
        )
        self.entries.append(entry)
        return entry

    def _forget(self, number: int) -> float:
        """Take back the failure of a trial that was begun again; answers what that attempt has cost."""
        if self.cut_short.pop(number, None) is None:
            return 0.0
        [before] = [failure for failure in self.failures if failure.trial == number]
        self.failures.remove(before)
        return before.cost_usd
