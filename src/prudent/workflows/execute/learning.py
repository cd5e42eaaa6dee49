"""What real runs teach: run times, how uncertain they are, and Q-tables.

Run times: for every measured activation, y = log(measured / estimated) is split into parts:

    y = machine + program + (program on machine) + activation + noise

Each part is normal with mean 0, so the less was measured of it, the closer it stays to 0 (a best linear
unbiased prediction, found by backfitting). An activation that never ran gets the part of its program; a
program that never ran on a machine gets those of the machine and the program. The deviations of activations
and noise come from the data where there are enough, from prior values where not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File
from prudent.workflows.execute.forecast import LEARNED, Uncertainty
from prudent.workflows.execute.run import WorkflowRun, measured_run_times
from prudent.workflows.fleet import Fleet
from prudent.workflows.schedulers.q_learning import QLearning, QTables, with_best_placement, with_real_episode
from prudent.workflows.simulation.compiled import Floats, Ints
from prudent.workflows.simulation.problem import (
    build_problem,
)
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

Facts = Iterable[Mapping[str, Any]]


MACHINE_DEVIATION, PROGRAM_DEVIATION, PAIR_DEVIATION, ACTIVATION_DEVIATION, NOISE_DEVIATION = (
    1.5,
    1.5,
    0.5,
    0.5,
    0.15,
)
"""Usual deviations of the parts, in logarithms: a guess may well be wrong by a factor of four, two runs of
the same activation differ by about a seventh."""


MIN_RUN_TIME_S = 1e-3


_ROUNDS = 60


_PRIOR_SAMPLES = 4.0
"""The prior value of a deviation counts like so many measurements."""


@dataclass(frozen=True)
class RunTimeSample:
    """One measurement: which activation, on which machine, how long the command took."""

    activation: str
    machine: str
    speed: float
    took_s: float


def learn_from_runs(
    workflow: Workflow, fleet: Fleet, world: World, folders: Sequence[str | Path]
) -> Workflow:
    """The workflow with run times as runs in these folders measured them, for the machines of the fleet."""
    runs = [WorkflowRun.read(folder) for folder in folders]
    for run in runs:
        if run.replay is not None:
            raise BadInput(f'The run in "{run.folder}" was a rehearsal and teaches nothing; name a real one.')
        if run.workflow.fingerprint != workflow.fingerprint:
            raise BadInput(
                f'The run in "{run.folder}" is of another workflow ("{run.workflow.name}"); name one of '
                f'"{workflow.name}".'
            )
    return learn_run_times(workflow, fleet, world, [(run.plan.fleet, run.facts) for run in runs])


def learn_run_times(
    workflow: Workflow, fleet: Fleet, world: World, runs: Sequence[tuple[Fleet, Facts]]
) -> Workflow:
    """The workflow with run times learned from runs; unchanged if nothing was measured."""
    taught = [(own, list(facts)) for own, facts in runs]
    workflow = _with_sizes(workflow, [fact for _, facts in taught for fact in facts])
    measured = [sample for own, facts in taught for sample in run_time_samples(workflow, world, own, facts)]
    if not measured:
        return workflow
    model = _RunTimeModel(workflow, measured)
    machines = {vm.machine: vm.speed for vm in fleet.vms}
    return workflow.with_runtimes(
        {
            activation.id: {
                machine: model.run_s(activation, machine, speed) for machine, speed in machines.items()
            }
            for activation in workflow.activations
        }
    )


def _with_sizes(workflow: Workflow, facts: Sequence[Mapping[str, Any]]) -> Workflow:
    """The workflow with the file sizes that were measured last."""
    sizes: dict[str, float] = {}
    for fact in facts:
        if fact.get("outcome") == "done":
            for side in ("inputs", "outputs"):
                sizes |= {name: float(known["size"]) for name, known in fact.get(side, {}).items()}
    if not sizes:
        return workflow

    def seen(files: tuple[File, ...]) -> tuple[File, ...]:
        return tuple(File(file.name, sizes.get(file.name, file.size_bytes)) for file in files)

    activations = tuple(
        replace(activation, inputs=seen(activation.inputs), outputs=seen(activation.outputs))
        for activation in workflow.activations
    )
    return replace(workflow, activations=activations)


def run_time_samples(workflow: Workflow, world: World, fleet: Fleet, facts: Facts) -> list[RunTimeSample]:
    """Measured run times, without the time that the world's model counts for reading inputs."""
    vms = {vm.name: vm for vm in fleet.vms}
    found = []
    for name, vm_name, took_s in measured_run_times(facts):
        vm, staged_s = vms[vm_name], 0.0
        if world.storage == "shared":
            staged_s = sum(workflow[name].staged().values()) / (world.bandwidth_mb_s * 1e6)
        found.append(RunTimeSample(name, vm.machine, vm.speed, max(took_s - staged_s, MIN_RUN_TIME_S)))
    return found


