"""One piece of work that spent money: by an independent meter, and by the books."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SHARE = 0.01
"""Books and meter may differ by this share of the bill, or by a second of all machines."""


@dataclass(frozen=True)
class Played:
    """What a study, a training or an execution cost, and what was said about it."""

    kind: str
    seed: int
    budget_usd: float
    metered_usd: float
    booked_usd: float
    usd_per_s: float
    """What a second of everything that may run at once costs."""
    said_over_usd: float = 0.0
    """How much the answer says was spent beyond the budget."""
    excused: bool = False
    """Whether the provider was made to refuse to end a machine, or to raise a price."""
    troubles: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    """Why there is no answer at all."""

    @property
    def difference_usd(self) -> float:
        return abs(self.metered_usd - self.booked_usd)

    @property
    def over_usd(self) -> float:
        """What the meter says was paid beyond the budget."""
        return max(self.metered_usd - self.budget_usd, 0.0)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Every promise that was broken."""
        if self.failure:
            return (self.failure,)
        found = []
        allowed_usd = max(SHARE * self.metered_usd, self.usd_per_s)
        if self.difference_usd > allowed_usd:
            found.append(f"paid ${self.metered_usd:.4f}, in the books ${self.booked_usd:.4f}")
        if self.over_usd > 1e-6 and not self.excused:
            found.append(f"paid ${self.metered_usd:.4f} of a budget of ${self.budget_usd:.4f}")
        if self.booked_usd > self.budget_usd + 1e-6 and self.said_over_usd <= 0:
            found.append("more than the budget is in the books, and the answer does not say so")
        return tuple(found)
