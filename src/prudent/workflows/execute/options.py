"""How a plan is executed, and the limits of an execution: budget and deadline. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from prudent.cloud.billing import RentalPeriod, affordable_s
from prudent.core.errors import BadInput
from prudent.core.journal import Fact
from prudent.core.money import ROUNDING_USD
from prudent.core.units import format_duration, format_money
from prudent.workflows.execute.forecast import Forecast


@dataclass(frozen=True)
class ExecutionOptions:
    """Options of an execution; `execute` explains each."""

    directory: Path
    retries: int = 1
    timeout_s: float | None = None
    replay: float | None = None
    stop_at_failure: bool = False

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise BadInput(f"There are {self.retries} retries; give zero or more.")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise BadInput(f"The time-out is {self.timeout_s:g} s; give a number above zero.")
        if self.replay is not None and not (self.replay > 0 and math.isfinite(self.replay)):
            raise BadInput(f"The replay's scale is {self.replay:g}; give a number above zero, like 0.01.")
        if not self.directory.is_dir():
            raise BadInput(f'There is no folder "{self.directory}" to run in; name one that exists.')


LimitKind = Literal["budget", "deadline"]


@dataclass(frozen=True)
class RunLimits:
    """The most that a run may cost over all its sessions, and the latest end of this one (run's clock)."""

    budget_usd: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if self.budget_usd is not None and not (self.budget_usd > 0 and math.isfinite(self.budget_usd)):
            raise BadInput(f"The budget is ${self.budget_usd:g}; give an amount above zero, such as $3.")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise BadInput(f'The deadline is {self.deadline_s:g} s; give a time above zero, such as "2 h".')

    def __bool__(self) -> bool:
        return self.budget_usd is not None or self.deadline_s is not None

    def or_as_before(self, earlier: Sequence[Fact]) -> RunLimits:
        """These limits; without a budget, that of the session before."""
        told = [fact["budget_usd"] for fact in earlier if fact["fact"] == "session" and "budget_usd" in fact]
        return self if self.budget_usd is not None or not told else replace(self, budget_usd=float(told[-1]))

    def after(self, clock_s: float) -> RunLimits:
        """The same limits with the deadline counted from `clock_s` of the run's clock."""
        if self.deadline_s is None:
            return self
        return RunLimits(self.budget_usd, self.deadline_s + clock_s)

    def time_left(
        self,
        holds: Sequence[RentalPeriod],
        earlier_usd: float,
        now_s: float,
        give_back_s: float,
        most_s: float = math.inf,
    ) -> tuple[float, LimitKind]:
        """For how many seconds all held machines may still be used, and which limit decides.

        A caller that only asks whether they may be used for `most_s` is answered quicker.
        """
        money_s = time_s = math.inf
        if self.budget_usd is not None:
            money_s = affordable_s(holds, self.budget_usd - earlier_usd, now_s, give_back_s, most_s)
        if self.deadline_s is not None:
            time_s = self.deadline_s - now_s
        return (money_s, "budget") if money_s <= time_s else (time_s, "deadline")

    def passed_by(self, cost_usd: float, end_s: float) -> LimitKind | None:
        """The limit that an outcome breaks; None if it keeps both."""
        if self.budget_usd is not None and cost_usd > self.budget_usd + ROUNDING_USD:
            return "budget"
        if self.deadline_s is not None and end_s > self.deadline_s:
            return "deadline"
        return None

    def check(self, forecast: Forecast, clock_s: float) -> None:
        """BadInput if the forecast breaks a limit; nothing has been rented yet."""
        broken = self.passed_by(forecast.cost_usd.expected, forecast.makespan_s.expected)
        if broken == "budget" and self.budget_usd is not None:
            enough = format_money(rounded_up(forecast.cost_usd.high))
            raise BadInput(
                f"It is expected to cost {forecast.cost_text}, more than the budget of "
                f"{format_money(self.budget_usd)}; give --budget {enough}, plan again for less with "
                "`prudent schedule --objective cost`, or do a part of it with --anyway."
            )
        if broken == "deadline" and self.deadline_s is not None:
            rest = forecast.plus(0.0, -clock_s)
            raise BadInput(
                f"It is expected to take {rest.makespan_text}, more than the deadline of "
                f'{format_duration(self.deadline_s - clock_s)}; give --deadline "{_minutes(rest)} min", plan '
                "again with more or faster machines, or do a part of it with --anyway."
            )


def rounded_up(usd: float) -> float:
    """Rounded up to two digits, so that a budget that is recommended suffices.

    >>> round(rounded_up(0.01234), 6), rounded_up(3.0)
    (0.013, 3.0)
    """
    if usd <= 0:
        return usd
    unit = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return math.ceil(usd / unit - 1e-9) * unit


def _minutes(rest: Forecast) -> int:
    return max(math.ceil(rest.makespan_s.high / 60), 1)


def stop_sentence(
    limits: RunLimits,
    why: LimitKind,
    spent_usd: float,
    end_usd: float,
    clock_s: float,
    what: str,
    rest: Forecast,
) -> str:
    """What a user reads about a stop: `what` remains, and how much it needs.

    `end_usd` is the most that will have been paid once all machines are given back.
    """
    need = f"which need about {rest.cost_text} and {rest.makespan_text} more"
    if why == "budget":
        assert limits.budget_usd is not None
        enough = format_money(rounded_up(end_usd + rest.cost_usd.high))
        return (
            f"Stopped before the budget of {format_money(limits.budget_usd)} is passed "
            f"({format_money(spent_usd)} spent): {what}, {need}; continue with --resume --budget {enough}."
        )
    return (
        f"Stopped at the deadline, after {format_duration(clock_s)}: {what}, {need}; continue with --resume "
        f'--deadline "{_minutes(rest)} min".'
    )
