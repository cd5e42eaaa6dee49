"""Machines that can be rented: what they have, what they cost, how fast they roughly are; and how clusters of
them are written (`4*m5.large`).

The bundled list holds on-demand prices of AWS for Linux in us-east-1 (N. Virginia), without local
taxes, valid on the date that each row carries. Every family was checked against at least one
public list of that region's prices; inside a family AWS prices sizes in proportion (exceptions,
such as c4 and m3, are rounded to a tenth of a cent), and the tests hold that too. Prices change and
differ between regions: `prudent prices update` fetches those of a region and of today, and what you
really pay goes into a CSV of your own; both override or extend the list (see `Catalog.load`).

Where nobody has measured a machine, its speed follows from a rule with two parts, both simple on purpose:

- *speed* of one slot (a vCPU) relative to the third generation (m3, c3, r3): 15 % more with each
  generation. AWS states up to that much for M6i over M5, at the same price.
- *MIPS* of a whole machine: `1000 x speed x vcpus^0.685`. An m3.medium (1 vCPU) then has the 1000 and
  an m3.2xlarge (8 vCPU) the 4156 MIPS that a published study of workflow scheduling measured and
  simulated with; the exponent below 1 is theirs: eight vCPUs do four times the work of one.

A measured job replaces both; a price list of your own may give `speed` and `mips` per type.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from prudent.cloud import price_lists
from prudent.cloud.billing import MINIMUM_S
from prudent.cloud.price_lists import PriceRow, parse_price_table, read_price_table
from prudent.core.errors import BadInput, unknown
from prudent.core.money import Price

__all__ = ["Catalog", "Machine", "cluster_text", "parse_cluster", "parse_fleet"]


@dataclass(frozen=True)
class Machine:
    """One machine type: its size, its price, and how fast it roughly is.

    `speed` is that of one vCPU relative to the third generation, `mips` that of the whole machine;
    both are estimates (see `prudent.cloud.catalog`). `memory_gb` is 0 where a list does not say.
    """

    name: str
    vcpus: int
    memory_gb: float
    family: str
    gpus: int
    gpu: str
    price: Price
    region: str
    speed: float
    mips: float

    @property
    def usd_per_vcpu_h(self) -> float:
        """What one vCPU costs for an hour, to compare sizes by."""
        return self.price.usd_per_h / self.vcpus


class Catalog:
    """The machine types by name.

    >>> catalog = Catalog.load()
    >>> catalog["m5.large"].price.usd_per_h
    0.096
    >>> catalog.cheapest(vcpus=4, memory_gb=30).name
    'r6g.xlarge'
    >>> catalog["m5.lagre"]  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: Unknown machine type "m5.lagre". Did you mean "m5.large"? Choose one of: ...
    """

    def __init__(self, machines: Iterable[Machine]) -> None:
        self._machines = {machine.name: machine for machine in machines}

    @classmethod
    def load(cls, extra_csv: Path | str | None = None, region: str | None = None) -> Catalog:
        """The bundled catalog, the prices that were fetched last (for a region), the user's own CSV.

        The later override or extend the earlier: a row that has a known name changes the cells it fills and
        keeps the others. The earlier date is never kept: it says when another price was valid.
        """
        fetched = price_lists.latest_price_list(region)
        catalog = _bundled() if fetched is None else _fetched(fetched, fetched.stat().st_mtime_ns)
        return catalog if extra_csv is None else catalog._with(Path(extra_csv))

    @classmethod
    def bundled(cls) -> Catalog:
        """The list that comes with the package, alike on every computer."""
        return _bundled()

    def _with(self, path: Path) -> Catalog:
        machines = dict(self._machines)
        for row in read_price_table(path):
            machines[row.name] = _machine(row, machines.get(row.name), f"catalog {path.name}")
        return Catalog(machines.values())

    def __getitem__(self, name: str) -> Machine:
        try:
            return self._machines[name]
        except KeyError:
            raise unknown("machine type", name, sorted(self._machines)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._machines

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines())

    def __len__(self) -> int:
        return len(self._machines)

    def families(self) -> tuple[str, ...]:
        """The names of all families, sorted."""
        return tuple(sorted({machine.family for machine in self._machines.values()}))

    def machines(self, family: str | None = None) -> tuple[Machine, ...]:
        """All machines, or those of one family, from small to large."""
        if family is not None and family not in self.families():
            raise unknown("machine family", family, self.families())
        chosen = (machine for machine in self._machines.values() if family in (None, machine.family))
        return tuple(sorted(chosen, key=_by_size))

    def matching(self, pattern: str) -> tuple[Machine, ...]:
        """The machines that a name or a wildcard like `c5.*` means, from small to large.

        >>> [machine.name for machine in Catalog.load().matching("m3.*")]
        ['m3.medium', 'm3.large', 'm3.xlarge', 'm3.2xlarge']
        """
        if not any(sign in pattern for sign in "*?["):
            return (self[pattern],)
        found = fnmatch.filter(self._machines, pattern)
        if not found:
            patterns = [f"{family}.*" for family in self.families()]
            raise unknown("machine types", pattern, patterns)
        return tuple(sorted((self._machines[name] for name in found), key=_by_size))

    def cheapest(self, vcpus: int = 1, memory_gb: float = 0.0, gpus: int = 0) -> Machine:
        """The cheapest machine that has at least this much."""
        enough = [
            machine
            for machine in self._machines.values()
            if machine.vcpus >= vcpus and machine.memory_gb >= memory_gb and machine.gpus >= gpus
        ]
        if not enough:
            raise BadInput(
                f"No machine has {vcpus} vCPUs, {memory_gb:g} GB and {gpus} GPUs: "
                "ask for less, or add such a machine with a price list of your own."
            )
        return min(enough, key=lambda machine: (machine.price.usd_per_h, machine.name))


def _by_size(machine: Machine) -> tuple[str, int, float, float, str]:
    return machine.family, machine.vcpus, machine.memory_gb, machine.price.usd_per_h, machine.name


@cache
def _bundled() -> Catalog:
    source = "aws_on_demand.csv"
    text = resources.files("prudent.cloud").joinpath("data", source).read_text(encoding="utf-8")
    rows = parse_price_table(text.splitlines(), source)
    return Catalog(_machine(row, None, f"catalog aws {row.region}") for row in rows)


@lru_cache(maxsize=8)
def _fetched(path: Path, changed_ns: int) -> Catalog:
    del changed_ns  # a file that was written anew is read anew
    return _bundled()._with(path)


def _machine(row: PriceRow, known: Machine | None, source: str) -> Machine:
    """A row with its gaps filled by the machine it overrides, else by the estimate for an unknown one."""
    base = known or _unknown_machine(row.name, row.family)
    vcpus = row.vcpus or base.vcpus
    speed = row.speed or base.speed
    resized = (vcpus, speed) != (base.vcpus, base.speed)
    return Machine(
        name=row.name,
        vcpus=vcpus,
        memory_gb=base.memory_gb if row.memory_gb is None else row.memory_gb,
        family=row.family or base.family,
        gpus=base.gpus if row.gpus is None else row.gpus,
        gpu=row.gpu or base.gpu,
        price=Price(
            row.price_usd_per_h,
            row.date or "",
            source,
            base.price.minimum_s if row.minimum_s is None else row.minimum_s,
        ),
        region=row.region or base.region,
        speed=speed,
        mips=row.mips or (mips_of(vcpus, speed) if resized else base.mips),
    )


def _unknown_machine(name: str, family: str | None) -> Machine:
    family = family or name.split(".", maxsplit=1)[0]
    speed = speed_of(family)
    no_price = Price(0.0, "", "none", MINIMUM_S)
    return Machine(name, 1, 0.0, family, 0, "", no_price, "", speed, mips_of(1, speed))


_CLUSTER = re.compile(r"\s*(?:(?P<count>[^*\s]+)\s*\*\s*)?(?P<name>[^*\s,]+)\s*")


def parse_cluster(text: str) -> tuple[int, str]:
    """Count and type of a cluster of equal machines; a type alone is one machine.

    >>> parse_cluster("4*m5.large"), parse_cluster("m5.large")
    ((4, 'm5.large'), (1, 'm5.large'))
    """
    match = _CLUSTER.fullmatch(text)
    if match is None:
        raise BadInput(f'"{text}" is not a cluster: write count*type, like 4*m5.large.')
    count = match["count"] or "1"
    if not (count.isascii() and count.isdigit() and int(count) >= 1):
        raise BadInput(f'"{count}" in "{text}" is not a number of machines: write a whole number, 1 or more.')
    return int(count), match["name"]


def parse_fleet(text: str) -> list[tuple[int, str]]:
    """Counts and types of a fleet of several kinds, in the order written.

    >>> parse_fleet("8*m3.medium, 3*m3.2xlarge")
    [(8, 'm3.medium'), (3, 'm3.2xlarge')]
    """
    if not text.strip():
        raise BadInput("The fleet is empty: write it like 8*m3.medium,3*m3.2xlarge.")
    return [parse_cluster(part) for part in text.split(",")]


def cluster_text(count: int, name: str) -> str:
    """The text that `parse_cluster` reads.

    >>> cluster_text(4, "m5.large")
    '4*m5.large'
    """
    return f"{count}*{name}"


MIPS_PER_SLOT = 1000.0
"""One vCPU of the third generation: the study's m3.medium."""

