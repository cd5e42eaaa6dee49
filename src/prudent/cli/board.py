"""What the live view shows: the state of a study, folded from its events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prudent.tuning.goal import Goal
from prudent.tuning.limits import Limit
from prudent.tuning.study import Study
from prudent.tuning.trial import Ask, Trial
from prudent.tuning.tune import Ended, Event, Extended, Shown, Started


@dataclass
class Running:
    """A trial under way, as far as it has been heard of."""

    ask: Ask
    begun_s: float
    limit: Limit
    seen_s: float = 0.0
    done: float | None = None
    measures: dict[str, float] = field(default_factory=dict)


@dataclass
class Money:
    """Where the budget is."""

    budget_usd: float | None = None
    spent_usd: float = 0.0
    reserved_usd: float = 0.0

    @property
    def left_usd(self) -> float | None:
        return None if self.budget_usd is None else self.budget_usd - self.spent_usd - self.reserved_usd


class Board:
    """One thread runs the study and writes here, another draws and reads: collections are replaced whole.

    `virtual` jobs have a clock of their own, live ones that of the wall.
    """

    def __init__(
        self,
        name: str,
        goal: Goal,
        budget_usd: float | None,
        virtual: bool,
        setup_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.goal, self.virtual, self.setup_s = name, goal, virtual, setup_s
        self.strategy = ""
        self.seed = 0
        self.running: dict[int, Running] = {}
        self.trials: tuple[Trial, ...] = ()
        self.best: Trial | None = None
        self.money = Money(budget_usd)
        self.clock = clock
        self.begun_s = clock()

    def watch(self, event: Event, study: Study) -> None:
        """Fold one event in."""
        self.strategy, self.seed = study.strategy_name, study.seed
        running = dict(self.running)
        if isinstance(event, Started):
            running[event.ask.number] = Running(event.ask, self.clock(), study.limit(event.ask.number))
        elif isinstance(event, Shown):
            seen = running[event.number]
            seen.seen_s = event.progress.elapsed_s
            seen.done = seen.done if event.progress.done is None else event.progress.done
            seen.measures = {**seen.measures, **event.progress.measures}
        elif isinstance(event, Ended):
            running.pop(event.trial.number, None)
        if isinstance(event, (Ended, Extended)):
            for number, member in running.items():
                member.limit = study.limit(number)
        self.running, self.trials, self.best = running, study.trials, study.best
        ledger = study.ledger
        self.money = Money(ledger.budget_usd, ledger.spent_usd, ledger.reserved_usd)

    def elapsed_s(self) -> float:
        return self.clock() - self.begun_s

    def lasted_s(self, running: Running) -> float:
        """How long a trial has run, by the clock it is billed by."""
        if self.virtual:
            return running.seen_s
        return max(running.seen_s, self.clock() - running.begun_s + self.setup_s)
