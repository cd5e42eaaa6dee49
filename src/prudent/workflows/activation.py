"""An activation: one step of a workflow, a program that runs once, with the files it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from prudent.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class File:
    """A file as one activation declares it: traces may give two readers different sizes."""

    name: str
    size_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not self.size_bytes >= 0:
            raise BadInput(
                f'File "{self.name}" has size {self.size_bytes:g} bytes; give a size of zero or more.'
            )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a program was measured to use in one run; zero where nothing was measured.

    `cores` is the mean number of cores that were busy, `memory_bytes` the peak of resident memory.
    """

    cores: float = 0.0
    memory_bytes: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0

    def __post_init__(self) -> None:
        for what in ("cores", "memory_bytes", "read_bytes", "written_bytes"):
            value = getattr(self, what)
            if not (value >= 0 and math.isfinite(value)):
                raise BadInput(f"A run used {value:g} {what}; give a finite number of zero or more.")


@dataclass(frozen=True, slots=True)
class Activation:
    """A program to run once.

    `runtime_s` is the run time at the reference speed (1000 MIPS); on another machine it scales with speed.
    `runtimes_s` holds run times known for a machine by name (measured, or given); these win over scaling.
    `members` names the activations that were merged into this one by clustering. `cores` and `memory_bytes`
    are what it asks for (zero: nothing is said), `usage` what it was measured to use.
    """

    id: str
    program: str = ""
    runtime_s: float = 0.0
    inputs: tuple[File, ...] = ()
    outputs: tuple[File, ...] = ()
    command: tuple[str, ...] = ()
    runtimes_s: Mapping[str, float] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    cores: float = 0.0
    memory_bytes: float = 0.0
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if not self.id:
            raise BadInput("An activation has no id; give every activation an id of its own.")
        for run_s in (self.runtime_s, *self.runtimes_s.values()):
            if not (run_s >= 0 and math.isfinite(run_s)):
                raise BadInput(
                    f'Activation "{self.id}" has run time {run_s:g} s; give a finite number of zero or more.'
                )

        for what in ("cores", "memory_bytes"):
            value = getattr(self, what)
            if not (value >= 0 and math.isfinite(value)):
                raise BadInput(
                    f'Activation "{self.id}" asks for {value:g} {what}; give a finite number of zero or more.'
                )

    @property
    def needed_memory_bytes(self) -> float:
        """The memory without which it cannot run: its measured peak, else what it asks for."""
        return self.usage.memory_bytes or self.memory_bytes

    def staged(self) -> dict[str, float]:
        """The inputs to fetch before it runs: distinct files that it does not write itself, and their bytes.

        >>> files = File("x", 5), File("x", 5), File("y", 2)
        >>> Activation("a", inputs=files, outputs=(File("y", 2),)).staged()
        {'x': 5}
        """
        written = {file.name for file in self.outputs}
        return {file.name: file.size_bytes for file in self.inputs if file.name not in written}
