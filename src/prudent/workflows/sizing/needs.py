"""What each program needs for its next run: memory, cores, time and room for its output."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.workflows.sizing.predictor import Prediction, SizePredictor
from prudent.workflows.sizing.runs import RunSample, read_samples

_INPUTS_ASKED = 50
_SHORTEST_LIMIT_S = 60.0


@dataclass(frozen=True)
class ProgramNeeds:
    """What to give a program, so that it suffices for inputs as large as those of its latest run.

    A prediction is None where nothing was measured. `cores` is zero where neither the busy cores are
    known nor any were asked for. `asked_*` is the most that was asked for so far.
    """

    program: str
    runs: int
    cores: int
    memory: Prediction | None
    runtime: Prediction | None
    output: Prediction | None
    asked_cores: float
    asked_memory_bytes: float

    @property
    def time_limit_s(self) -> float:
        """Twice the upper end of the run time: a limit costs nothing, a kill costs the whole run."""
        return max(2.0 * self.runtime.high, _SHORTEST_LIMIT_S) if self.runtime else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, sizes in MB."""
        return {
            "program": self.program,
            "runs": self.runs,
            "cores": self.cores,
            "memory_mb": _plain(self.memory, 1e6),
            "runtime_s": _plain(self.runtime, 1.0),
            "output_mb": _plain(self.output, 1e6),
            "time_limit_s": self.time_limit_s,
            "asked_cores": self.asked_cores,
            "asked_memory_mb": self.asked_memory_bytes / 1e6,
        }


def needs_of_runs(paths: Sequence[Path]) -> list[ProgramNeeds]:
    """The needs of every program that ran in these traces or folders, the earliest first."""
    return program_needs([read_samples(path) for path in paths])


def program_needs(runs: Sequence[Iterable[RunSample]]) -> list[ProgramNeeds]:
    """The needs of every program in these runs of workflows, the earliest first.

    >>> grown = [RunSample("sort", 1e6 * n, 2e6 * n, 3.0, 1e6 * n, 1.9, 4, 0) for n in range(1, 40)]
    >>> [needs] = program_needs([grown])
    >>> needs.cores, needs.memory.given >= needs.memory.expected > 70e6, needs.time_limit_s
    (2, True, 60.0)
    """
    memory, runtime, output = SizePredictor(), SizePredictor(), SizePredictor()
    known: defaultdict[str, list[RunSample]] = defaultdict(list)
    latest: dict[str, list[float]] = {}
    for run in runs:
        inputs: defaultdict[str, list[float]] = defaultdict(list)
        for sample in run:
            memory.observe(sample.program, sample.input_bytes, sample.memory_bytes)
            runtime.observe(sample.program, sample.input_bytes, sample.runtime_s)
            output.observe(sample.program, sample.input_bytes, sample.output_bytes)
            known[sample.program].append(sample)
            inputs[sample.program].append(sample.input_bytes)
        latest |= inputs
    if not known:
        raise BadInput("The runs have no program that was measured; give the traces of runs that succeeded.")
    return [
        _needs(
            program,
            samples,
            *(_largest(each, program, latest[program]) for each in (memory, runtime, output)),
        )
        for program, samples in known.items()
    ]


def _needs(
    program: str,
    samples: Sequence[RunSample],
    memory: Prediction | None,
    runtime: Prediction | None,
    output: Prediction | None,
) -> ProgramNeeds:
    asked = max(sample.asked_cores for sample in samples)
    asked_bytes = max(sample.asked_memory_bytes for sample in samples)
    cores = _cores(samples, asked)
    return ProgramNeeds(program, len(samples), cores, memory, runtime, output, asked, asked_bytes)


def _cores(samples: Sequence[RunSample], asked: float) -> int:
    """The cores that nine in ten runs kept busy; a tenth of one more is no reason for another."""
    busy = sorted(sample.busy_cores for sample in samples if sample.busy_cores)
    if not busy:
        return math.ceil(asked)
    wanted = max(math.ceil(busy[math.ceil(0.9 * len(busy)) - 1] - 0.1), 1)
    return min(wanted, math.ceil(asked)) if asked else wanted


def _largest(predictor: SizePredictor, program: str, inputs: Sequence[float]) -> Prediction | None:
    """The prediction that gives the most, over the input sizes of the latest run."""
    sizes = sorted(set(inputs))
    sizes = sizes[-1:] + sizes[:: max(len(sizes) // _INPUTS_ASKED, 1)]
    told = [each for size in sizes if (each := predictor.predict(program, size)) is not None]
    return max(told, key=lambda each: each.given, default=None)


def _plain(told: Prediction | None, unit: float) -> dict[str, float] | None:
    if told is None:
        return None
    return {name: value / unit for name, value in asdict(told).items() if name != "runs"}
