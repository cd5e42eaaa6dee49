"""When a trial under way is not worth its end: others of its method had done clearly better by then.

A score so far tells little in the beginning, and slow learners catch up: many trees of small steps start
behind and end ahead. So a trial is cut only if it is behind what most others had at the same stage, and would
still be behind them at the end if it went on improving as fast as lately. Learning curves flatten, so that is
more than it can hope for.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median, quantiles

from prudent.core.money import Price
from prudent.training.request.request import TrainingRequest
from prudent.tuning.trial import Progress

OTHERS_BETTER = "others did better by then"
WARM_UP = 0.25
"""A trial is left alone until this share of it is done."""
LEAST_REPORTS = 4
"""A curve of fewer points tells no pace."""
LEAST_PEERS = 5
"""So many others of the same method must have ended with a model."""
LEAST_MARGIN = 0.02
"""Behind by less than this share of the others' score is not clearly worse."""
MOST_CURVES = 200
"""Curves that are remembered, the latest."""


@dataclass(frozen=True)
class ScoreCurve:
    """The best score so far, by how much was done; the first stages may be missing.

    >>> curve = Curve.of([Progress(1.0, {"score": 0.5}, 0.2), Progress(2.0, {"score": 0.4}, 0.4)], 0.6)
    >>> curve.at(0.1), curve.at(0.3), curve.at(0.4), curve.at(1.0)
    (None, 0.5, 0.5, 0.6)
    """

    done: tuple[float, ...]
    best: tuple[float, ...]

    @classmethod
    def of(cls, progress: Sequence[Progress], final: float | None = None) -> ScoreCurve:
        points = [
            (said.done, said.measures["score"])
            for said in progress
            if said.done is not None and "score" in said.measures
        ]
        if final is not None:
            points.append((1.0, final))
        best: list[float] = []
        for _, score in points:
            best.append(max(score, best[-1]) if best else score)
        return cls(tuple(done for done, _ in points), tuple(best))

    def at(self, done: float) -> float | None:
        """What it had at a stage; None if it had not said anything."""
        place = bisect_right(self.done, done)
        return self.best[place - 1] if place else None

    def hoped(self) -> float:
        """What it would come to at the pace of its second half."""
        now, score = self.done[-1], self.best[-1]
        before = self.at(now / 2)
        since, then = (now / 2, before) if before is not None else (self.done[0], self.best[0])
        if now <= since:
            return score
        return score + (score - then) / (now - since) * max(1.0 - now, 0.0)


class FinishedCurves:
    """The curves of trials that ended with a model, by what makes them comparable (method, share of data)."""

    def __init__(self) -> None:
        self._curves: dict[Hashable, deque[ScoreCurve]] = {}

    def add(self, kind: Hashable, progress: Sequence[Progress], score: float) -> None:
        """Remember a trial that finished; one that said nothing on the way teaches nothing."""
        if progress:
            self._curves.setdefault(kind, deque(maxlen=MOST_CURVES)).append(ScoreCurve.of(progress, score))

    def outdone(self, kind: Hashable, progress: Sequence[Progress]) -> bool:
        """Whether a trial under way is clearly worse than its peers were, with no hope to end as they did."""
        peers = self._curves.get(kind, ())
        if len(peers) < LEAST_PEERS or len(progress) < LEAST_REPORTS:
            return False
        return is_outdone(ScoreCurve.of(progress), list(peers))


def is_outdone(running: ScoreCurve, peers: Sequence[ScoreCurve]) -> bool:
    """The rule itself: of one curve and those of others, and nothing else.

    >>> steady = [Curve((0.2, 0.5, 1.0), (0.7, 0.8, 0.9 + n / 100)) for n in range(5)]
    >>> is_outdone(Curve((0.1, 0.2, 0.3, 0.5), (0.3, 0.35, 0.36, 0.36)), steady)
    True
    >>> is_outdone(Curve((0.1, 0.2, 0.3, 0.5), (0.1, 0.2, 0.3, 0.5)), steady)
    False
    """
    if len(running.done) < LEAST_REPORTS or running.done[-1] < WARM_UP:
        return False
    then = [score for peer in peers if (score := peer.at(running.done[-1])) is not None]
    if len(then) < LEAST_PEERS:
        return False
    low, middle, high = quantiles(then, n=4, method="inclusive")
    margin = max(LEAST_MARGIN * abs(middle), (high - low) / 2)
    return running.best[-1] < middle - margin and running.hoped() < median(peer.best[-1] for peer in peers)


