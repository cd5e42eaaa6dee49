"""Run times learned from real runs: what a program takes on a machine, and how one activation differs.

For every measured activation, y = log(measured / estimated) is taken apart:

    y = machine + program + (program on machine) + activation + noise

Each part is normal with mean 0, so that each is pulled towards 0 the less, the more was measured (a best
linear unbiased prediction, found by backfitting). An activation never run before gets its program's part; a
program never run on a machine, the machine's and the program's. The deviations of activations and noise come
from the data where these tell them, from usual values where not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation, File
from prudent.workflows.execute.record import Run, measured_s
from prudent.workflows.fleet import Fleet
from prudent.workflows.graph import Floats, Ints
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

Facts = Iterable[Mapping[str, Any]]

MACHINE, PROGRAM, PAIR, ACTIVATION, NOISE = 1.5, 1.5, 0.5, 0.5, 0.15
"""Usual deviations of the parts, in logarithms: a guess may well be wrong by a factor of four, two runs of
the same activation differ by about a seventh."""
LEAST_S = 1e-3
_ROUNDS = 60
_PSEUDO = 4.0
"""The usual value of a deviation counts like so many measurements."""


@dataclass(frozen=True)
class Sample:
    """One measurement: which activation, on which machine, how long the command took."""

    activation: str
    machine: str
    speed: float
    took_s: float


def learn_from(workflow: Workflow, fleet: Fleet, world: World, folders: Sequence[str | Path]) -> Workflow:
    """The workflow with run times as runs in these folders measured them, for the machines of the fleet."""
    runs = [Run.read(folder) for folder in folders]
    for run in runs:
        if run.replay is not None:
            raise BadInput(f'The run in "{run.folder}" was a rehearsal and teaches nothing; name a real one.')
        if run.workflow.fingerprint != workflow.fingerprint:
            raise BadInput(
                f'The run in "{run.folder}" is of another workflow ("{run.workflow.name}"); name one of '
                f'"{workflow.name}".'
            )
    return learned(workflow, fleet, world, [(run.plan.fleet, run.facts) for run in runs])


def learned(workflow: Workflow, fleet: Fleet, world: World, runs: Sequence[tuple[Fleet, Facts]]) -> Workflow:
    """The workflow with better estimates; as it is where nothing was measured."""
    taught = [(own, list(facts)) for own, facts in runs]
    workflow = _with_sizes(workflow, [fact for _, facts in taught for fact in facts])
    measured = [sample for own, facts in taught for sample in samples(workflow, world, own, facts)]
    if not measured:
        return workflow
    model = _Model(workflow, measured)
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
    """Files with the sizes that were seen last."""
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


def samples(workflow: Workflow, world: World, fleet: Fleet, facts: Facts) -> list[Sample]:
    """What the commands took, without what the world's model counts for reading their inputs already."""
    vms = {vm.name: vm for vm in fleet.vms}
    found = []
    for name, vm_name, took_s in measured_s(facts):
        vm, staged_s = vms[vm_name], 0.0
        if world.storage == "shared":
            staged_s = sum(workflow[name].staged().values()) / (world.bandwidth_mb_s * 1e6)
        found.append(Sample(name, vm.machine, vm.speed, max(took_s - staged_s, LEAST_S)))
    return found


class _Model:
    """The parts of log(measured / estimated), fitted to samples."""

    def __init__(self, workflow: Workflow, samples: Sequence[Sample]) -> None:
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
        estimated = [_given_s(workflow[sample.activation], sample.speed) for sample in samples]
        taken = [sample.took_s for sample in samples]
        y = np.log(np.array(taken) / np.array(estimated))
        apart, noise = _deviations(y, members[2], members[3])
        self._parts = _backfit(y, members, (MACHINE, PROGRAM, PAIR, apart), noise)

    def run_s(self, activation: Activation, machine: str, speed: float) -> float:
        """The run time to expect of an activation on a machine."""
        words = machine, activation.program, (activation.program, machine), activation.id
        known = [
            part[keys[word]]
            for keys, part, word in zip(self._keys, self._parts, words, strict=True)
            if word in keys
        ]
        return _given_s(activation, speed) * math.exp(sum(known))


def _given_s(activation: Activation, speed: float) -> float:
    """The first estimate, by speed alone: what was learned before must not count twice."""
    return max(activation.runtime_s / speed, LEAST_S)


def _deviations(y: Floats, pairs: Ints, activations: Ints) -> tuple[float, float]:
    """Deviations of activations (of one program on one machine) and of repetitions, by moments.

    Where every activation ran once, its own part and noise cannot be told apart: then noise is the usual one,
    and the rest of the spread is the activations'.
    """
    within, freedom = _scatter(y, np.unique(np.stack([pairs, activations]), axis=1, return_inverse=True)[1])
    noise2 = (within + _PSEUDO * NOISE**2) / (freedom + _PSEUDO)
    spread, count = _scatter(y, pairs)
    both2 = (spread + _PSEUDO * (ACTIVATION**2 + noise2)) / (count + _PSEUDO)
    return math.sqrt(max(both2 - noise2, 1e-4)), math.sqrt(noise2)


def _scatter(y: Floats, groups: Ints) -> tuple[float, float]:
    """Squares around the groups' means, and their degrees of freedom."""
    groups = groups.ravel()
    counts = np.bincount(groups)
    means = np.bincount(groups, y) / np.maximum(counts, 1)
    return float(((y - means[groups]) ** 2).sum()), float(len(y) - (counts > 0).sum())


def _backfit(y: Floats, members: Sequence[Ints], deviations: Sequence[float], noise: float) -> list[Floats]:
    """Fit each part to what the others leave, shrunken by n / (n + (noise / deviation)^2), in turns."""
    parts = [np.zeros(int(each.max()) + 1) for each in members]
    left = y.copy()
    for _ in range(_ROUNDS):
        for part, each, deviation in zip(parts, members, deviations, strict=True):
            left += part[each]
            counts = np.bincount(each, minlength=len(part))
            part[:] = np.bincount(each, left, len(part)) / (counts + (noise / deviation) ** 2)
            left -= part[each]
    return parts
