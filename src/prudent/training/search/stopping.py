"""When a search and its trials end: the limits of the request, the time of a trial, and early stopping.

Early stopping cuts a running trial when others of its method were clearly better at the same stage. An early
score tells little, and slow learners catch up: many trees of small steps start behind and end ahead. So a
trial is cut only if it is behind what most others had at the same stage, and would still be behind them at
the end if it went on improving at its latest pace. Learning curves flatten, so that is an upper bound.
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
"""No trial is stopped early before this share of it is done."""
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

    >>> curve = ScoreCurve.of([Progress(1.0, {"score": 0.5}, 0.2), Progress(2.0, {"score": 0.4}, 0.4)], 0.6)
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
        """The best score at a stage; None before the first report."""
        place = bisect_right(self.done, done)
        return self.best[place - 1] if place else None

    def extrapolated(self) -> float:
        """The score at the end if it went on improving at the pace of its second half."""
        now, score = self.done[-1], self.best[-1]
        before = self.at(now / 2)
        since, then = (now / 2, before) if before is not None else (self.done[0], self.best[0])
        if now <= since:
            return score
        return score + (score - then) / (now - since) * max(1.0 - now, 0.0)


class FinishedCurves:
    """The score curves of trials that ended with a model, by group (method, share of the data)."""

    def __init__(self) -> None:
        self._curves: dict[Hashable, deque[ScoreCurve]] = {}

    def add(self, group: Hashable, progress: Sequence[Progress], score: float) -> None:
        """Remember the curve of a finished trial; one without reports has none."""
        if progress:
            self._curves.setdefault(group, deque(maxlen=MOST_CURVES)).append(ScoreCurve.of(progress, score))

    def is_clearly_worse(self, group: Hashable, progress: Sequence[Progress]) -> bool:
        """Whether a running trial is clearly worse than finished ones of its group, and would stay so."""
        peers = self._curves.get(group, ())
        if len(peers) < LEAST_PEERS or len(progress) < LEAST_REPORTS:
            return False
        return clearly_worse(ScoreCurve.of(progress), list(peers))


def clearly_worse(running: ScoreCurve, peers: Sequence[ScoreCurve]) -> bool:
    """Whether a running trial is below the middle of its peers at this stage and, extrapolated, at the end.

    >>> steady = [ScoreCurve((0.2, 0.5, 1.0), (0.7, 0.8, 0.9 + n / 100)) for n in range(5)]
    >>> clearly_worse(ScoreCurve((0.1, 0.2, 0.3, 0.5), (0.3, 0.35, 0.36, 0.36)), steady)
    True
    >>> clearly_worse(ScoreCurve((0.1, 0.2, 0.3, 0.5), (0.1, 0.2, 0.3, 0.5)), steady)
    False
    """
    if len(running.done) < LEAST_REPORTS or running.done[-1] < WARM_UP:
        return False
    then = [score for peer in peers if (score := peer.at(running.done[-1])) is not None]
    if len(then) < LEAST_PEERS:
        return False
    low, middle, high = quantiles(then, n=4, method="inclusive")
    margin = max(LEAST_MARGIN * abs(middle), (high - low) / 2)
    return running.best[-1] < middle - margin and running.extrapolated() < median(
        peer.best[-1] for peer in peers
    )


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search: the price of a trial, how many run at once, when it must end.

    `reserved_share` is the share of every limit that is kept for later: no trial starts on it, but one that
    runs may use it.
    """

    price: Price
    parallelism: int
    budget_usd: float | None
    time_s: float | None
    trials: int | None
    deadline_left_s: float = math.inf
    metric: str = ""
    reserved_share: float = 0.0

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
        """The limits of a request that began `elapsed_s` ago; giving its machines back takes `ending_s`."""
        budget, deadline = request.budget, request.deadline
        left = math.inf if deadline is None else deadline.left_s(datetime.now(UTC), elapsed_s)
        # The answer is due at the deadline, and ranking the last models takes a moment.
        left = left if math.isinf(left) else left - ending_s - min(2.0, 0.02 * max(left, 0.0))
        return cls(price, parallelism, budget.usd, budget.time_s, budget.trials, left, metric)

    @property
    def limited(self) -> bool:
        """Whether a budget ends the search, rather than each method's own number of trials."""
        return (self.budget_usd, self.time_s, self.trials) != (None, None, None)

    @property
    def time_limit_s(self) -> float:
        """How long the search may take in all, as far as that is limited."""
        return min(math.inf if self.time_s is None else self.time_s, self.deadline_left_s)

    def training_s(self, left_usd: float) -> float:
        """How long all trials together may take with so much money, as far as that is limited."""
        return min(self.time_limit_s * self.parallelism, self.price.seconds_for(left_usd))

    @property
    def most_trials(self) -> float:
        """How many trials may be started."""
        return (
            math.inf if self.trials is None else max(1, math.floor(self.trials * (1.0 - self.reserved_share)))
        )

    def reserved_usd(self) -> float:
        """Money that is not for new trials."""
        return self.reserved_share * (self.budget_usd or 0.0)

    def reserved_s(self) -> float:
        """Time that is not for new trials."""
        return 0.0 if math.isinf(self.time_limit_s) else self.reserved_share * max(self.time_limit_s, 0.0)