@dataclass(frozen=True)
class SearchLimits:
    """What the search has to keep to: the price of a trial, how many run at once, when it must end.

    `methods` is how many methods share the trials' numbers. `put_by` is the share of every limit that is left
    for later: no trial starts on it, but one that runs may use it.
    """

    price: Price
    parallelism: int
    price_of_all_usd: float | None
    time_s: float | None
    trials: int | None
    deadline_left_s: float = math.inf
    metric: str = ""
    methods: int = 1
    put_by: float = 0.0

    @classmethod
    def of(
        cls,
        request: TrainingRequest,
        price: Price,
        parallelism: int,
        elapsed_s: float,
        metric: str,
        ending_s: float = 0.0,
    ) -> SearchLimits:
        """The terms of a request that began `elapsed_s` ago; giving its machines back takes `ending_s`."""
        budget, deadline = request.budget, request.deadline
        left = math.inf if deadline is None else deadline.left_s(datetime.now(UTC), elapsed_s)
        # The answer has to be there by then, so the last models need a moment to be put in their places.
        left = left if math.isinf(left) else left - ending_s - min(2.0, 0.02 * max(left, 0.0))
        return cls(price, parallelism, budget.usd, budget.time_s, budget.trials, left, metric)

    @property
    def limited(self) -> bool:
        """Whether a budget ends the search, rather than each method's own number of trials."""
        return (self.price_of_all_usd, self.time_s, self.trials) != (None, None, None)

    @property
    def most_s(self) -> float:
        """How long the search may take in all, as far as that is limited."""
        return min(math.inf if self.time_s is None else self.time_s, self.deadline_left_s)

    def training_s(self, left_usd: float) -> float:
        """How long all trials together may take with so much money, as far as that is limited."""
        return min(self.most_s * self.parallelism, self.price.seconds_for(left_usd))

    @property
    def most_trials(self) -> float:
        """How many trials may be started."""
        return math.inf if self.trials is None else max(1, math.floor(self.trials * (1.0 - self.put_by)))

    def put_by_usd(self) -> float:
        """Money that is not for new trials."""
        return self.put_by * (self.price_of_all_usd or 0.0)

    def put_by_s(self) -> float:
        """Time that is not for new trials."""
        return 0.0 if math.isinf(self.most_s) else self.put_by * max(self.most_s, 0.0)


SAFE_SHARE = 0.7
"""A trial is begun for its own sake only if it should end within this share of the time left; and while there
is no model at all, a trial may use so much of it."""
TURN, LEAST_TURN_S = 0.3, 2.0
"""A trial should use this share of the time left: an iterative algorithm ends by itself then, with what it
has learned."""
SLACK = 1.5
"""Another one is cut when it has used so many times that, or what trials of its method have needed."""
LAST_SHARE = 0.25
"""In this last share of the time, a trial may use nearly all that is left."""


class TrialTimes:
    """The clock of one session; what earlier ones took counts against a budget, not against a deadline."""

    def __init__(self, terms: SearchLimits) -> None:
        self._terms = terms
        self._zero_s = self._begun_s = time.monotonic()

    def used_before(self, seconds: float) -> None:
        """Earlier sessions took so long."""
        self._zero_s -= seconds

    def left_s(self) -> float:
        """Seconds until trials are cut."""
        now_s = time.monotonic()
        budget_s = math.inf if self._terms.time_s is None else self._terms.time_s
        deadline_s = self._terms.deadline_left_s
        return min(budget_s - (now_s - self._zero_s), deadline_s - (now_s - self._begun_s))

    def turn_s(self, left_s: float) -> float:
        """How long a trial that starts now should take at most; the last ones have all the time left."""
        return (
            SAFE_SHARE * left_s
            if left_s < LAST_SHARE * self._terms.most_s
            else max(TURN * left_s, LEAST_TURN_S)
        )

    def limit_s(self, left_s: float, needed_s: float, first: bool) -> float:
        """When a trial that starts now is cut so that others get their turn.

        `needed_s` is what the longest trial of its method took that gave a model (0: none did): one that
        needs as long again gets it. While there is no model (`first`), to wait for one is worth more.
        """
        enough_s = SLACK * max(self.turn_s(left_s), needed_s)
        return min(left_s, max(enough_s, SAFE_SHARE * left_s if first else 0.0))
