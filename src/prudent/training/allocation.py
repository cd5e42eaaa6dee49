"""Which method gets the next trial: the one from which an improvement is likely to cost least.

For each method the cost of its next improvement is estimated from its own past, as FLAML does (Wang et al.,
MLSys 2021): what the last improvements took, and, for a method that is behind, what it would take at its
rate to catch up with the best. Methods are drawn in inverse proportion to that cost, so that a dear one is
tried rarely and none never. Random and grid searches take turns instead: they stay exactly that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from prudent.core.seeds import rng_for

LEAST_S = 0.05
"""Deciding on a trial and starting it is worth that much, however short it is."""
WARM_UP = 3.0
"""A first trial is not held to have cost more than so many times the second."""
SECOND_LOOK = 0.25
"""A method is looked at twice if its first trial took no more than this share of the time left."""


@dataclass
class Standing:
    """What a method has cost and brought so far; costs are in seconds."""

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

    def note(self, time_s: float, score: float | None) -> None:
        """Take in a trial that ended; `score` is None if it gave no model."""
        self.ended += 1
        if self.ended == 1:
            self.first_s = time_s
        elif self.ended == 2:
            self._forgive(self.first_s - WARM_UP * max(time_s, LEAST_S))
        self.spent_s += max(time_s, LEAST_S)
        if score is not None:
            self.needed_s = max(self.needed_s, time_s)
        if score is not None and score > self.best:
            self.improved_s = [self.spent_s, self.improved_s[0]]
            self.before, self.best = self.best, score

    def _forgive(self, excess_s: float) -> None:
        """A first trial that took many times the second one loaded libraries or compiled: that is over."""
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


def choose(
    standings: Sequence[Standing],
    open_methods: Sequence[int],
    in_turn: bool,
    seed: int,
    left_s: float = math.inf,
) -> int:
    """The method that gets the next trial, out of those that still have something to try.

    >>> choose([Standing(started=2), Standing(started=1)], [0, 1], True, 0)
    1
    """
    fewest = min(open_methods, key=lambda index: (standings[index].started, index))
    if in_turn or standings[fewest].started == 0:
        return fewest
    for index in open_methods:
        once = standings[index]
        if once.started == once.ended == 1 and once.first_s <= SECOND_LOOK * left_s:
            return index
    unseen = [index for index in open_methods if standings[index].ended == 0]
    known = [index for index in open_methods if index not in unseen] or list(open_methods)
    best = max(standings[index].best for index in range(len(standings)))
    weights = [1.0 / standings[index].cost_of_improvement_s(best) for index in known]
    total = math.fsum(weights)
    if not math.isfinite(total) or total <= 0:
        return fewest
    rng = rng_for(seed, "allocation", sum(standing.started for standing in standings))
    return known[int(rng.choice(len(known), p=[weight / total for weight in weights]))]
