"""What runs report while they run: the measures they name, line by line or value by value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prudent.core.errors import did_you_mean
from prudent.tuning.jobs.declared import PROGRESS
from prudent.tuning.trial import Progress

MARK = "PRUDENT"
_SHOWN = 120  # characters of a wrong line that a message quotes


class ReportedMeasures:
    """The last value of each declared measure, and what was wrong with what could not be read.

    Rubbish is forgiven as long as every measure arrives in the end, for a job's own output may be
    anything; it becomes the reason of a failure only when a measure is missing.

    >>> reports = Reports(["accuracy"])
    >>> reports.line('PRUDENT {"accuracy": 0.81, "progress": 0.4}', elapsed_s=12)
    Progress(elapsed_s=12, measures={'accuracy': 0.81}, done=0.4)
    >>> reports.line("epoch 3 of 10", elapsed_s=13), reports.complaint()
    (None, None)
    """

    def __init__(self, measures: Sequence[str]) -> None:
        self._measures = tuple(measures)
        self._latest: dict[str, float] = {}
        self._others: dict[str, None] = {}
        self._rubbish = ""
        self.any = False

    @property
    def measures(self) -> dict[str, float]:
        """The last value of each measure, where it is a finite number."""
        latest = dict(self._latest)  # one step, so that the reporting thread cannot come between
        return {name: latest[name] for name in self._measures if math.isfinite(latest.get(name, math.nan))}

    def line(self, text: str, elapsed_s: float) -> Progress | None:
        """Read one line of output; None where it tells nothing."""
        head, rest = text.lstrip()[: len(MARK)], text.lstrip()[len(MARK) :]
        if head != MARK or not (rest[:1].isspace() or rest[:1] == "{"):
            return None
        try:
            said = json.loads(rest)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            self._rubbish = f"it printed a {MARK} line that is no JSON object: {text.strip()[:_SHOWN]}"
            return None
        return self.take(said, elapsed_s)

    def take(self, values: Mapping[str, Any], elapsed_s: float) -> Progress | None:
        """Note values by name; what is neither a measure nor the progress is left alone."""
        self.any = True
        shown: dict[str, float] = {}
        for name, value in values.items():
            if name not in self._measures:
                self._others[str(name)] = None
                continue
            number = as_number(value)
            if number is None:
                self._rubbish = f"it gave {name} as {str(value)[:_SHOWN]!r}, which is no number"
                continue
            self._latest[name] = number
            if math.isfinite(number):
                shown[name] = number
        done = as_number(values.get(PROGRESS))
        if done is None or not 0 <= done <= 1:
            done = None
        return Progress(elapsed_s, shown, done) if shown or done is not None else None

    def complaint(self, how: str = 'print a line PRUDENT {{"{name}": 0.5}}') -> str | None:
        """Why this is not a whole result; None where every measure is there.

        `how` tells how to report the measure `{name}`.
        """
        for name in self._measures:
            remedy = how.format(name=name)
            if name not in self._latest:
                near = did_you_mean(name, self._others).replace("Did you mean", "Is it what was called")
                why = f"; {self._rubbish}" if self._rubbish else ""
                return f"reported no {name}{why}.{near} To report it, {remedy}."
            if not math.isfinite(self._latest[name]):
                return f"reported {name} as {self._latest[name]}; make it a finite number."
        return None


def seen_until(shown: Iterable[Progress], at_s: float) -> dict[str, float]:
    """The last value of each measure at `at_s`, with a billionth of a second for rounding.

    >>> seen_until([Progress(1, {"accuracy": 0.5}), Progress(2, {"loss": 3}), Progress(9, {"loss": 2})], 5)
    {'accuracy': 0.5, 'loss': 3}
    """
    seen: dict[str, float] = {}
    for progress in shown:
        if progress.elapsed_s <= at_s + 1e-9:
            seen.update(progress.measures)
    return seen


def as_number(value: Any) -> float | None:
    """A number as a float, whichever library made it; None for anything else, spelt numbers too."""
    if value is None or isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
