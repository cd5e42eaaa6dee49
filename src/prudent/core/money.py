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
_ROUNDING_STEPS = 1e-9  # what is past a billing step by arithmetic alone is not
_OPTIONAL = ("step_s", "boot_s", "release_s")  # written only where they are there


@dataclass(frozen=True)
class Price:
    """How a machine is billed: dollars per hour, a minimum, steps, and the time beside the run.

    Whoever talks about money uses this: strategies, dry run, replays, limits and the ledger. A run of t
    seconds has `cost_usd(t)`, what its own time costs; the bill is `bill_usd(t)`, with `boot_s` before it and
    `release_s` after it, in which the machine is paid for too. Both are at least `minimum_s`, and rounded up
    to whole steps of `step_s` (0: every instant counts).

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
    >>> hourly = Price(0.36, "", "a cloud", step_s=3600, boot_s=60)
    >>> hourly.cost_usd(10), hourly.bill_usd(3590), hourly.lasts_s(0.36)
    (0.36, 0.72, 3540.0)
    """

    usd_per_h: float
    date: str
    source: str
    minimum_s: float = 0.0
    step_s: float = 0.0
    boot_s: float = 0.0
    release_s: float = 0.0

    def __post_init__(self) -> None:
        _check_amount("The price", self.usd_per_h, f"from {self.source}: give dollars per hour, 0 or more")
        _check_amount("The billing minimum", self.minimum_s, "is wrong: give seconds, 0 or more")
        _check_amount("The billing step", self.step_s, "is wrong: give seconds, 0 or more")
        _check_amount("The boot time", self.boot_s, "is wrong: give seconds, 0 or more")
        _check_amount("The give-back time", self.release_s, "is wrong: give seconds, 0 or more")
        if self.date and not _is_iso_date(self.date):
            raise BadInput(f'The price date "{self.date}" is not a date: write it as 2025-01-31.')

    @property
    def overhead_s(self) -> float:
        """What is paid for besides the run itself: boot and give-back."""
        return self.boot_s + self.release_s

    @property
    def least_usd(self) -> float:
        """The bill of the shortest run: nobody who has less can start one."""
        return self.cost_usd(max(self.minimum_s, self.overhead_s))

    def billed_s(self, seconds: float) -> float:
        """For how long a machine is billed that was there for `seconds`; not at all if it never was."""
        if math.isnan(seconds) or seconds < 0:
            raise BadInput(f"A run cannot last {seconds} seconds: give a time of 0 or more.")
        if seconds == 0:
            return 0.0
        least_s = max(seconds, self.minimum_s)
        if not self.step_s or not math.isfinite(least_s):
            return least_s
        return math.ceil(least_s / self.step_s - _ROUNDING_STEPS) * self.step_s

    def cost_usd(self, seconds: float) -> float:
        """What so many seconds of the machine cost; one that never started is free."""
        billed_s = self.billed_s(seconds)
        return 0.0 if self.usd_per_h == 0 else billed_s * self.usd_per_h / _SECONDS_PER_HOUR

    def bill_usd(self, seconds: float) -> float:
        """The bill for a run of so many seconds, with its boot and give-back; without a run there is none."""
        return self.cost_usd(seconds + self.overhead_s if seconds > 0 else 0.0)

    def seconds_for(self, usd: float) -> float:
        """How long this money pays for the machine: the longest time that costs at most `usd`.

        Money that cannot pay the billing minimum buys no time at all. A free price lasts for ever.
        """
        if math.isnan(usd):
            raise BadInput("An amount of money is not a number: give dollars, 0 or more.")
        if self.usd_per_h == 0:
            return math.inf
        if usd < 0 or usd + ROUNDING_USD < self.cost_usd(self.minimum_s):
            return 0.0
        paid_s = usd / self.usd_per_h * _SECONDS_PER_HOUR
        if self.step_s and math.isfinite(paid_s):
            paid_s = math.floor(paid_s / self.step_s + _ROUNDING_STEPS) * self.step_s
        return max(paid_s, self.minimum_s)

    def lasts_s(self, usd: float) -> float:
        """How long a run may last whose bill, boot and give-back included, is at most `usd`."""
        return max(self.seconds_for(usd) - self.overhead_s, 0.0)

    def times(self, count: int) -> Price:
        """The price of that many machines at once; each has the same billing minimum."""
        if count < 0:
            raise BadInput(f"Cannot rent {count} machines: give a count of 0 or more.")
        return replace(self, usd_per_h=self.usd_per_h * count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a journal; `from_dict` gives the same price back."""
        return {
            "usd_per_h": self.usd_per_h,
            "date": self.date,
            "source": self.source,
            "minimum_s": self.minimum_s,
            **{name: value for name in _OPTIONAL if (value := getattr(self, name))},
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
                **{name: float(values.get(name, 0.0)) for name in _OPTIONAL},
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
