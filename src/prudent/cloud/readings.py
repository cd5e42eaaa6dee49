"""What a run did to its machines, in a few numbers: processor, memory, paging, disk and network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from statistics import fmean

from prudent.core.errors import BadInput
from prudent.core.parameters import is_number


@dataclass(frozen=True)
class Readings:
    """Means over a run, and the most memory of it; None where a thing could not be read.

    cpu_share: of all cores, how much was busy. memory_peak_mb: the most memory in use at once;
    memory_share: that, of the machine's. paging_mb_s: pages that were wanted and had to be fetched from
    disk, for they had been moved out of memory or never been in it. Of several machines, memory is that
    of the fullest one, all others are means. `others` is what a table of runs calls by names of its own.
    """

    cpu_share: float | None = None
    memory_peak_mb: float | None = None
    memory_share: float | None = None
    paging_mb_s: float | None = None
    disk_read_mb_s: float | None = None
    disk_write_mb_s: float | None = None
    network_mb_s: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            if not is_number(value) or not math.isfinite(value):
                raise BadInput(f"The reading {name} is {value!r}; give a finite number, or leave it out.")

    def to_dict(self) -> dict[str, float]:
        """What was read, by name; `of` gives the same readings back."""
        own = {name: getattr(self, name) for name in NAMES}
        return {**{name: value for name, value in own.items() if value is not None}, **self.others}

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Readings | None:
        """The readings of these names; None where there are none.

        >>> Readings.of({"cpu_share": 0.5, "gpu_share": 0.9}).to_dict(), Readings.of({})
        ({'cpu_share': 0.5, 'gpu_share': 0.9}, None)
        """
        own = {name: value for name, value in values.items() if name in NAMES}
        others = {name: value for name, value in values.items() if name not in NAMES}
        return cls(**own, others=others) if values else None

    @classmethod
    def mean(cls, several: Iterable[Readings | None]) -> Readings | None:
        """Those of several runs as one: of each reading the mean over those that have it."""
        return cls._joined(several, peaks=())

    @classmethod
    def of_machines(cls, several: Iterable[Readings | None]) -> Readings | None:
        """Those of several machines of one run as one."""
        return cls._joined(several, peaks=("memory_peak_mb", "memory_share"))

    @classmethod
    def _joined(cls, several: Iterable[Readings | None], peaks: tuple[str, ...]) -> Readings | None:
        told = [one.to_dict() for one in several if one is not None]
        names = dict.fromkeys(name for one in told for name in one)
        by_name = {name: [one[name] for one in told if name in one] for name in names}
        return cls.of({n: max(found) if n in peaks else fmean(found) for n, found in by_name.items()})


NAMES = tuple(one.name for one in fields(Readings) if one.name != "others")
"""What Prudent reads itself."""
