"""How a configuration gets its price: fixed, by its machines, by a formula, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from prudent.cloud.catalog import Catalog
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.core.units import as_float
from prudent.core.values import is_number
from prudent.tuning.jobs.declared import name_of
from prudent.tuning.jobs.formula import Formula
from prudent.tuning.trial import Configuration

PriceSpec: TypeAlias = (
    float | Price | str | Mapping[str, Any] | Callable[[Configuration], Price | float] | None
)
"""What may be said as a price; `pricing` tells what each means."""

_PARTS = ("minimum_s", "step_s", "boot_s", "release_s")
_KEYS = ("machine", "count", "catalog")


class Pricing(Protocol):
    """Knows what every configuration costs before it runs."""

    def price(self, configuration: Configuration) -> Price:
        """The price of a canonical configuration."""

    def fingerprint(self) -> str:
        """Another text when the prices are others."""


def pricing(price: PriceSpec, space: Space) -> Pricing:
    """The pricing that is meant.

    - nothing: the machine parameters of the space, added up; free if it has none
    - a number: dollars per hour for every configuration, or a whole `Price`
    - text: a formula in dollars per hour over the parameters, such as `0.05 * workers`, or the name of
      a machine parameter
    - a mapping: so many machines of the catalog, `{"machine": "m5.large", "count": "workers"}`
    - a function of the configuration that answers one of the first two

    >>> space = Space.parse({"workers": [1, 2, 4]})
    >>> pricing("0.05 * workers", space).price({"workers": 4}).usd_per_h
    0.2
    >>> pricing({"machine": "m5.large", "count": "workers + 1"}, space).price({"workers": 4}).usd_per_h
    0.48
    """
    if price is None:
        return _of_machines(space)
    if isinstance(price, (Price, int, float)) and not isinstance(price, bool):
        return FixedPrice(price if isinstance(price, Price) else Price(as_float(price), "", "fixed price"))
    if isinstance(price, str):
        return _of_text(price, space)
    if isinstance(price, Mapping):
        return _of_mapping(price, space)
    if callable(price):
        return FunctionPrice(price)
    raise BadInput(f"{price!r} is no price; give dollars per hour, a formula, a machine or a function.")


@dataclass(frozen=True)
class FixedPrice:
    """The same price whatever is chosen."""

    fixed: Price

    def price(self, configuration: Configuration) -> Price:
        return self.fixed

    def fingerprint(self) -> str:
        beside = "".join(f" {name} {value!r}" for name in _PARTS[1:] if (value := getattr(self.fixed, name)))
        return f"{self.fixed.usd_per_h!r} {self.fixed.minimum_s!r}{beside}"


@dataclass(frozen=True)
class ClusterPrice:
    """The machines that the configuration names; several clusters are rented together."""

    parameters: tuple[MachineParameter, ...]

    def price(self, configuration: Configuration) -> Price:
        prices = [parameter.price(configuration[parameter.name]) for parameter in self.parameters]
        if len(prices) == 1:
            return prices[0]
        # The longest minimum and the oldest date: neither may promise more than every part keeps.
        return Price(
            sum(price.usd_per_h for price in prices),
            min(price.date for price in prices),
            ", ".join(dict.fromkeys(price.source for price in prices)),
            *(max(getattr(price, part) for price in prices) for part in _PARTS),
        )

    def fingerprint(self) -> str:
        single = [(machine, p.catalog[machine].price) for p in self.parameters for machine in p.types]
        return "; ".join(f"{machine} {price.usd_per_h!r} {price.minimum_s!r}" for machine, price in single)


@dataclass(frozen=True)
class MachinesPrice:
    """A machine type, or the parameter that names it, times a count that a formula tells."""

    machine: str
    types: tuple[str, ...]
    count: Formula
    catalog: Catalog

    def price(self, configuration: Configuration) -> Price:
        machine = self.catalog[str(configuration.get(self.machine, self.machine))]
        count = self.count(configuration)
        if count < 0 or count != int(count):
            raise BadInput(
                f'The count "{self.count.text}" is {count:g} at {configuration}, which is no number of '
                "machines; make it a whole number of 0 or more."
            )
        return machine.price.times(int(count))

    def fingerprint(self) -> str:
        prices = [f"{name} {self.catalog[name].price.usd_per_h!r}" for name in self.types]
        return f"{self.count.text} x {self.machine}: {', '.join(prices)}"


@dataclass(frozen=True)
class FormulaPrice:
    """Dollars per hour by a formula over the parameters."""

    formula: Formula

    def price(self, configuration: Configuration) -> Price:
        return Price(self.formula(configuration), "", f"formula {self.formula.text}")

    def fingerprint(self) -> str:
        return self.formula.text


@dataclass(frozen=True)
class FunctionPrice:
    """Whatever a function says, checked each time."""

    function: Callable[[Configuration], Price | float]

    def price(self, configuration: Configuration) -> Price:
        name = name_of(self.function)
        try:
            answer = self.function(dict(configuration))
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"The price function {name} fails at {configuration} ({type(error).__name__}: {error}); "
                "mend it, every configuration needs a price."
            ) from error
        if isinstance(answer, Price):
            return answer
        if not is_number(answer):
            raise BadInput(f"The price function {name} answered {answer!r}; return dollars per hour.")
        return Price(float(answer), "", f"function {name}")

    def fingerprint(self) -> str:
        return name_of(self.function)


def _of_machines(space: Space) -> Pricing:
    machines = tuple(p for p in space.parameters if isinstance(p, MachineParameter))
    return ClusterPrice(machines) if machines else FixedPrice(Price(0.0, "", "free"))


def _of_text(said: str, space: Space) -> Pricing:
    named = space[said] if said in space.names else None
    if isinstance(named, MachineParameter):
        return ClusterPrice((named,))
    return FormulaPrice(Formula.parse(said, space))


def _of_mapping(said: Mapping[str, Any], space: Space) -> Pricing:
    for key in said:
        if key not in _KEYS:
            raise unknown("key of the price", key, _KEYS)
    machine = said.get("machine")
    if not isinstance(machine, str):
        raise BadInput('The price names no machine; write {"machine": "m5.large", "count": "workers"}.')
    catalog = Catalog.load(said["catalog"]) if said.get("catalog") is not None else Catalog.load()
    count = Formula.parse(str(said.get("count", 1)), space)
    if machine not in space.names:
        if machine not in catalog:
            raise unknown("machine type", machine, [*space.names, *(known.name for known in catalog)])
        return MachinesPrice(machine, (machine,), count, catalog)
    parameter = space[machine]
    if isinstance(parameter, MachineParameter):
        raise BadInput(f'"{machine}" knows its count and price; write the price as "{machine}" alone.')
    if not parameter.finite:
        raise BadInput(f'"{machine}" lists no machine types; list them, like [m5.large, c5.xlarge].')
    # A type nobody knows is found now, not after money was spent.
    types = tuple(catalog[str(value)].name for value in parameter.values)
    return MachinesPrice(machine, types, count, catalog)
