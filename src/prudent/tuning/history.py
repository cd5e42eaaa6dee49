"""What a study knows so far: the trials that ended and those under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from prudent.tuning.goal import Goal
from prudent.tuning.trial import FAILED, Proposal, Trial


@dataclass(frozen=True)
class History:
    """The only thing a strategy decides by, besides the money left."""

    goal: Goal
    trials: tuple[Trial, ...] = ()
    pending: tuple[Proposal, ...] = ()

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def plus(self, trial: Trial) -> History:
        return History(self.goal, (*self.trials, trial), self.pending)

    @cached_property
    def best(self) -> Trial | None:
        """The best finished trial that keeps every constraint; the earliest among equals."""
        return best_of(self.goal, self.trials)

    @cached_property
    def nearest(self) -> Trial | None:
        """While nothing is feasible: the finished trial that misses the constraints by least."""
        ended = [trial for trial in self.trials if trial.finished]
        return min(ended, key=lambda trial: self.goal.excess(trial.values), default=None)

    @cached_property
    def working(self) -> tuple[Trial, ...]:
        """Trials that tell something about cost: all but the failed ones."""
        return tuple(trial for trial in self.trials if trial.status != FAILED)

    @property
    def configurations(self) -> Iterator[dict[str, object]]:
        """What was tried or is being tried: not to be proposed again."""
        yield from (trial.configuration for trial in self.trials)
        yield from (proposal.configuration for proposal in self.pending)


def best_of(goal: Goal, trials: Iterable[Trial]) -> Trial | None:
    """The best finished, feasible trial by a goal."""
    feasible = [t for t in trials if t.finished and t.feasible and goal.measure in t.values]
    return min(feasible, key=lambda trial: goal.loss(trial.values[goal.measure]), default=None)
