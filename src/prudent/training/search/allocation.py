"""Which method of a request gets the next trial, as a strategy of its study.

The next trial goes to the method from which an improvement is likely to cost least. That cost is estimated
from the method's own past, as FLAML does (Wang et al., MLSys 2021): what the last improvements took, and, for
a method that is behind, what it would take at its rate to catch up with the best. Methods are drawn in
inverse proportion to that cost, so that an expensive one is tried rarely and none never. Random and
grid searches let their methods take turns instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prudent.core.money import ROUNDING_USD
from prudent.core.seeds import rng_for
from prudent.core.space import Configuration
from prudent.training.search.method_search import SCORE, MethodSearch, QueuedSearch
from prudent.training.search.space import MethodSpace
from prudent.training.search.stopping import SAFE_SHARE, TrialTimes
from prudent.tuning.history import History
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, Proposal, Trial

TOO_LONG = "it took too much of the time left"
TIME_UP = "the time was up"
RESUMABLE_CAUSES = (TOO_LONG, TIME_UP, OUT_OF_MONEY)
"""Why a trial was cut that could have given a model: a grid, which is tried whole, begins it again."""
GIVE_UP = 25
"""A method is given up when so many trials, all its first ones, have failed (a grid is not)."""
MOST_CANDIDATES = 10
"""So many of the best models are candidates for training on more data."""

LEAST_S = 0.05
"""A trial counts as this long at least, for deciding on it and starting it takes time too."""
WARM_UP = 3.0
"""A first trial counts as no more than so many times the second."""
SECOND_LOOK = 0.25
"""A method gets a second trial if its first took no more than this share of the time left."""


def gave_model(trial: Trial) -> bool:
    """Whether a trial gave a model."""
    return trial.finished and SCORE in trial.measures


@dataclass
class MethodProgress:
    """What a method has cost and gained so far; costs are in seconds."""

    started: int = 0
    ended: int = 0
    spent_s: float = 0.0
    best: float = -math.inf
    improved_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """What had been spent at the last two improvements, the latest first."""
    before: float = -math.inf
    """The best score before the last improvement."""
    first_s: float = 0.0
    """What the first trial took."""
    needed_s: float = 0.0
    """What the longest trial took that gave a model."""

    def record(self, time_s: float, score: float | None) -> None:
        """Take in a trial that ended; `score` is None if it gave no model."""
        self.ended += 1
        if self.ended == 1:
            self.first_s = time_s
        elif self.ended == 2:
            self._discount_warm_up(self.first_s - WARM_UP * max(time_s, LEAST_S))
        self.spent_s += max(time_s, LEAST_S)
        if score is not None:
            self.needed_s = max(self.needed_s, time_s)
        if score is not None and score > self.best:
            self.improved_s = [self.spent_s, self.improved_s[0]]
            self.before, self.best = self.best, score

    @property
    def likely_s(self) -> float:
        """How long the next trial should take; inf while nothing is known."""
        return self.spent_s / self.ended if self.ended else math.inf

    def _discount_warm_up(self, excess_s: float) -> None:
        """Discount a first trial that took many times the second: it loaded libraries or compiled, once."""
        if excess_s > 0:
            self.spent_s -= excess_s
            self.improved_s = [max(at_s - excess_s, 0.0) for at_s in self.improved_s]

    def cost_of_improvement_s(self, best: float) -> float:
        """Estimated seconds until this method has something better than the best of all."""
        latest, earlier = self.improved_s
        own = max(self.spent_s - latest, latest - earlier, 1e-6)
        if self.best >= best or not math.isfinite(self.before):
            return own
        pace = (self.best - self.before) / max(latest - earlier, 1e-6)
        return max(own, 2.0 * (best - self.best) / max(pace, 1e-12))


def choose_method(
    methods_progress: Sequence[MethodProgress],
    open_methods: Sequence[int],
    round_robin: bool,
    seed: int,
    left_s: float = math.inf,
) -> int:
    """The method that gets the next trial, out of those that still have something to try.

    >>> choose_method([MethodProgress(started=2), MethodProgress(started=1)], [0, 1], True, 0)
    1
    """
    fewest = min(open_methods, key=lambda index: (methods_progress[index].started, index))
    if round_robin or methods_progress[fewest].started == 0:
        return fewest
    for index in open_methods:
        once = methods_progress[index]
        if once.started == once.ended == 1 and once.first_s <= SECOND_LOOK * left_s:
            return index
    unseen = [index for index in open_methods if methods_progress[index].ended == 0]
    known = [index for index in open_methods if index not in unseen] or list(open_methods)
    best = max(methods_progress[index].best for index in range(len(methods_progress)))
    weights = [1.0 / methods_progress[index].cost_of_improvement_s(best) for index in known]
    total = math.fsum(weights)
    if not math.isfinite(total) or total <= 0:
        return fewest
    rng = rng_for(seed, "allocation", sum(method_progress.started for method_progress in methods_progress))
    return known[int(rng.choice(len(known), p=[weight / total for weight in weights]))]


class MethodAllocation:
    """Gives each trial to one of the methods, whose own search proposes it (see `Strategy`).

    `searches` are those of the space's methods. The last `more_data` of them repeat the others: they train on
    more data what did best on a part of them, and are asked only after `spend_reserve` was called, or when
    nothing else is left to try. `reserve_usd` tells how much to put aside for a trial that should take so
    long, of so much money left. Unlike other strategies it looks at a clock: how much is tried depends on it.
    """

    name = "methods"
    """By which the journal knows it."""

    def __init__(
        self,
        space: MethodSpace,
        searches: Sequence[MethodSearch],
        seed: int,
        times: TrialTimes,
        limited: bool,
        reserve_usd: Callable[[float, float], float],
        more_data: int = 0,
    ) -> None:
        self._space, self._searches, self._seed = space, searches, seed
        self._times, self._limited, self._reserve_usd = times, limited, reserve_usd
        self._labels = list(space.plans)
        self._plans = list(space.plans.values())
        self.progress = [MethodProgress() for _ in searches]
        self._folded = 0
        self._more_data = range(len(searches) - more_data, len(searches))
        self._open = set(range(len(searches) - more_data))
        self._waiting: dict[int, int] = {}
        self._unfinished: dict[str, Trial] = {}
        self.keeps_reserve = more_data > 0
        """Whether a part of money, time and trials is kept for training on more data."""
        self._on_parts = more_data > 0

    # For the study

    def propose(self, history: History, money_left: float) -> Proposal | None:
        pending = self._fold(history)
        if self._on_parts and not self.keeps_reserve:
            self._go_on_to_more_data(history)
        while True:
            ready = [index for index in sorted(self._open) if not self._waits(index)]
            if not ready:
                again = self._unfinished_again(history)
                if again is None and self._on_parts and not history.pending:
                    self._go_on_to_more_data(history)
                    continue
                return again and self._priced(again, math.inf, money_left)
            index = choose_method(self.progress, ready, self._round_robin, self._seed, self._times.left_s())
            own = self._ask(index, pending[index])
            if own is not None:
                self.progress[index].started += 1
                whole = self._space.configuration(self._labels[index], own.configuration)
                found = replace(own, configuration=whole)
                return self._priced(found, self.progress[index].likely_s, money_left)
            if pending[index]:
                self._waiting[index] = self.progress[index].ended
            else:
                self._open.discard(index)

    def recommend(self, history: History) -> Configuration | None:
        best = history.best
        return None if best is None else dict(best.configuration)

    # For whoever runs the trials

    def spend_reserve(self) -> None:
        """What was kept is used from now on."""
        self.keeps_reserve = False

    def progress_of(self, configuration: Configuration) -> MethodProgress:
        """What the method of a configuration has cost and gained so far."""
        return self.progress[self._labels.index(self._space.split(configuration)[0])]

    def others_wait(self) -> bool:
        """Whether another trial could begin if there were room."""
        return any(self._searches[index].has_more(self.progress[index].started) for index in self._open)

    def is_again(self, configuration: Configuration) -> bool:
        """Whether a configuration was cut before and is begun once more."""
        return self._space.key(configuration) in self._unfinished

    @property
    def unfinished(self) -> bool:
        """Whether something was cut that could have given a model, and not tried again."""
        return bool(self._unfinished)

    @property
    def exhausted(self) -> bool:
        """Whether no method has anything to propose any more."""
        return not self._open

    # Inside

    @property
    def _round_robin(self) -> bool:
        return self._plans[0].search in ("random", "grid")

    def _fold(self, history: History) -> list[list[Proposal]]:
        """Take in the trials that have ended since; answers what is under way, by method."""
        for trial in history.trials[self._folded :]:
            self._take(trial)
        self._folded = len(history)
        pending: list[list[Proposal]] = [[] for _ in self._searches]
        for proposal in history.pending:
            label, own = self._space.split(proposal.configuration)
            pending[self._labels.index(label)].append(replace(proposal, configuration=own))
        for progress, mine in zip(self.progress, pending, strict=True):
            progress.started = progress.ended + len(mine)
        return pending

    def _take(self, trial: Trial) -> None:
        label, own = self._space.split(trial.configuration)
        index = self._labels.index(label)
        plan, progress = self._plans[index], self.progress[index]
        self._searches[index].take(replace(trial, configuration=own))
        progress.record(trial.time_s, trial.measures[SCORE] if gave_model(trial) else None)
        if progress.ended >= GIVE_UP and math.isinf(progress.best) and plan.search != "grid":
            self._open.discard(index)
        key = self._space.key(trial.configuration)
        self._unfinished.pop(key, None)
        if plan.search == "grid" and trial.status == CUT and trial.why in RESUMABLE_CAUSES:
            self._unfinished[key] = trial

    def _waits(self, index: int) -> bool:
        """Whether a method had nothing to propose, and none of its trials has ended since."""
        return self._waiting.get(index) == self.progress[index].ended

    def _ask(self, index: int, pending: Sequence[Proposal]) -> Proposal | None:
        started = self.progress[index].started
        if not self._limited and started >= self._plans[index].default_trials:
            return None
        return self._searches[index].propose(started, tuple(pending))

    def _unfinished_again(self, history: History) -> Proposal | None:
        """A trial that was cut, if more time is left than it had."""
        under_way = {self._space.key(proposal.configuration) for proposal in history.pending}
        left_s = self._times.left_s()
        for key, trial in self._unfinished.items():
            if trial.time_s < left_s and key not in under_way:
                return Proposal(trial.configuration, "once more, with more time")
        return None

    def _priced(self, found: Proposal, likely_s: float, money_left: float) -> Proposal:
        return replace(found, likely_usd=max(self._reserve_usd(likely_s, money_left), ROUNDING_USD * 10))

    # On more data

    def _go_on_to_more_data(self, history: History) -> None:
        """Train on more data what did best on a part of them, or is predicted to, and nothing else.

        Where nothing is left to train on more data, the search goes on as before until the end.
        """
        self._on_parts = self.keeps_reserve = False
        first = self._more_data.start
        believed = [(index, self._searches[index].recommended()) for index in range(first)]
        chosen = [(index, self._plans[index].on_share(1.0, own)) for index, own in believed if own]
        chosen = chosen or self._promotions(history)
        if not chosen:
            return
        self._open, self._waiting = set(self._more_data), {}
        for index, own in chosen:
            queued = self._searches[first + index]
            assert isinstance(queued, QueuedSearch)
            queued.enqueue(own)

    def _promotions(self, history: History) -> list[tuple[int, Configuration]]:
        """The best models that saw a part of the data, on as much of it as the time left allows.

        Each comes with the index of its method. Training time is assumed to grow in proportion to the rows.
        """
        left_s = SAFE_SHARE * self._times.left_s()
        models = [trial for trial in history if gave_model(trial)]
        found: list[tuple[int, Configuration]] = []
        for trial in sorted(models, key=lambda one: (-one.measures[SCORE], one.number))[:MOST_CANDIDATES]:
            if len(found) == self._times.limits.parallelism:
                break
            label, own = self._space.split(trial.configuration)
            index = self._labels.index(label) % self._more_data.start
            plan = self._plans[index]
            share, train_s = plan.split(own)[2], trial.measures["train_s"]
            affordable = [more for more in plan.shares if train_s * more / share <= left_s]
            if affordable and affordable[-1] > share:
                found.append((index, plan.on_share(affordable[-1], own)))
        return found
