"""What a strategy is asked to solve: a space, a goal, prices, and the rules of the game."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.core.units import format_money
from prudent.tuning.goal import Goal
from prudent.tuning.trial import Configuration

LISTED = 200_000
"""Spaces up to this size are listed whole; in larger ones candidates are drawn anew for each decision."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Configurations as arrays: features (m, width), the price of each (m,), and how columns group."""

    configurations: Sequence[Configuration]
    features: NDArray[np.float64]
    usd_per_h: NDArray[np.float64]
    minimum_s: NDArray[np.float64]
    overhead_s: NDArray[np.float64]
    step_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def usd_per_s(self) -> NDArray[np.float64]:
        return self.usd_per_h / 3600.0

    @cached_property
    def least_usd(self) -> NDArray[np.float64]:
        """What even the shortest run of each is billed: the minimum, or its boot and give-back."""
        return self._billed_usd(np.maximum(self.minimum_s, self.overhead_s))

    @cached_property
    def beside_usd(self) -> NDArray[np.float64]:
        """What a bill has on average beside the run's own time: boot, give-back, half a billing step."""
        return np.asarray((self.overhead_s + self.step_s / 2.0) * self.usd_per_s)

    def bill_usd(self, seconds: float) -> NDArray[np.float64]:
        """The bill of a run of so many seconds at each (`Price.bill_usd`)."""
        return self._billed_usd(np.maximum(self.minimum_s, self.overhead_s + seconds))

    def _billed_usd(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        steps = np.where(self.step_s > 0, self.step_s, 1.0)
        rounded = np.where(self.step_s > 0, np.ceil(seconds / steps - 1e-9) * steps, seconds)
        return np.where(self.usd_per_s > 0, rounded * np.maximum(self.usd_per_s, 1e-300), 0.0)

    def payable(self, money_usd: float) -> NDArray[np.bool_]:
        """Which of them this money can start at all: it pays the bill of their shortest run."""
        return np.asarray(self.least_usd <= money_usd)

    def subset(self, indices: NDArray[np.int64]) -> Candidates:
        return Candidates(
            [self.configurations[i] for i in indices],
            self.features[indices],
            self.usd_per_h[indices],
            self.minimum_s[indices],
            self.overhead_s[indices],
            self.step_s[indices],
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a strategy may know before the first run.

    Prices are known beforehand, so the price is one more feature of a configuration (its logarithm,
    the last column): run time usually follows it more smoothly than the name of a machine type.
    """

    space: Space
    goal: Goal
    price: Callable[[Configuration], Price]
    measures: tuple[str, ...] = ()
    fraction: str | None = None
    early_stop: bool = True
    keys: dict[str, int] = field(default_factory=dict, repr=False)
    places: dict[tuple[tuple[str, object], ...], int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.goal.check_measures(self.measures)
        if self.goal.speaks_of_full_data and self.fraction is None:
            raise BadInput(
                "The goal speaks of full data, but the job names no fraction; "
                'add "fraction: PARAMETER" to the job or drop "at full data".'
            )
        if self.fraction is not None:
            self._check_fraction(self.fraction)

    def _check_fraction(self, name: str) -> None:
        parameter = self.space[name]
        values = (
            parameter.values if parameter.finite else (parameter.from_unit(0.0), parameter.from_unit(1.0))
        )
        for value in values:
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
                raise BadInput(
                    f'The fraction "{name}" has the value {value}; use shares of the data in (0, 1].'
                )
        if max(values) < 1:
            raise BadInput(f'The fraction "{name}" never reaches 1, the full data; add the value 1.')

    def check_budget(self, budget_usd: float | None) -> None:
        """Refuse a budget that cannot pay for the shortest run of the cheapest configuration."""
        if budget_usd is None:
            return
        if budget_usd <= 0:
            raise BadInput(f"The budget is {format_money(budget_usd)}; give an amount above 0.")
        least_usd = float(self.everything.least_usd.min()) if self.listed else 0.0
        if least_usd > budget_usd:
            raise BadInput(
                f"The budget of {format_money(budget_usd)} pays for no run: the cheapest configuration is "
                f"billed at least {format_money(least_usd)}; raise the budget or add cheaper machines."
            )

    @cached_property
    def listed(self) -> bool:
        """Whether every configuration can be looked at before a decision."""
        size = self.space.size
        return size is not None and size <= LISTED

    @cached_property
    def everything(self) -> Candidates:
        """All configurations of a listed space, in its fixed order."""
        if not self.listed:
            raise BadInput("This space is too large to list; sample from it instead.")
        listing = self.candidates(self.space.configurations())
        if not len(listing):
            raise BadInput("The rule excludes every configuration of the space; loosen it.")
        self.keys.update({self.space.key(c): i for i, c in enumerate(listing.configurations)})
        return listing

    def index(self, configuration: Configuration) -> int:
        """The place of a configuration in `everything`; -1 where it is not in the space."""
        _ = self.everything
        spelled = tuple(configuration.items())
        if spelled not in self.places:
            self.places[spelled] = self.keys.get(self.space.key(configuration), -1)
        return self.places[spelled]

    def candidates(self, configurations: Iterable[Configuration]) -> Candidates:
        """Encode configurations, with their prices."""
        rows = list(configurations)
        prices = [self.price(row) for row in rows]
        usd_per_h = np.array([price.usd_per_h for price in prices], dtype=np.float64)
        bills = np.array(
            [(price.minimum_s, price.overhead_s, price.step_s) for price in prices], dtype=np.float64
        ).reshape(len(rows), 3)
        features = self.space.encode(rows) if rows else np.empty((0, self.space.width))
        if self._price_range[1] > 0:
            low, span = self._price_range
            features = np.column_stack([features, (_log_price(usd_per_h) - low) / span])
        return Candidates(rows, features, usd_per_h, *bills.T)

    @cached_property
    def _price_range(self) -> tuple[float, float]:
        """Lowest log price and the span of log prices; a span of 0 where the price never varies."""
        probes = (
            list(self.space.configurations())
            if self.listed
            else self.space.sample(256, np.random.default_rng(0), "random")
        )
        if not probes:
            return 0.0, 0.0
        logs = _log_price(np.array([self.price(probe).usd_per_h for probe in probes]))
        return float(logs.min()), float(logs.max() - logs.min())

    @cached_property
    def groups(self) -> list[slice]:
        """Columns of the features that belong together (one parameter each), for length scales."""
        groups = [columns for _, columns in self.space.groups if columns.stop > columns.start]
        if self._price_range[1] > 0:
            groups.append(slice(self.space.width, self.space.width + 1))
        return groups

    def with_fraction(self, configuration: Configuration, fraction: float) -> Configuration:
        """The same configuration at another share of the data."""
        assert self.fraction is not None
        return {**configuration, self.fraction: fraction}

    def is_full(self, configuration: Configuration) -> bool:
        """Whether a configuration uses all the data."""
        return self.fraction is None or math.isclose(float(configuration[self.fraction]), 1.0)

    def answers(self, configuration: Configuration) -> bool:
        """Whether a run of this configuration can itself be the answer to the goal."""
        return self.is_full(configuration) or not self.goal.speaks_of_full_data


def _log_price(usd_per_h: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(usd_per_h, 1e-9))
