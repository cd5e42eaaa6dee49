"""How often, and for how much money in a day."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from prudent.core.units import format_money


@dataclass
class Rate:
    """A bucket of turns for each key: `burst` at once, then `per_s` a second.

    The clock is an argument, and the least recently used keys are forgotten: a stranger who invents addresses
    fills no memory.
    """

    per_s: float
    burst: float
    most_keys: int = 10_000
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict, repr=False)

    def wait_s(self, key: str, now_s: float, turns: float = 1.0) -> float:
        """Take turns: 0 when there are enough, else the seconds until there will be (and none are taken).

        >>> rate = Rate(per_s=1, burst=2)
        >>> [rate.wait_s("ada", now_s) for now_s in (0, 0, 0, 1)]
        [0.0, 0.0, 1.0, 0.0]
        """
        left, seen_s = self._left.pop(key, (self.burst, now_s))
        left = min(self.burst, left + max(now_s - seen_s, 0.0) * self.per_s)
        missing = turns - left
        self._left[key] = (left if missing > 0 else left - turns, now_s)
        while len(self._left) > self.most_keys:
            self._left.popitem(last=False)
        return missing / self.per_s if missing > 1e-9 else 0.0


def retry_after(wait_s: float) -> str:
    """The header's value: whole seconds, at least one.

    >>> retry_after(0.2), retry_after(61.5)
    ('1', '62')
    """
    return str(max(1, math.ceil(wait_s)))


def overspent(daily_usd: float | None, spent_usd: float, asked_usd: float = 0.0) -> str | None:
    """Why a request goes beyond what a user may spend today, or None.

    >>> overspent(5.0, 4.5, 1.0)
    'It may cost $1.00, and $0.50 of your $5.00 for today is left; lower the budget or wait until tomorrow.'
    >>> overspent(5.0, 1.0, 1.0), overspent(None, 1e6)
    (None, None)
    """
    if daily_usd is None:
        return None
    left_usd = max(daily_usd - spent_usd, 0.0)
    if left_usd <= 0:
        return f"Your {format_money(daily_usd)} for today are spent; wait until tomorrow or ask for more."
    if asked_usd > left_usd + 1e-9:
        return (
            f"It may cost {format_money(asked_usd)}, and {format_money(left_usd)} of your "
            f"{format_money(daily_usd)} for today is left; lower the budget or wait until tomorrow."
        )
    return None
