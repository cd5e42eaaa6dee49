"""How often."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field


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
