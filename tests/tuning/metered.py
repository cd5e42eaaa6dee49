"""A job with a meter of its own: what was really used is counted where it is used, not in the books.

A study's ledger cannot show that it is right. These runs know how long each of them lasted and bill that
themselves, as whoever owns the machines would, without any of the code that keeps the study's money.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.trial import CUT, Configuration, Outcome


@dataclass
class MeteredRun:
    """One run in virtual time; it lasts to its own end unless somebody cuts it."""

    outcome: Outcome
    usd_per_h: float
    minimum_s: float
    lasted_s: float

    def next(self, until_s: float) -> Outcome | None:
        return self.outcome if self.outcome.time_s <= until_s else None

    def cut(self, at_s: float, why: str) -> Outcome:
        self.lasted_s = at_s
        return Outcome(CUT, at_s, {}, why)

    @property
    def used_usd(self) -> float:
        billed_s = max(self.lasted_s, self.minimum_s) if self.lasted_s > 0 else 0.0
        return billed_s * self.usd_per_h / 3600.0


class MeteredJob:
    """`runs` are all that were started, by the number of the trial; `used_usd` is what they cost."""

    name, virtual = "metered", True

    def __init__(
        self,
        space: Space,
        run: Callable[[Configuration], Outcome],
        usd_per_h: Callable[[Configuration], float],
        measures: Sequence[str] = (),
        fraction: str | None = None,
        minimum_s: float = 0.0,
    ) -> None:
        self.space, self.measures, self.fraction = space, tuple(measures), fraction
        self.runs: dict[int, MeteredRun] = {}
        self._run, self._usd_per_h, self._minimum_s = run, usd_per_h, minimum_s

    def price(self, configuration: Configuration) -> Price:
        return Price(self._usd_per_h(configuration), "2025-01-01", "the test", self._minimum_s)

    def start(self, configuration: Configuration, number: int) -> MeteredRun:
        assert number not in self.runs, f"trial {number} was run twice"
        outcome = self._run(configuration)
        run = MeteredRun(outcome, self._usd_per_h(configuration), self._minimum_s, outcome.time_s)
        self.runs[number] = run
        return run

    def fingerprint(self) -> str:
        return "metered"

    @property
    def used_usd(self) -> float:
        return math.fsum(run.used_usd for run in self.runs.values())
