"""One space for all that a request leaves open: algorithm, hyper-parameters, transforms, machines, data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter, Value
from prudent.core.space import Configuration, Space
from prudent.training.search.methods import FRACTION, MethodPlan
from prudent.training.search.space import ALGORITHM, TrialSettings, labels_of

MACHINES = "machines"
_SWITCHES = 4
"""One in so many neighbours switches to another method, on the same machines and data."""


class JointSpace(Space):
    """Methods, each with hyper-parameters of its own, and what they share: transforms, machines, data.

    A hyper-parameter is searched only where its method is chosen; elsewhere it stays at one value, so that no
    two configurations mean the same run, and none is paid for twice. Names are `method.parameter`.
    """

    def __init__(
        self, plans: Sequence[MethodPlan], machines: MachineParameter, fractions: Sequence[float]
    ) -> None:
        self._plans = dict(zip(labels_of(plans), plans, strict=True))
        self._machines = machines
        self._inactive_values: Configuration = {}
        self._owner: dict[str, str] = {}
        shared: list[Parameter] = [machines]
        if len(fractions) > 1:
            shared.append(Ordinal(FRACTION, sorted(fractions), log=True))
        shared += [one for one in plans[0].space.parameters if "." in one.name]
        own = {label: self._own_parameters(label, plan) for label, plan in self._plans.items()}
        labels = list(self._plans)
        method = Categorical(ALGORITHM, labels) if len(labels) > 1 else Constant(ALGORITHM, labels[0])
        super().__init__([method, *shared, *(one for parameters in own.values() for one in parameters)])
        self._parts = {
            label: Space([Constant(ALGORITHM, label), *shared, *parameters])
            for label, parameters in own.items()
        }

    def _own_parameters(self, label: str, plan: MethodPlan) -> list[Parameter]:
        found: list[Parameter] = []
        for parameter in plan.space.parameters:
            if "." in parameter.name or parameter.name == FRACTION:
                continue
            name = f"{label}.{parameter.name}"
            self._inactive_values[name], self._owner[name] = plan.good[parameter.name], label
            copy: Any = parameter
            found.append(replace(copy, name=name))
        return found

    def settings_of(self, configuration: Mapping[str, Value]) -> TrialSettings:
        """The model, the data and the machines that a configuration means."""
        chosen = self.check(configuration)
        label = str(chosen[ALGORITHM])
        plan, prefix = self._plans[label], f"{label}."
        own = {name.removeprefix(prefix): v for name, v in chosen.items() if self._owner.get(name) == label}
        steps = {name: v for name, v in chosen.items() if "." in name and name not in self._owner}
        hyperparameters, transforms, _ = plan.split({**own, **steps})
        share = float(str(chosen.get(FRACTION, 1.0)))
        return TrialSettings(plan, hyperparameters, transforms, share, share < 1, str(chosen[MACHINES]))

    @property
    def types(self) -> tuple[str, ...]:
        """The machine types that are searched."""
        return tuple(self._machines.types)

    def machines_of(self, configuration: Mapping[str, Value]) -> tuple[int, str]:
        """How many machines of which type a configuration wants."""
        count, machine = self._machines.cluster(configuration[MACHINES])
        return count, machine.name

    # The methods of a space, method by method

    @property
    def size(self) -> int | None:
        sizes = [part.size for part in self._parts.values()]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def _canonical(self, configuration: Mapping[str, Value]) -> Configuration:
        chosen = super()._canonical({**self._inactive_values, **configuration})
        label = chosen[ALGORITHM]
        return {
            name: value if self._owner.get(name, label) == label else self._inactive_values[name]
            for name, value in chosen.items()
        }

    def _walk(self) -> Iterator[Configuration | None]:
        for part in self._parts.values():
            for configuration in part.configurations():
                yield self._canonical(configuration)

    def sample(self, n: int, rng: np.random.Generator, method: str = "random") -> list[Configuration]:
        """As many of each method as can be, so that one with few settings is seen as often as the others."""
        drawn = [
            self._canonical(configuration)
            for part, count in zip(self._parts.values(), self._shares(n, rng), strict=True)
            for configuration in part.sample(count, rng, method)
        ]
        return [drawn[place] for place in rng.permutation(len(drawn))]

    def _shares(self, n: int, rng: np.random.Generator) -> list[int]:
        """How many to draw of each method; what a small one does not have, the others give."""
        room = [math.inf if part.size is None else part.size for part in self._parts.values()]
        counts = [0] * len(room)
        order = rng.permutation(len(room))
        while n > 0 and (open_ := [place for place in order if room[place] > counts[place]]):
            each = max(n // len(open_), 1)
            for place in open_[:n]:
                more = int(min(each, room[place] - counts[place]))
                counts[place] += more
                n -= more
        return counts

    def neighbours(
        self, configuration: Mapping[str, Value], rng: np.random.Generator, n: int
    ) -> list[Configuration]:
        here = self._canonical(configuration)
        part = self._parts[str(here[ALGORITHM])]
        others = [label for label in self._parts if label != here[ALGORITHM]]
        switched = [{**here, ALGORITHM: others[place]} for place in rng.permutation(len(others))]
        switched = switched[: n // _SWITCHES]
        near = part.neighbours({name: here[name] for name in part.names}, rng, n - len(switched))
        return [self._canonical(found) for found in (*near, *switched)]
