"""What a run costs: a price per hour, when it was valid, and where it was read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date as calendar_date
from typing import Any

from prudent.core.errors import BadInput

ROUNDING_USD = 1e-9
"""Amounts that differ by no more than this are the same money: a billionth of a dollar is arithmetic."""

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Price:
    """Dollars per hour, billed by the second, with a minimum per start.

    A price is kept with its date and its source, because a bill can only be checked later by
    somebody who knows which price list it was made with. `date` is an ISO date, or empty where
    nobody wrote it down (an old table of measured runs).

    >>> m5_large = Price(0.096, "2025-01-01", "catalog aws us-east-1", minimum_s=60)
    >>> m5_large.cost_usd(3600), m5_large.cost_usd(0)
    (0.096, 0.0)
    >>> m5_large.cost_usd(5) == m5_large.cost_usd(60)
    True
    >>> m5_large.times(4).seconds_for(0.096)
    900.0
    """

    usd_per_h: float
    date: str
    source: str
    minimum_s: float = 0.0

    def __post_init__(self) -> None:
        _check_amount("The price", self.usd_per_h, f"from {self.source}: give dollars per hour, 0 or more")
        _check_amount("The billing minimum", self.minimum_s, "is wrong: give seconds, 0 or more")
        if self.date and not _is_iso_date(self.date):
            raise BadInput(f'The price date "{self.date}" is not a date: write it as 2025-01-31.')

    def cost_usd(self, seconds: float) -> float:
        """The bill for a run: max(seconds, minimum) x rate; one that never started is free."""
        if math.isnan(seconds) or seconds < 0:
            raise BadInput(f"A run cannot last {seconds} seconds: give a time of 0 or more.")
        if seconds == 0 or self.usd_per_h == 0:
            return 0.0
        return max(seconds, self.minimum_s) * self.usd_per_h / _SECONDS_PER_HOUR

    def seconds_for(self, usd: float) -> float:
        """How long this money lasts: the longest run whose bill is at most `usd`.

        Money that cannot pay the billing minimum buys no time at all. A free price lasts for ever.
        """
        if math.isnan(usd):
            raise BadInput("An amount of money is not a number: give dollars, 0 or more.")
        if self.usd_per_h == 0:
            return math.inf
        if usd < 0 or usd + ROUNDING_USD < self.cost_usd(self.minimum_s):
            return 0.0
        return max(usd / self.usd_per_h * _SECONDS_PER_HOUR, self.minimum_s)

    def times(self, count: int) -> Price:
        """The price of that many machines at once; each has the same billing minimum."""
        if count < 0:
            raise BadInput(f"Nobody can rent {count} machines: give a count of 0 or more.")
        return replace(self, usd_per_h=self.usd_per_h * count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a journal; `from_dict` gives the same price back."""
        return {
            "usd_per_h": self.usd_per_h,
            "date": self.date,
            "source": self.source,
            "minimum_s": self.minimum_s,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Price:
        """The price that `to_dict` wrote.

        >>> price = Price(0.1, "2025-01-01", "table runs.csv")
        >>> Price.from_dict(price.to_dict()) == price
        True
        """
        try:
            return cls(
                usd_per_h=float(values["usd_per_h"]),
                date=str(values["date"]),
                source=str(values["source"]),
                minimum_s=float(values["minimum_s"]),
            )
        except KeyError as error:
            raise BadInput(f"A price record lacks {error}: it was not written by Prudent.") from error
        except (TypeError, ValueError) as error:
            raise BadInput(f"A price record is damaged ({error}): restore the file from a copy.") from error


def _check_amount(what: str, amount: float, remedy: str) -> None:
    if not (math.isfinite(amount) and amount >= 0):
        raise BadInput(f"{what} {amount} {remedy}.")


def _is_iso_date(text: str) -> bool:
    try:
        calendar_date.fromisoformat(text)
    except ValueError:
        return False
    return True
