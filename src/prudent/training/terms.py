"""What a search has to keep to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from prudent.core.money import Price
from prudent.training.request import TrainingRequest


@dataclass(frozen=True)
class Terms:
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
    ) -> Terms:
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
