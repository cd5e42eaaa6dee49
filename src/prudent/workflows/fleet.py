"""A fleet: the machines that a workflow runs on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from prudent.core.errors import BadInput, unknown
from prudent.core.units import format_size

if TYPE_CHECKING:
    from prudent.cloud.catalog import Catalog
    from prudent.workflows.activation import Activation

REFERENCE_MIPS = 1000.0
"""The speed at which an activation's `runtime_s` was taken."""

Slots = Literal["vm", "vcpu"]


@dataclass(frozen=True)
class Vm:
    """One rented machine: `slots` activations run on it at once, each at `mips`.

    `vcpus` and `memory_gb` are those of the whole machine, zero where nobody knows them.
    """

    name: str
    machine: str
    mips: float = REFERENCE_MIPS
    slots: int = 1
    usd_per_h: float = 0.0
    minimum_s: float = 0.0
    spot: bool = False
    vcpus: int = 0
    memory_gb: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mips > 0 and math.isfinite(self.mips)):
            raise BadInput(f'VM "{self.name}" has a speed of {self.mips:g} MIPS; give one above zero.')
        if self.slots < 1:
            raise BadInput(f'VM "{self.name}" has {self.slots} slots; give at least one.')

    @property
    def speed(self) -> float:
        """Speed of one slot relative to the reference."""
        return self.mips / REFERENCE_MIPS

    def lacks(self, activation: Activation) -> str | None:
        """What keeps an activation from ever running here, for a sentence; None where it fits.

        >>> from prudent.workflows.activation import Activation
        >>> Vm("small-1", "small", memory_gb=4).lacks(Activation("a", memory_bytes=6e9))
        '6 GB of memory, and "small-1" has 4 GB'
        """
        if self.vcpus and activation.cores > self.vcpus:
            return f'{activation.cores:g} cores, and "{self.name}" has {self.vcpus}'
        needed_mb = activation.needed_memory_bytes / 1e6
        if self.memory_gb and needed_mb > self.memory_gb * 1e3:
            has = format_size(self.memory_gb * 1e3)
            return f'{format_size(needed_mb)} of memory, and "{self.name}" has {has}'
        return None


@dataclass(frozen=True)
class Fleet:
    """A list of VMs, in the order in which a scheduler without preference takes them.

    >>> fleet = Fleet.parse("2*m3.medium,m3.2xlarge", slots="vm")
    >>> [(vm.name, vm.mips, vm.slots) for vm in fleet.vms]
    [('m3.medium-1', 1000.0, 1), ('m3.medium-2', 1000.0, 1), ('m3.2xlarge-1', 4156.0, 1)]
    """

    vms: tuple[Vm, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "vms", tuple(self.vms))
        if not self.vms:
            raise BadInput("The fleet is empty; give at least one machine, like 8*m3.medium.")
        if len({vm.name for vm in self.vms}) < len(self.vms):
            raise BadInput("Two VMs of the fleet have the same name; give each its own.")

    @classmethod
    def parse(
        cls,
        text: str,
        slots: Slots = "vm",
        *,
        mips: Mapping[str, float] | None = None,
        catalog: Catalog | None = None,
    ) -> Fleet:
        """A fleet from words like `8*m3.medium,3*m3.2xlarge`; `spot:` before a type makes it a spot VM.

        `slots="vm"`: one activation at a time, at the speed of the whole machine. `slots="vcpu"`: one per
        vCPU, each at that part of the machine's speed. `mips` overrides the catalog's speed for whole
        machines.
        """
        from prudent.cloud.catalog import Catalog, parse_fleet

        if slots not in ("vm", "vcpu"):
            raise unknown("kind of slots", slots, ("vm", "vcpu"))
        catalog = catalog or Catalog.load()
        numbers: dict[str, int] = {}
        vms: list[Vm] = []
        for count, word in parse_fleet(text):
            spot, name = word.startswith("spot:"), word.removeprefix("spot:")
            machine = catalog[name]
            places = machine.vcpus if slots == "vcpu" else 1
            speed = (mips or {}).get(name, machine.mips) / places
            for _ in range(count):
                numbers[name] = numbers.get(name, 0) + 1
                label = f"{name}-{numbers[name]}"
                price = machine.price
                size = machine.vcpus, machine.memory_gb
                vms.append(Vm(label, name, speed, places, price.usd_per_h, price.minimum_s, spot, *size))
        return cls(tuple(vms))

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of every VM by name."""
        return {vm.name: position for position, vm in enumerate(self.vms)}

    @cached_property
    def lanes(self) -> tuple[tuple[int, int], ...]:
        """Every slot of the fleet as (position of its VM, number of the slot on it)."""
        return tuple((at, slot) for at, vm in enumerate(self.vms) for slot in range(vm.slots))

    @cached_property
    def lane_index(self) -> dict[tuple[str, int], int]:
        """Position of every slot in `lanes`, by the name of its VM and its number there."""
        return {(self.vms[vm].name, slot): at for at, (vm, slot) in enumerate(self.lanes)}

    def __len__(self) -> int:
        return len(self.vms)

    def __str__(self) -> str:
        words = (("spot:" if vm.spot else "") + vm.machine for vm in self.vms)
        return ",".join(f"{len(list(same))}*{word}" for word, same in groupby(words))
