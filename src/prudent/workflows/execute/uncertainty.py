"""How far run times are from their estimates, in parts, and how executions tell it.

For an activation of program p on machine v, in one execution,

    log(measured / estimated) = bias + run + program p + machine v + activation

where each part but the bias is normal with mean 0: `run` is one draw for the whole execution, `program` one
for all activations of a program, and so on. What is common to many activations does not average out, so the
parts matter more than their sum.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prudent.workflows.execute.estimates import LEAST_S, Facts, learned, samples
from prudent.workflows.execute.record import Run
from prudent.workflows.fleet import Fleet
from prudent.workflows.graph import Floats
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


@dataclass(frozen=True)
class Residual:
    """One activation: its program, log(measured / estimated), and its weight (the estimated seconds)."""

    program: str
    error: float
    weight: float


@dataclass(frozen=True)
class Uncertainty:
    """Deviations of the parts, in logarithms."""

    bias: float = 0.0
    run: float = 0.0
    program: float = 0.0
    machine: float = 0.0
    activation: float = 0.0

    def factors(self, rng: np.random.Generator, programs: Sequence[str], vms: int) -> tuple[Floats, Floats]:
        """One draw: what every activation's run time, and every machine's speed, is multiplied by."""
        own = {name: rng.normal(0.0, self.program) for name in dict.fromkeys(programs)}
        common = self.bias + rng.normal(0.0, self.run)
        errors = common + np.array([own[name] for name in programs])
        errors += rng.normal(0.0, self.activation, len(programs))
        return np.exp(errors), np.exp(-rng.normal(0.0, self.machine, vms))


GUESSED = Uncertainty(bias=-0.2, run=0.15, program=0.6, machine=0.08, activation=0.5)
"""Where run times are what the user wrote down, or promised speeds make of them: as 20 recorded executions of
five applications (WfInstances) differ from estimates that are means over other inputs of the application."""
LEARNED = Uncertainty(bias=0.0, run=0.08, program=0.1, machine=0.05, activation=0.15)
"""Where run times come from executions of the same workflow: a little more than four recorded ones of one
input differ from each other."""
_PSEUDO = 3.0
"""What is usual counts like so many executions."""


def fitted(executions: Sequence[Sequence[Residual]], usual: Uncertainty) -> Uncertainty:
    """The deviations that executions tell, drawn towards the usual ones while there are few.

    By moments, each activation weighing as much as its time: a second more or less of a short one neither
    costs nor delays.
    """
    told = [_Parts.of(each) for each in executions if each]
    if not told:
        return usual
    n = len(told)
    centre = (sum(each.middle for each in told) + _PSEUDO * usual.bias) / (n + _PSEUDO)
    own = sum(each.own2 for each in told) / n
    program = sum(each.program2 for each in told) / n
    run = max(sum((each.middle - centre) ** 2 - each.program2 * each.share2 for each in told) / n, 0.0)

    def mixed(found2: float, usually: float) -> float:
        return math.sqrt((n * found2 + _PSEUDO * usually**2) / (n + _PSEUDO))

    return Uncertainty(
        bias=centre,
        run=mixed(run, usual.run),
        program=mixed(program, usual.program),
        machine=usual.machine,
        activation=mixed(own, usual.activation),
    )


@dataclass(frozen=True)
class _Parts:
    """The moments of one execution; `share2` is how much of the programs' variance its middle keeps.

    A program's mean varies with its own part and, the less the more activations it has, with theirs.
    """

    middle: float
    own2: float
    program2: float
    share2: float

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> _Parts:
        groups: dict[str, list[Residual]] = defaultdict(list)
        for residual in residuals:
            groups[residual.program].append(residual)
        programs = [_Program.of(some) for some in groups.values()]
        whole = sum(each.weight for each in programs)
        shares = np.array([each.weight / whole for each in programs])
        means = np.array([each.mean for each in programs])
        counts = np.array([each.count for each in programs])
        several = sum(each.weight for each in programs if each.count > 1.0)
        own2 = sum(each.weight * each.own2 for each in programs) / several if several else 0.0
        middle, share2 = float(shares @ means), float(shares @ shares)
        between = float(shares @ (means - middle) ** 2) - own2 * float(shares @ ((1.0 - shares) / counts))
        return cls(middle, own2, max(between, 0.0) / (1.0 - share2) if share2 < 0.99 else 0.0, share2)


@dataclass(frozen=True)
class _Program:
    """One program's activations in one execution: `count` is how many equal ones tell as much."""

    weight: float
    count: float
    mean: float
    own2: float

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> _Program:
        weight, squares = sum(r.weight for r in residuals), sum(r.weight**2 for r in residuals)
        count, mean = weight**2 / squares, _mean(residuals)
        around2 = sum(r.weight * (r.error - mean) ** 2 for r in residuals) / weight
        return cls(weight, count, mean, around2 * count / (count - 1.0) if count > 1.001 else 0.0)


def _mean(residuals: Sequence[Residual]) -> float:
    return sum(r.error * r.weight for r in residuals) / sum(r.weight for r in residuals)


def of_runs(workflow: Workflow, world: World, runs: Sequence[Run]) -> Uncertainty:
    """How far estimates learned from these runs are off: each run against what the others let expect."""
    told = []
    for run in runs:
        others = [(other.plan.fleet, other.facts) for other in runs if other is not run]
        if others:
            known = learned(workflow, run.plan.fleet, world, others)
            told.append(residuals(known, run.plan.fleet, world, run.facts))
    return fitted(told, LEARNED)


def residuals(workflow: Workflow, fleet: Fleet, world: World, facts: Facts) -> list[Residual]:
    """What an execution's journal tells about the estimates of a workflow."""
    found = []
    for sample in samples(workflow, world, fleet, facts):
        activation = workflow[sample.activation]
        given_s = activation.runtimes_s.get(sample.machine, activation.runtime_s / sample.speed)
        expected_s = max(given_s, LEAST_S)
        error = math.log(sample.took_s / expected_s)
        found.append(Residual(activation.program, error, expected_s))
    return found
