"""How a configuration gets its price: fixed, by its machines, by a formula, or by a function."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from prudent.cloud.catalog import Catalog
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.parameters import is_number
from prudent.core.space import Space
from prudent.core.units import as_float
from prudent.tuning.jobs.job import name_of
from prudent.tuning.trial import Configuration

_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": math.ceil}


@dataclass(frozen=True)
class Formula:
    """Arithmetic over the parameters of a space and the facts that they know (`cluster.count`).

    >>> formula = Formula.parse("0.05 * max(workers, 2)", Space.parse({"workers": [1, 2, 4]}))
    >>> formula({"workers": 1})
    0.1
    >>> Formula.parse("0.05 * worker", Space.parse({"workers": [1, 2, 4]}))
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: In "0.05 * worker": Unknown name "worker". Did you mean "workers"? \
Choose one of: workers.
    """

    text: str
    _space: Space = field(repr=False, compare=False)
    _tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, space: Space) -> Formula:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise BadInput(
                f'The formula "{text}" cannot be read; write arithmetic such as "0.05 * workers".'
            ) from None
        _check(tree, text, [*space.names, *space.fact_names])
        return cls(text.strip(), space, tree)

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        facts = self._space.with_facts(configuration)
        try:
            value = _value(self._tree, facts)
            if not is_number(value) or not math.isfinite(value):
                raise ValueError(f"the result is {value!r}")
        except (ArithmeticError, TypeError, ValueError) as error:
            raise BadInput(
                f'The formula "{self.text}" has no value at {dict(configuration)} ({error}); '
                "calculate with numbers, and exclude that case."
            ) from error
        return float(value)


def _check(node: ast.expr, text: str, names: list[str]) -> None:
    """Refuse a formula that could not be calculated, before any run."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        if ast.unparse(node) not in names:
            raise BadInput(f'In "{text}": {unknown("name", ast.unparse(node), names)}')
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords and node.args:
        if node.func.id not in _FUNCTIONS:
            raise BadInput(f'In "{text}": {unknown("function", node.func.id, _FUNCTIONS)}')
        for argument in node.args:
            _check(argument, text, names)
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in _OPERATIONS:
        for side in (node.left, node.right) if isinstance(node, ast.BinOp) else (node.operand,):
            _check(side, text, names)
    elif not (isinstance(node, ast.Constant) and is_number(node.value)):
        raise BadInput(
            f'In "{text}": {ast.unparse(node)} is not arithmetic; use numbers, names, + - * / // %, '
            "min, max and ceil."
        )


def _value(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_number(node.left, facts), _number(node.right, facts))
    if isinstance(node, ast.UnaryOp):
        return _OPERATIONS[type(node.op)](_number(node.operand, facts))
    if isinstance(node, ast.Call):
        function = _FUNCTIONS[ast.unparse(node.func)]
        numbers = [_number(argument, facts) for argument in node.args]
        return function(numbers[0]) if len(numbers) == 1 and function is math.ceil else function(numbers)
    return facts[ast.unparse(node)]


def _number(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    """A side of a calculation; text times a number would repeat the text."""
    value = _value(node, facts)
    if not is_number(value):
        raise TypeError(f"{ast.unparse(node)} is {value!r}")
    return value


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
    raise BadInput(f"{price!r} is not a price; give dollars per hour, a formula, a machine or a function.")


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
                f'The count "{self.count.text}" is {count:g} at {configuration}, which is not a number of '
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
                "correct it, every configuration needs a price."
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
