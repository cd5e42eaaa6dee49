"""When a trial under way is not worth its end: others of its method had done clearly better by then.

A score so far tells little in the beginning, and slow learners catch up: many trees of small steps start
behind and end ahead. So a trial is cut only if it is behind what most others had at the same stage, and would
still be behind them at the end if it went on improving as fast as lately. Learning curves flatten, so that is
more than it can hope for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from prudent.tuning.trial import Progress

OTHERS_BETTER = "others did better by then"
WARM_UP = 0.25
"""A trial is left alone until this share of it is done."""
REPORTS = 4
"""A curve of fewer points tells no pace."""
PEERS = 5
"""So many others of the same method must have ended with a model."""
LEAST_MARGIN = 0.02
"""Behind by less than this share of the others' score is not clearly worse."""
KEPT = 200
"""Curves that are remembered, the latest."""


@dataclass(frozen=True)
class Curve:
    """The best score so far, by how much was done; the first stages may be missing.

    >>> curve = Curve.of([Progress(1.0, {"score": 0.5}, 0.2), Progress(2.0, {"score": 0.4}, 0.4)], 0.6)
    >>> curve.at(0.1), curve.at(0.3), curve.at(0.4), curve.at(1.0)
    (None, 0.5, 0.5, 0.6)
    """

    done: tuple[float, ...]
    best: tuple[float, ...]

    @classmethod
    def of(cls, progress: Sequence[Progress], final: float | None = None) -> Curve:
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


class Peers:
    """The curves of trials that ended with a model, by what makes them comparable (method, share of data)."""

    def __init__(self) -> None:
        self._curves: dict[Hashable, deque[Curve]] = {}

    def add(self, kind: Hashable, progress: Sequence[Progress], score: float) -> None:
        """Remember a trial that finished; one that said nothing on the way teaches nothing."""
        if progress:
            self._curves.setdefault(kind, deque(maxlen=KEPT)).append(Curve.of(progress, score))

    def outdone(self, kind: Hashable, progress: Sequence[Progress]) -> bool:
        """Whether a trial under way is clearly worse than its peers were, with no hope to end as they did."""
        peers = self._curves.get(kind, ())
        if len(peers) < PEERS or len(progress) < REPORTS:
            return False
        return is_outdone(Curve.of(progress), list(peers))


def is_outdone(running: Curve, peers: Sequence[Curve]) -> bool:
    """The rule itself: of one curve and those of others, and nothing else.

    >>> steady = [Curve((0.2, 0.5, 1.0), (0.7, 0.8, 0.9 + n / 100)) for n in range(5)]
    >>> is_outdone(Curve((0.1, 0.2, 0.3, 0.5), (0.3, 0.35, 0.36, 0.36)), steady)
    True
    >>> is_outdone(Curve((0.1, 0.2, 0.3, 0.5), (0.1, 0.2, 0.3, 0.5)), steady)
    False
    """
    if len(running.done) < REPORTS or running.done[-1] < WARM_UP:
        return False
    then = [score for peer in peers if (score := peer.at(running.done[-1])) is not None]
    if len(then) < PEERS:
        return False
    low, middle, high = quantiles(then, n=4, method="inclusive")
    margin = max(LEAST_MARGIN * abs(middle), (high - low) / 2)
    return running.best[-1] < middle - margin and running.hoped() < median(peer.best[-1] for peer in peers)