class _RunTimeModel:
    """The parts of log(measured / estimated), fitted to samples."""

    def __init__(self, workflow: Workflow, samples: Sequence[RunTimeSample]) -> None:
        programs = [workflow[sample.activation].program for sample in samples]
        self._keys: list[dict[Any, int]] = [{}, {}, {}, {}]
        words: list[list[Any]] = [
            [sample.machine for sample in samples],
            programs,
            [(program, sample.machine) for program, sample in zip(programs, samples, strict=True)],
            [sample.activation for sample in samples],
        ]
        members = [
            np.array([keys.setdefault(word, len(keys)) for word in each], dtype=np.int64)
            for keys, each in zip(self._keys, words, strict=True)
        ]
        estimated = [_unlearned_s(workflow[sample.activation], sample.speed) for sample in samples]
        taken = [sample.took_s for sample in samples]
        y = np.log(np.array(taken) / np.array(estimated))
        apart, noise = _deviations(y, members[2], members[3])
        self._parts = _backfit(
            y, members, (MACHINE_DEVIATION, PROGRAM_DEVIATION, PAIR_DEVIATION, apart), noise
        )

    def run_s(self, activation: Activation, machine: str, speed: float) -> float:
        """The expected run time of an activation on a machine."""
        words = machine, activation.program, (activation.program, machine), activation.id
        known = [
            part[keys[word]]
            for keys, part, word in zip(self._keys, self._parts, words, strict=True)
            if word in keys
        ]
        return _unlearned_s(activation, speed) * math.exp(sum(known))


def _unlearned_s(activation: Activation, speed: float) -> float:
    """The estimate by speed alone: what was learned before must not count twice."""
    return max(activation.runtime_s / speed, MIN_RUN_TIME_S)


def _deviations(y: Floats, pairs: Ints, activations: Ints) -> tuple[float, float]:
    """Deviations of activations (of one program on one machine) and of repetitions, by moments.

    Where every activation ran once, its own part and noise cannot be told apart: then noise is the usual one,
    and the rest of the spread is the activations'.
    """
    within, freedom = _scatter(y, np.unique(np.stack([pairs, activations]), axis=1, return_inverse=True)[1])
    noise2 = (within + _PRIOR_SAMPLES * NOISE_DEVIATION**2) / (freedom + _PRIOR_SAMPLES)
    spread, count = _scatter(y, pairs)
    both2 = (spread + _PRIOR_SAMPLES * (ACTIVATION_DEVIATION**2 + noise2)) / (count + _PRIOR_SAMPLES)
    return math.sqrt(max(both2 - noise2, 1e-4)), math.sqrt(noise2)


def _scatter(y: Floats, groups: Ints) -> tuple[float, float]:
    """Squares around the groups' means, and their degrees of freedom."""
    groups = groups.ravel()
    counts = np.bincount(groups)
    means = np.bincount(groups, y) / np.maximum(counts, 1)
    return float(((y - means[groups]) ** 2).sum()), float(len(y) - (counts > 0).sum())


def _backfit(y: Floats, members: Sequence[Ints], deviations: Sequence[float], noise: float) -> list[Floats]:
    """Fit each part in turn to the residual of the others, shrunken by n / (n + (noise / deviation)^2)."""
    parts = [np.zeros(int(each.max()) + 1) for each in members]
    left = y.copy()
    for _ in range(_ROUNDS):
        for part, each, deviation in zip(parts, members, deviations, strict=True):
            left += part[each]
            counts = np.bincount(each, minlength=len(part))
            part[:] = np.bincount(each, left, len(part)) / (counts + (noise / deviation) ** 2)
            left -= part[each]
    return parts


@dataclass(frozen=True)
class Residual:
    """One activation: its program, log(measured / estimated), and its weight (the estimated seconds)."""

    program: str
    error: float
    weight: float


_PRIOR_EXECUTIONS = 3.0
"""The prior counts like so many executions."""


