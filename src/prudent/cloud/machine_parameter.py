"""Which machines, and how many: the parameter of a space that knows its price."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from prudent.cloud.catalog import Catalog, Machine, cluster_text, parse_cluster
from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price
from prudent.core.parameters import Features, need_name

_LIMIT = 100_000  # clusters that a parameter may list; more is a typing error
_KEYS = ("types", "count", "catalog")
_SPAN = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*")

# What a model sees of a cluster; logarithms, because machines come in doublings.
_FEATURES: dict[str, Callable[[Machine, int], float]] = {
    "vcpus": lambda machine, count: math.log(machine.vcpus),
    "memory_gb": lambda machine, count: math.log(max(machine.memory_gb, 1 / 16)),
    "price": lambda machine, count: math.log(max(machine.price.usd_per_h, 1e-6)),
    "speed": lambda machine, count: math.log(machine.speed),
    "gpus": lambda machine, count: math.log1p(machine.gpus),
    "count": lambda machine, count: math.log(count),
    "total_vcpus": lambda machine, count: math.log(count * machine.vcpus),
}


@dataclass(frozen=True)
class MachineParameter:
    """A machine type times a count; a value is the text `4*m5.large`.

    A model does not see the names but what distinguishes the machines (vCPUs, memory, price, speed,
    GPUs, count, total vCPUs), so that it can judge a type nobody has tried. Features that are the same
    for all values, or that repeat another one, are left out.

    >>> cluster = MachineParameter("cluster", ["m5.large", "c5.xlarge"], [1, 2, 4])
    >>> cluster.values[:3], cluster.size
    (('1*m5.large', '2*m5.large', '4*m5.large'), 6)
    >>> cluster.price("4*m5.large").usd_per_h
    0.384
    >>> cluster.feature_names
    ('cluster.vcpus', 'cluster.count', 'cluster.total_vcpus')
    """

    name: str
    types: Sequence[str]
    counts: Sequence[int] = (1,)
    catalog: Catalog = field(default_factory=Catalog.load, repr=False, compare=False)

    def __post_init__(self) -> None:
        need_name(self.name)
        types = [self.types] if isinstance(self.types, str) else list(self.types)
        if not types:
            raise BadInput(f'"{self.name}" names no machine type: list at least one, like m5.large or c5.*.')
        found = dict.fromkeys(machine.name for text in types for machine in self.catalog.matching(text))
        counts = _counts(self.name, self.counts)
        if len(found) * len(counts) > _LIMIT:
            raise BadInput(
                f'"{self.name}" has {len(found)} machine types times {len(counts)} counts: '
                f"keep it below {_LIMIT:,} by listing fewer counts."
            )
        object.__setattr__(self, "types", tuple(found))
        object.__setattr__(self, "counts", counts)

    @classmethod
    def parse(cls, name: str, spec: Any, catalog: Catalog | None = None) -> MachineParameter:
        """What stands under `machine:` in a job file.

        `types` lists names or wildcards, `count` is a number, a list or a span; `catalog` may name a
        price list of one's own.

        >>> MachineParameter.parse("vm", {"types": ["m3.*"], "count": "1..8"}).size
        32
        """
        if isinstance(spec, (str, list, tuple)):
            spec = {"types": spec}
        if not isinstance(spec, Mapping):
            raise BadInput(
                f'"{name}" is {spec!r}: write {{machine: {{types: [m5.large], count: [1, 2, 4]}}}}.'
            )
        for key in spec:
            if key not in _KEYS:
                raise unknown(f'key of the machine "{name}"', key, _KEYS)
        types = spec.get("types")
        if not isinstance(types, (str, list, tuple)) or not all(isinstance(text, str) for text in types):
            raise BadInput(f'"{name}" does not name its machine types: write types: [m5.large, c5.*].')
        if spec.get("catalog") is not None:
            catalog = Catalog.load(str(spec["catalog"]))
        return cls(name, types, spec.get("count", (1,)), catalog or Catalog.load())

    @property
    def finite(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.types) * len(self.counts)

    @cached_property
    def values(self) -> tuple[str, ...]:
        return tuple(cluster_text(count, name) for name in self.types for count in self.counts)

    def cluster(self, value: Any) -> tuple[int, Machine]:
        """The count and the machine that a value means."""
        if not isinstance(value, str):
            raise BadInput(
                f'The value {value!r} of "{self.name}" is not a cluster: write it like {self.values[0]}.'
            )
        count, name = parse_cluster(value)
        if name not in self.types:
            raise unknown(f'machine type of "{self.name}"', name, self.types)
        if count not in self.counts:
            allowed = ", ".join(str(number) for number in self.counts[:12])
            raise BadInput(f'"{self.name}" cannot be {count} machines: choose one of {allowed}.')
        return count, self.catalog[name]

    def check(self, value: Any) -> str:
        count, machine = self.cluster(value)
        return cluster_text(count, machine.name)

    def price(self, value: Any) -> Price:
        """The price of the whole cluster, with the billing minimum of its machines."""
        count, machine = self.cluster(value)
        return machine.price.times(count)

    @property
    def fact_names(self) -> tuple[str, ...]:
        """What a rule may say about a value, like `cluster.vcpus <= 64`."""
        return ("type", "family", "count", "vcpus", "memory_gb", "gpus", "price_usd_per_h")

    def facts(self, value: Any) -> dict[str, Any]:
        """The facts of a value; sizes and price are those of the whole cluster."""
        count, machine = self.cluster(value)
        return {
            "type": machine.name,
            "family": machine.family,
            "count": count,
            "vcpus": count * machine.vcpus,
            "memory_gb": count * machine.memory_gb,
            "gpus": count * machine.gpus,
            "price_usd_per_h": count * machine.price.usd_per_h,
        }

    @property
    def width(self) -> int:
        return len(self._columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{feature}" for feature in self._columns)

    def encode(self, value: Any) -> Features:
        return self._rows[self.check(value)]

    def from_unit(self, u: float) -> str:
        return self.values[min(max(int(u * self.size), 0), self.size - 1)]

    def neighbours(self, value: Any, rng: np.random.Generator) -> str:
        """One step in the count, or to the type next to it in price."""
        count, machine = self.cluster(value)
        near = [cluster_text(number, machine.name) for number in _beside(self.counts, count)]
        near += [cluster_text(count, name) for name in _beside(self._by_price, machine.name)]
        return near[int(rng.integers(len(near)))] if near else self.check(value)

    @cached_property
    def _by_price(self) -> tuple[str, ...]:
        return tuple(sorted(self.types, key=lambda name: (self.catalog[name].price.usd_per_h, name)))

    @cached_property
    def _rows(self) -> dict[str, Features]:
        rows = zip(*self._columns.values(), strict=True) if self._columns else ((),) * self.size
        return dict(zip(self.values, rows, strict=True))

    @cached_property
    def _columns(self) -> dict[str, tuple[float, ...]]:
        """The telling features, scaled to [0, 1], each over all values in their order."""
        clusters = [(self.catalog[name], count) for name in self.types for count in self.counts]
        columns: dict[str, tuple[float, ...]] = {}
        for feature, measure in _FEATURES.items():
            column = _scaled([measure(machine, count) for machine, count in clusters])
            if any(column) and column not in columns.values():
                columns[feature] = column
        if len(set(zip(*columns.values(), strict=True))) < self.size and self.size > 1:
            # Two types look alike (a list without sizes): their place in it tells them apart.
            ranks = [float(rank) for rank in range(len(self.types)) for _ in self.counts]
            columns["type"] = _scaled(ranks)
        return columns

    def __str__(self) -> str:
        shown = ", ".join(self.types[:8]) + (f", … ({len(self.types)} types)" if len(self.types) > 8 else "")
        counts = ", ".join(str(count) for count in self.counts[:8]) + (", …" if len(self.counts) > 8 else "")
        return f"{self.name}: {counts} of {shown}"


def _scaled(numbers: list[float]) -> tuple[float, ...]:
    low, high = min(numbers), max(numbers)
    if high - low < 1e-12:
        return (0.0,) * len(numbers)
    # Rounded, so that features which say the same are the same.
    return tuple(round((number - low) / (high - low), 9) for number in numbers)


def _beside(items: Sequence[Any], item: Any) -> list[Any]:
    rank = items.index(item)
    return [items[near] for near in (rank - 1, rank + 1) if 0 <= near < len(items)]


def _counts(name: str, counts: Any) -> tuple[int, ...]:
    """The numbers of machines: `4`, `[1, 2, 4]` or `1..8`, sorted."""
    span = _SPAN.fullmatch(counts) if isinstance(counts, str) else None
    if span:
        low, high = int(span[1]), int(span[2])
        counts = range(low, min(high, low + _LIMIT) + 1)
    elif isinstance(counts, Integral):
        counts = (counts,)
    if not isinstance(counts, Sequence) or isinstance(counts, str) or not counts:
        raise BadInput(f'The count of "{name}" is {counts!r}: write a number, a list like [1, 2, 4] or 1..8.')
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < 1:
            raise BadInput(
                f'The count {count!r} of "{name}" is not a number of machines: use whole numbers from 1.'
            )
    if len(set(counts)) < len(counts):
        raise BadInput(f'The count of "{name}" lists a number twice: remove one.')
    return tuple(sorted(int(count) for count in counts))
