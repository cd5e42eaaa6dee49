"""What a configuration rents, as numbers: price, count, vCPUs, memory and speed, where they can be known.

Models of run time see through the names of machine types. What a type has comes from the parameter itself,
from the bundled catalog where all its values are known there, and otherwise from the price alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.cloud.catalog import Catalog
from prudent.core.parameters import Parameter
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.trial import Configuration

Array = NDArray[np.float64]

PRICE, COUNT, VCPUS, MEMORY, SPEED, UNIT_PRICE = "price", "count", "vcpus", "memory", "speed", "unit price"
GROUPED, PROBES = 2048, 8
"""Spaces up to the first size are compared configuration by configuration, larger ones at so many places."""
_LEAST = 1e-9


class MachineFeatures:
    """The logarithms of what configurations rent, a column for each quantity that differs in a space.

    Sizes are those of one machine; with the count and the price that is all there is to know of a cluster.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._seed = problem, seed

    @cached_property
    def priced(self) -> tuple[str, ...]:
        """The parameters on which the price depends: they choose machines, the others say what runs there."""
        probes = self._probes
        if self._problem.listed and len(self._problem.everything) <= GROUPED:
            return tuple(p.name for p in self._varied if _moves(p.name, probes))
        return tuple(p.name for p in self._varied if self._moves_alone(p, probes[:PROBES]))

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """The parameters on which the price does not depend, with more than one value."""
        return tuple(p.name for p in self._varied if p.name not in self.priced)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The quantities that differ within the space, in the order of the columns."""
        columns = self._columns(self.probes, self._probe_prices)
        kept: list[str] = []
        for name, column in columns.items():
            if np.ptp(column) > _LEAST and not any(_follows(column, columns[other]) for other in kept):
                kept.append(name)
        return tuple(kept)

    def of(self, candidates: Candidates) -> Array:
        """The columns `names`, for each candidate (m, width)."""
        return self._rows(candidates.configurations, candidates.usd_per_h)

    @cached_property
    def of_space(self) -> Array:
        """The same for configurations that stand for the space."""
        return self._rows(self.probes, self._probe_prices)

    def _rows(self, configurations: Sequence[Configuration], usd_per_h: Array) -> Array:
        if not configurations or not self.names:
            return np.empty((len(configurations), len(self.names)))
        columns = self._columns(configurations, usd_per_h)
        return np.stack([columns[name] for name in self.names], axis=1)

    @cached_property
    def probes(self) -> list[Configuration]:
        """Configurations that stand for the space."""
        return [configuration for configuration, _ in self._probes]

    @cached_property
    def usual_usd_per_h(self) -> float:
        """The price in the middle of the space, by its logarithm."""
        return float(np.exp(np.log(np.maximum(self._probe_prices, _LEAST)).mean()))

    @cached_property
    def _probe_prices(self) -> Array:
        return np.array([usd_per_h for _, usd_per_h in self._probes])

    @property
    def _varied(self) -> list[Parameter]:
        return [p for p in self._problem.space.parameters if p.size != 1]

    @cached_property
    def _probes(self) -> list[tuple[Configuration, float]]:
        """Configurations with their prices: all of a small space, a draw from a larger one."""
        problem = self._problem
        if problem.listed and len(problem.everything) <= GROUPED:
            everything = problem.everything
            prices = (float(usd) for usd in everything.usd_per_h)
            return list(zip(everything.configurations, prices, strict=True))
        drawn = problem.space.sample(256, np.random.default_rng(0), "random")
        return [(configuration, problem.price(configuration).usd_per_h) for configuration in drawn]

    def _moves_alone(self, parameter: Parameter, probes: Iterable[tuple[Configuration, float]]) -> bool:
        for configuration, usd_per_h in probes:
            for place in (0.0, 0.3, 0.6, 0.999):
                other = {**configuration, parameter.name: parameter.from_unit(place)}
                if other in self._problem.space and _differ(self._problem.price(other).usd_per_h, usd_per_h):
                    return True
        return False

    def _columns(self, configurations: Sequence[Configuration], usd_per_h: Array) -> dict[str, Array]:
        log_price = np.log(np.maximum(usd_per_h, _LEAST))
        columns: dict[str, Array] = {PRICE: log_price}
        facts = [self._facts(configuration) for configuration in configurations]
        for name in (COUNT, VCPUS, MEMORY, SPEED):
            if all(name in known for known in facts):
                columns[name] = np.log(np.maximum([known[name] for known in facts], 1e-3))
        if COUNT in columns and VCPUS not in columns:
            columns[UNIT_PRICE] = log_price - columns[COUNT]
        return columns

    def _facts(self, configuration: Configuration) -> dict[str, float]:
        """What is known of the cluster: its count, and the sizes of one machine."""
        known: dict[str, float] = {}
        for parameter in self._problem.space.parameters:
            value = configuration[parameter.name]
            if hasattr(parameter, "cluster"):
                count, machine = parameter.cluster(value)
                known |= {COUNT: count, VCPUS: machine.vcpus, MEMORY: machine.memory_gb, SPEED: machine.speed}
            elif parameter.name in self._types:
                machine = Catalog.bundled()[str(value)]
                known |= {VCPUS: machine.vcpus, MEMORY: machine.memory_gb, SPEED: machine.speed}
            elif parameter.name == self._count:
                known[COUNT] = float(str(value))
        return known

    @cached_property
    def _types(self) -> frozenset[str]:
        """The parameters whose values are all machine types of the catalog."""
        catalog = Catalog.bundled()
        finite = (p for p in self._problem.space.parameters if p.finite and p.name not in self.beside)
        return frozenset(p.name for p in finite if all(isinstance(v, str) and v in catalog for v in p.values))

    @cached_property
    def _count(self) -> str | None:
        """The parameter that says how many machines there are: the first number that the price follows."""
        for name in self.priced:
            values = [configuration[name] for configuration, _ in self._probes]
            if all(isinstance(v, (int, float)) and v >= 1 and float(v).is_integer() for v in values):
                return name
        return None


def _moves(name: str, probes: Iterable[tuple[Configuration, float]]) -> bool:
    """Whether two configurations that differ in this parameter alone have different prices."""
    seen: dict[tuple[object, ...], float] = {}
    for configuration, usd_per_h in probes:
        rest = tuple(str(value) for other, value in configuration.items() if other != name)
        if _differ(seen.setdefault(rest, usd_per_h), usd_per_h):
            return True
    return False


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=1e-6, abs_tol=_LEAST)


def _follows(column: Array, other: Array) -> bool:
    """Whether a column is another one, up to scale and offset."""
    if np.ptp(other) <= _LEAST:
        return False
    return abs(float(np.corrcoef(column, other)[0, 1])) > 1 - 1e-9