def fit_uncertainty(executions: Sequence[Sequence[Residual]], usual: Uncertainty) -> Uncertainty:
    """Deviations estimated from executions, shrunken towards `usual` while there are few.

    They are estimated by moments. An activation weighs as much as its run time, because an error in a short
    one hardly changes what a run costs and takes.
    """
    told = [_ErrorMoments.of(each) for each in executions if each]
    if not told:
        return usual
    n = len(told)
    centre = (sum(each.middle for each in told) + _PRIOR_EXECUTIONS * usual.bias) / (n + _PRIOR_EXECUTIONS)
    own = sum(each.own2 for each in told) / n
    program = sum(each.program2 for each in told) / n
    run = max(sum((each.middle - centre) ** 2 - each.program2 * each.share2 for each in told) / n, 0.0)

    def mixed(found2: float, usually: float) -> float:
        return math.sqrt((n * found2 + _PRIOR_EXECUTIONS * usually**2) / (n + _PRIOR_EXECUTIONS))

    return Uncertainty(
        bias=centre,
        run=mixed(run, usual.run),
        program=mixed(program, usual.program),
        machine=usual.machine,
        activation=mixed(own, usual.activation),
    )


@dataclass(frozen=True)
class _ErrorMoments:
    """The moments of the errors in one execution, and their weighted mean, `middle`.

    The middle still holds the share `share2` of the variance between programs. The mean of a program varies
    with the program's own part, and with the parts of its activations: the less, the more of them there are.
    """

    middle: float
    own2: float
    program2: float
    share2: float

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> _ErrorMoments:
        groups: dict[str, list[Residual]] = defaultdict(list)
        for residual in residuals:
            groups[residual.program].append(residual)
        programs = [_ProgramMoments.of(some) for some in groups.values()]
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
class _ProgramMoments:
    """One program's activations in one execution: `count` of equal weight would tell as much."""

    weight: float
    count: float
    mean: float
    own2: float

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> _ProgramMoments:
        weight, squares = sum(r.weight for r in residuals), sum(r.weight**2 for r in residuals)
        count, mean = weight**2 / squares, _mean(residuals)
        around2 = sum(r.weight * (r.error - mean) ** 2 for r in residuals) / weight
        return cls(weight, count, mean, around2 * count / (count - 1.0) if count > 1.001 else 0.0)


def _mean(residuals: Sequence[Residual]) -> float:
    return sum(r.error * r.weight for r in residuals) / sum(r.weight for r in residuals)


def uncertainty_of_runs(workflow: Workflow, world: World, runs: Sequence[WorkflowRun]) -> Uncertainty:
    """How far learned estimates are off: each run against what is learned from the others."""
    told = []
    for run in runs:
        others = [(other.plan.fleet, other.facts) for other in runs if other is not run]
        if others:
            known = learn_run_times(workflow, run.plan.fleet, world, others)
            told.append(residuals(known, run.plan.fleet, world, run.facts))
    return fit_uncertainty(told, LEARNED)


def residuals(workflow: Workflow, fleet: Fleet, world: World, facts: Facts) -> list[Residual]:
    """Errors of a workflow's estimates by the journal of an execution."""
    found = []
    for sample in run_time_samples(workflow, world, fleet, facts):
        activation = workflow[sample.activation]
        given_s = activation.runtimes_s.get(sample.machine, activation.runtime_s / sample.speed)
        expected_s = max(given_s, MIN_RUN_TIME_S)
        error = math.log(sample.took_s / expected_s)
        found.append(Residual(activation.program, error, expected_s))
    return found


def learn_q_tables(
    learner: QLearning, workflow: Workflow, fleet: Fleet, world: World, folders: Sequence[str | Path]
) -> int:
    """Add real runs to the learner's tables on disk; answers how many were new to them.

    `workflow` has the estimates as they are now (see `learn_from_runs`): the best plan so far is evaluated
    anew with them. Runs on other VMs, and those that did not finish, tell nothing about the actions of these
    tables.
    """
    if learner.tables is None:
        return 0
    path = Path(learner.tables)
    problem = build_problem(workflow, fleet, world)
    tables = QTables.load(path, problem) if path.exists() else learner.first_tables(problem)
    runs = [WorkflowRun.read(folder) for folder in folders]
    fitting = [run for run in runs if run.succeeded and run.plan.fleet == fleet]
    fresh = [run for run in fitting if run.makespan_s not in tables.makespans_s]
    if not fresh:
        return 0
    tables = with_best_placement(tables, problem, [tables.placement] if tables.placement is not None else [])
    for run in fresh:
        tables = with_real_episode(tables, run.execution, problem, learner)
    tables.save(path)
    return len(fresh)