_SCALING = math.log(4156.0 / MIPS_PER_SLOT, 8)
_GAIN_PER_GENERATION = 1.15
_REFERENCE_GENERATION = 3

# Names of general, compute and memory families carry the processor generation; these count otherwise.
_PROCESSOR_GENERATION = {
    "t2": 4, "t3": 5, "t3a": 5, "t4g": 6,
    "x1": 4, "x1e": 4, "z1d": 5,
    "i2": 3, "i3": 4, "i3en": 5, "d2": 4, "h1": 4,
    "g3": 4, "g4dn": 5, "g5": 5, "p2": 4, "p3": 4, "p3dn": 5, "p4d": 5,
}  # fmt: skip


def speed_of(family: str) -> float:
    """Speed of one vCPU relative to the third generation, 1.0 for a family nobody knows.

    >>> speed_of("m3"), round(speed_of("m5"), 4), speed_of("my-server")
    (1.0, 1.3225, 1.0)
    """
    generation = _PROCESSOR_GENERATION.get(family)
    if generation is None:
        named = re.fullmatch(r"[mcr](\d)[a-z]*", family)
        generation = int(named.group(1)) if named else _REFERENCE_GENERATION
    return float(_GAIN_PER_GENERATION ** max(0, generation - _REFERENCE_GENERATION))


def mips_of(vcpus: int, speed: float) -> float:
    """Million instructions a second of a whole machine, to the nearest whole number.

    >>> mips_of(1, 1.0), mips_of(8, 1.0)
    (1000.0, 4156.0)
    """
    return float(round(MIPS_PER_SLOT * speed * vcpus**_SCALING))