SAFE_SHARE = 0.7
"""A trial is begun for its own sake only if it should end within this share of the time left; and while there
is no model, a trial may use so much of it."""
TRIAL_SHARE, LEAST_TRIAL_S = 0.3, 2.0
"""A trial should use this share of the time left: an iterative algorithm ends by itself then, with what it
has learned."""
SLACK = 1.5
"""A trial is cut when it has used so many times that, or what trials of its method have needed."""
MOST_KEPT = 0.2
"""No more than this share of the time is kept for the end of a search."""
LAST_SHARE = 0.25
"""In this last share of the time, a trial may use nearly all that is left."""


class TrialTimes:
    """The clock of one session: the time left, and the time for each trial.

    The time of earlier sessions counts against a budget, not against a deadline. No trial has the `kept_s`:
    the end of the search needs them.
    """

    def __init__(self, limits: SearchLimits) -> None:
        self.limits = limits
        self.kept_s = 0.0
        self._zero_s = self._begun_s = time.monotonic()

    def add_earlier(self, seconds: float) -> None:
        """Earlier sessions took so long."""
        self._zero_s -= seconds

    def left_s(self) -> float:
        """Seconds until trials are cut."""
        return self.whole_s() - self.kept_s

    def keep(self, seconds: float) -> None:
        """Keep so many seconds for the end of the search, but no more than a share of all there is."""
        self.kept_s = min(seconds, MOST_KEPT * self.limits.time_limit_s)

    def whole_s(self) -> float:
        """Seconds until the answer is due."""
        now_s = time.monotonic()
        budget_s = math.inf if self.limits.time_s is None else self.limits.time_s
        deadline_s = self.limits.deadline_left_s
        return min(budget_s - (now_s - self._zero_s), deadline_s - (now_s - self._begun_s))

    def trial_s(self, left_s: float) -> float:
        """How long a trial that starts now should take at most; the last ones have all the time left."""
        return (
            SAFE_SHARE * left_s
            if left_s < LAST_SHARE * self.limits.time_limit_s
            else max(TRIAL_SHARE * left_s, LEAST_TRIAL_S)
        )

    def limit_s(self, left_s: float, needed_s: float, first: bool) -> float:
        """When a trial that starts now is cut so that others get their turn.

        `needed_s` is what the longest trial of its method took that gave a model (0: none did): one that
        needs as long again gets it. While there is no model (`first`), to wait for one is worth more.
        """
        enough_s = SLACK * max(self.trial_s(left_s), needed_s)
        return min(left_s, max(enough_s, SAFE_SHARE * left_s if first else 0.0))
