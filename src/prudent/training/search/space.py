"""The space of a request: its methods, each with a space of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prudent.core.errors import unknown
from prudent.core.parameters import Categorical, Constant, Value
from prudent.core.space import Configuration, Space
from prudent.training.search.methods import MethodPlan

ALGORITHM = "algorithm"


@dataclass(frozen=True)
class TrialSettings:
    """What a configuration of the space means: a model to train, on which share of the data, and where."""

    plan: MethodPlan
    hyperparameters: Mapping[str, Any]
    transforms: Mapping[str, Any]
    fraction: float
    sampled: bool = False
    """Whether the share of the data is part of what is told of the model."""
    machines: str = ""
    """As people write it: 2*m5.large; empty where the request does not search its machines."""


class SettingsSpace(Protocol):
    """A space whose configurations mean models to train."""

    def settings_of(self, configuration: Configuration) -> TrialSettings: ...

    def key(self, configuration: Configuration) -> str: ...


class MethodSpace(Space):
    """A configuration names a method and has the parameters of that method, and no others.

    It is never listed or encoded whole: each method's own search looks at its own part.
    """

    def __init__(self, plans: Sequence[MethodPlan]) -> None:
        self.plans = dict(zip(labels_of(plans), plans, strict=True))
        labels = list(self.plans)
        super().__init__(
            [Categorical(ALGORITHM, labels) if len(labels) > 1 else Constant(ALGORITHM, labels[0])]
        )
        self._parts = {
            label: Space([Constant(ALGORITHM, label), *plan.space.parameters])
            for label, plan in self.plans.items()
        }

    @property
    def size(self) -> int | None:
        return None

    def configuration(self, label: str, own: Mapping[str, Value]) -> Configuration:
        """The configuration of a method that has these values in the method's own space."""
        return {ALGORITHM: label, **own}

    def split(self, configuration: Mapping[str, Value]) -> tuple[str, Configuration]:
        """The method of a configuration, and the values in the method's own space."""
        own = dict(configuration)
        return str(own.pop(ALGORITHM)), own

    def settings_of(self, configuration: Mapping[str, Value]) -> TrialSettings:
        label, own = self.split(configuration)
        plan = self.plans[label]
        return TrialSettings(plan, *plan.split(own), sampled=plan.fraction is not None)

    def fingerprint(self) -> str:
        said = " ".join(f"{label} {part.fingerprint()}" for label, part in self._parts.items())
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def _canonical(self, configuration: Mapping[str, Value]) -> Configuration:
        label = configuration.get(ALGORITHM)
        if label not in self._parts:
            raise unknown(ALGORITHM, label, self._parts)
        return self._parts[str(label)].check(configuration)


def labels_of(plans: Sequence[MethodPlan]) -> list[str]:
    """A name for each plan: its algorithm's, with a number where that comes again with other settings."""
    labels: list[str] = []
    for plan in plans:
        name, before = plan.algorithm.name, [other.algorithm.name for other in plans[: len(labels)]]
        again = before.count(name)
        labels.append(f"{name} ({again + 1})" if again else name)
    return labels
