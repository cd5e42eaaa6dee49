"""What a study records of one run: what was seen, how it ended, what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prudent.cloud.readings import Readings
from prudent.core.errors import BadInput
from prudent.core.money import Price

Configuration = dict[str, Any]

FINISHED, CUT, FAILED = "finished", "cut", "failed"
STATUSES = (FINISHED, CUT, FAILED)


@dataclass(frozen=True)
class Progress:
    """What a run showed at some moment: elapsed seconds, measures, and how far it is (0..1) if it says so."""

    elapsed_s: float
    measures: Mapping[str, float] = field(default_factory=dict)
    done: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `time_s` is how long it lasted; `why` is the reason of a cut or a failure.

    `started` is False when the run could not begin: it then costs nothing. Where machines are rented for a
    run, `overhead_s` is the part of its time in which they booted or were lost: it says nothing about the
    configuration. `ending_s` is how long a run that was cut at `time_s` went on until it was really over: it
    is paid for, too. `bill_usd` is what was paid where somebody else keeps the bill (None: by the price).
    `readings` are what the run did to its machines, None where nobody could tell.
    """

    status: str
    time_s: float
    measures: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    started: bool = True
    overhead_s: float = field(default=0.0, compare=False, repr=False)
    ending_s: float = field(default=0.0, compare=False, repr=False)
    bill_usd: float | None = field(default=None, compare=False, repr=False)
    readings: Readings | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise BadInput(f'"{self.status}" is not a way to end; use one of {", ".join(STATUSES)}.')
        if not (math.isfinite(self.time_s) and self.time_s >= 0):
            raise BadInput(f"A run cannot last {self.time_s} s; report seconds of 0 or more.")
        if not (math.isfinite(self.ending_s) and self.ending_s >= 0):
            raise BadInput(f"A run cannot take {self.ending_s} s to end; report seconds of 0 or more.")
        for name, value in self.measures.items():
            if not math.isfinite(value):
                raise BadInput(f"The measure {name} is {value}; report a finite number, or fail the run.")


@dataclass(frozen=True)
class Proposal:
    """A configuration to run next, and what the strategy expects of it.

    `expected_usd` is the mean of its predicted bill, `likely_usd` an amount it should not exceed
    (what gets reserved first); past `cap_usd` the run is cut, for it has become too dear a surprise (None:
    never); `why` is a short reason for people. `check_s`: a run that passes a limit is only noticed at the
    next multiple of it, as where a monitor looks at runs now and then.
    """

    configuration: Configuration
    why: str = ""
    expected_usd: float | None = None
    likely_usd: float | None = None
    cap_usd: float | None = None
    check_s: float = 0.0


@dataclass(frozen=True)
class PendingTrial:
    """A trial to run: its number, where, and at what price; `at_s` is when, on the study's own clock."""

    number: int
    configuration: Configuration
    price: Price
    why: str
    decision_s: float
    proposal: Proposal
    at_s: float = 0.0


@dataclass(frozen=True)
class Trial:
    """One run that ended.

    `cost_usd` and `time_s` are those of the whole run; for a run that was cut they are lower
    bounds (`spent_usd`, the money that left the budget, is always exact). `estimate` holds what
    the model believes of a cut run: its likely full cost and measures. `readings` are what the run did to its
    machines, None where nobody could tell.
    """

    number: int
    configuration: Configuration
    status: str
    time_s: float
    cost_usd: float
    spent_usd: float
    measures: Mapping[str, float]
    feasible: bool
    decision_s: float = 0.0
    why: str = ""
    chosen: str = ""
    estimate: Mapping[str, float] = field(default_factory=dict)
    known: bool = False
    readings: Readings | None = None

    @property
    def values(self) -> dict[str, float]:
        """Every measured value by name, time and cost among them."""
        return {**self.measures, "time_s": self.time_s, "cost_usd": self.cost_usd}

    @property
    def finished(self) -> bool:
        return self.status == FINISHED

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a journal or JSON; `from_dict` gives the same trial back."""
        said: dict[str, Any] = {
            "number": self.number,
            "configuration": dict(self.configuration),
            "status": self.status,
            "time_s": self.time_s,
            "cost_usd": self.cost_usd,
            "spent_usd": self.spent_usd,
            "measures": dict(self.measures),
            "feasible": self.feasible,
            "decision_s": self.decision_s,
            "why": self.why,
            "chosen": self.chosen,
            "estimate": dict(self.estimate),
            "known": self.known,
        }
        # Left out where there are none: a study that was handed in earlier trials is known by their records.
        return said if self.readings is None else {**said, "readings": self.readings.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Trial:
        """The trial that `to_dict` wrote."""
        try:
            return cls(**{**values, "readings": Readings.of(values.get("readings") or {})})
        except (TypeError, AttributeError) as error:
            raise BadInput(f"A trial record is damaged ({error}); restore the file from a copy.") from error
