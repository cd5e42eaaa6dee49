"""The time of a request: how much is left, and how much of it a trial may use."""

from __future__ import annotations

import math
import time

from prudent.training.terms import Terms

SAFE = 0.7
"""A trial is begun for its own sake only if it should end within this share of the time left; and while there
is no model at all, a trial may use so much of it."""
TURN, LEAST_TURN_S = 0.3, 2.0
"""A trial should use this share of the time left: an iterative algorithm ends by itself then, with what it
has learned."""
SLACK = 1.5
"""Another one is cut when it has used so many times that, or what trials of its method have needed."""
LAST = 0.25
"""In this last share of the time, a trial may use nearly all that is left."""


class Turns:
    """The clock of one session; what earlier ones took counts against a budget, not against a deadline."""

    def __init__(self, terms: Terms) -> None:
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
        return SAFE * left_s if left_s < LAST * self._terms.most_s else max(TURN * left_s, LEAST_TURN_S)

    def limit_s(self, left_s: float, needed_s: float, first: bool) -> float:
        """When a trial that starts now is cut so that others get their turn.

        `needed_s` is what the longest trial of its method took that gave a model (0: none did): one that
        needs as long again gets it. While there is no model (`first`), to wait for one is worth more.
        """
        enough_s = SLACK * max(self.turn_s(left_s), needed_s)
        return min(left_s, max(enough_s, SAFE * left_s if first else 0.0))
