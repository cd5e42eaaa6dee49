"""Results of a request's trials: models, failures, unfinished trials, and models to promote to more data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prudent.training.leaderboard import SAMPLE, LeaderboardEntry, TrialFailure, rank_key
from prudent.training.search.methods import MethodPlan
from prudent.training.search.proposers import TrialProposal
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FINISHED, Configuration, Outcome

TOO_LONG = "it took too much of the time left"
TIME_UP = "the time was up"
RESUMABLE_CAUSES = (TOO_LONG, TIME_UP, OUT_OF_MONEY)
"""Why a trial was cut that could have given a model: a grid, which is tried whole, begins it again."""


@dataclass(frozen=True)
class UnfinishedTrial:
    """A trial of a grid that was cut for lack of time or money: its plan and proposal, and its time."""

    index: int
    proposal: TrialProposal
    lasted_s: float


def gave_model(outcome: Outcome) -> bool:
    """Whether a trial gave a model."""
    return outcome.status == FINISHED and "score" in outcome.measures


class TrialResults:
    """Models and failures by trial; a trial that is begun again has one result, and the cost of both."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.entries: list[LeaderboardEntry] = []
        self.failures: list[TrialFailure] = []
        self.unfinished: dict[int, UnfinishedTrial] = {}

    def __len__(self) -> int:
        return len(self.entries) + len(self.failures)

    @property
    def numbers(self) -> set[int]:
        return {entry.trial for entry in self.entries} | {failure.trial for failure in self.failures}

    def add(
        self,
        index: int,
        plan: MethodPlan,
        proposal: TrialProposal,
        number: int,
        folder: Path,
        outcome: Outcome,
        cost_usd: float,
    ) -> LeaderboardEntry | TrialFailure:
        """Take in how a trial of a plan ended; `number` is the trial's among all of the request."""
        cost_usd += self._take_back(number)
        hyperparameters, transforms, fraction = plan.split(proposal.configuration)
        if not gave_model(outcome):
            why, cut = outcome.why or "it gave no score", outcome.status == CUT
            failure = TrialFailure(number, plan.algorithm.name, hyperparameters, why, cost_usd, cut)
            self.failures.append(failure)
            if plan.search == "grid" and cut and why in RESUMABLE_CAUSES:
                self.unfinished[number] = UnfinishedTrial(index, proposal, outcome.time_s)
            return failure
        if plan.fraction is not None:
            transforms = {**transforms, SAMPLE: {"fraction": fraction}}
        measures = outcome.measures
        entry = LeaderboardEntry(
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

    def _take_back(self, number: int) -> float:
        """Take back the failure of a trial that was begun again; answers what that attempt has cost."""
        if self.unfinished.pop(number, None) is None:
            return 0.0
        [before] = [failure for failure in self.failures if failure.trial == number]
        self.failures.remove(before)
        return before.cost_usd


MOST_CANDIDATES = 10
"""So many of the best models are candidates for training on more data."""


def promotions(
    entries: Sequence[LeaderboardEntry], plans: Sequence[MethodPlan], left_s: float, count: int
) -> list[tuple[int, Configuration]]:
    """The best models so far that saw a part of the data, on as much of it as the time left allows.

    Each comes with the index of its plan. Training time is assumed to grow in proportion to the rows.
    """
    found: list[tuple[int, Configuration]] = []
    for entry in sorted(entries, key=rank_key)[:MOST_CANDIDATES]:
        if len(found) == count:
            break
        place = (entry.trial - 1) % len(plans)
        plan, share = plans[place], entry.transforms.get(SAMPLE, {}).get("fraction", 1.0)
        affordable = [more for more in plan.shares if entry.train_s * more / share <= left_s]
        if affordable and affordable[-1] > share:
            found.append((place, plan.on_share(affordable[-1], configuration_of(entry))))
    return found


def configuration_of(entry: LeaderboardEntry) -> Configuration:
    """The configuration of the space that an entry came from, without the share of the data."""
    steps = {name: kept for name, kept in entry.transforms.items() if name != SAMPLE}
    settings = {f"{name}.{key}": value for name, kept in steps.items() for key, value in kept.items()}
    return {**entry.hyperparameters, **settings}
