"""What a search has to keep to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from prudent.core.money import Price
from prudent.training.request import TrainingRequest


@dataclass(frozen=True)
class Terms:
    """What the search has to keep to: the price of a trial, how many run at once, when it must end.

    `methods` is how many methods share the trials' numbers.
    """

    price: Price
    parallelism: int
    price_of_all_usd: float | None
    time_s: float | None
    trials: int | None
    deadline_left_s: float = math.inf
    metric: str = ""
    methods: int = 1

    @classmethod
    def of(
        cls, request: TrainingRequest, price: Price, parallelism: int, elapsed_s: float, metric: str
    ) -> Terms:
        budget, deadline = request.budget, request.deadline
        left = math.inf if deadline is None else deadline.left_s(datetime.now(UTC), elapsed_s)
        # The answer has to be there by then, so the last models need a moment to be put in their places.
        left = left if math.isinf(left) else left - min(2.0, 0.02 * max(left, 0.0))
        return cls(price, parallelism, budget.usd, budget.time_s, budget.trials, left, metric)

    @property
    def limited(self) -> bool:
        """Whether a budget ends the search, rather than each method's own number of trials."""
        return (self.price_of_all_usd, self.time_s, self.trials) != (None, None, None)

    def less(self, share: float) -> Terms:
        """The same with a share of the budget put by."""
        keep = 1.0 - share

        def part(amount: float | None) -> float | None:
            return None if amount is None else amount * keep

        return replace(
            self,
            price_of_all_usd=part(self.price_of_all_usd),
            time_s=part(self.time_s),
            trials=None if self.trials is None else max(1, math.floor(self.trials * keep)),
            deadline_left_s=self.deadline_left_s * keep,
        )
