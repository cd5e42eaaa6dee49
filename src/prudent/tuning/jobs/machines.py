"""Which machines a configuration asks for, where they are really rented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput, unknown
from prudent.core.space import Space
from prudent.tuning.jobs.formula import Formula
from prudent.tuning.trial import Configuration

_REMEDY = (
    "add a parameter like cluster: {machine: {types: [m5.large], count: [1, 2]}}, or "
    "price: {machine: m5.large, count: workers}."
)


@dataclass(frozen=True)
class MachineSelection:
    """The type and the count of machines, by a machine parameter or by what the price says.

    >>> space = Space.parse({"workers": [1, 2, 4]})
    >>> Machines.of({"machine": "m5.large", "count": "workers"}, space).wanted({"workers": 2})
    ('m5.large', 2)
    """

    types: tuple[str, ...]
    parameter: MachineParameter | None = None
    machine: str = ""
    count: Formula | None = None

    @classmethod
    def of(cls, price: Any, space: Space) -> MachineSelection:
        """What is said under `price`, or the one machine parameter of the space."""
        parameters = [one for one in space.parameters if isinstance(one, MachineParameter)]
        if isinstance(price, str):
            parameters = [one for one in parameters if one.name == price]
        elif isinstance(price, Mapping):
            return cls._said(price, space)
        elif price is not None:
            raise BadInput(
                "The price comes from where the machines are; remove it, and name machines instead."
            )
        if len(parameters) != 1:
            several = "It names several clusters; keep one" if parameters else "It names no machines"
            raise BadInput(f"{several}: {_REMEDY}")
        return cls(tuple(parameters[0].types), parameters[0])

    @classmethod
    def _said(cls, price: Mapping[str, Any], space: Space) -> MachineSelection:
        for key in price:
            if key not in ("machine", "count"):
                raise unknown("key of the price, where machines are rented,", key, ("machine", "count"))
        machine = price.get("machine")
        if not isinstance(machine, str):
            raise BadInput(f"The price names no machine: {_REMEDY}")
        count = Formula.parse(str(price.get("count", 1)), space)
        if machine not in space.names:
            return cls((machine,), None, machine, count)
        if not space[machine].finite:
            raise BadInput(f'"{machine}" lists no machine types; list them, like [m5.large, c5.xlarge].')
        types: Sequence[Any] = space[machine].values
        return cls(tuple(str(value) for value in types), None, machine, count)

    def wanted(self, configuration: Configuration) -> tuple[str, int]:
        """The type and the count for a canonical configuration."""
        if self.parameter is not None:
            count, machine = self.parameter.cluster(configuration[self.parameter.name])
            return machine.name, count
        assert self.count is not None
        number = self.count(configuration)
        if number < 1 or number != int(number):
            raise BadInput(
                f'The count "{self.count.text}" is {number:g} at {configuration}, which is no number of '
                "machines; make it a whole number from 1."
            )
        return str(configuration.get(self.machine, self.machine)), int(number)

    def fingerprint(self) -> str:
        how = (
            self.parameter.name
            if self.parameter
            else f"{self.count.text if self.count else 1} x {self.machine}"
        )
        return f"{how}: {', '.join(self.types)}"
