"""The world of a run: storage, overheads, failures and billing, and distributions of random values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

Kind = Literal["constant", "normal", "lognormal", "gamma", "weibull"]


_PARAMETERS = {
    "constant": ("value",),
    "normal": ("mean", "deviation"),
    "lognormal": ("median", "sigma"),
    "gamma": ("shape", "scale"),
    "weibull": ("shape", "scale"),
}


_CALL = re.compile(r"\s*([a-z]+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True)
class Distribution:
    """A non-negative random number; what a normal draws below zero counts as zero.

    `a` and `b` are, by kind: constant (value); normal (mean, deviation); lognormal (median, sigma of the
    logarithm); gamma and Weibull (shape, scale).

    >>> Distribution.parse("normal(10, 2)").mean
    10.0
    >>> Distribution.parse("3.5")
    Distribution(kind='constant', a=3.5, b=0.0)
    """

    kind: Kind
    a: float
    b: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in _PARAMETERS:
            raise unknown("distribution", self.kind, _PARAMETERS)
        if not (self.a >= 0 and self.b >= 0 and math.isfinite(self.a) and math.isfinite(self.b)):
            raise BadInput(f"{self} has a parameter below zero; give numbers of zero or more.")
        if self.kind in ("gamma", "weibull") and not self.a > 0:
            raise BadInput(f"{self} has shape zero; give a shape above zero.")

    @classmethod
    def parse(cls, text: str | float | Distribution) -> Distribution:
        """A distribution from a number or from text like `weibull(1.5, 30)`."""
        if isinstance(text, Distribution):
            return text
        try:
            return cls("constant", float(text))
        except ValueError:
            match = _CALL.fullmatch(str(text))
        if match is None:
            raise BadInput(f'"{text}" is not a distribution; write a number, or like normal(10, 2).')
        kind, words = match[1], [word for word in match[2].split(",") if word.strip()]
        if kind not in _PARAMETERS:
            raise unknown("distribution", kind, _PARAMETERS)
        names = _PARAMETERS[kind]
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != len(names):
            raise BadInput(f'"{text}" is not complete; write {kind}({", ".join(names)}) with numbers.')
        return cls(kind, *numbers)  # type: ignore[arg-type]

    @property
    def mean(self) -> float:
        """The expected value (of the normal before it is cut at zero)."""
        match self.kind:
            case "lognormal":
                return self.a * math.exp(self.b * self.b / 2)
            case "gamma":
                return self.a * self.b
            case "weibull":
                return self.b * math.gamma(1 + 1 / self.a)
            case _:
                return self.a

    def draw(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """That many numbers, in this shape."""
        match self.kind:
            case "normal":
                drawn = np.maximum(rng.normal(self.a, self.b, size), 0.0)
            case "lognormal":
                drawn = self.a * np.exp(rng.normal(0.0, self.b, size))
            case "gamma":
                drawn = rng.gamma(self.a, self.b, size)
            case "weibull":
                drawn = self.b * rng.weibull(self.a, size)
            case _:
                drawn = np.full(size, self.a)
        return np.asarray(drawn, dtype=np.float64)

    def __str__(self) -> str:
        numbers = (self.a,) if self.kind == "constant" else (self.a, self.b)
        return f"{self.kind}({', '.join(f'{number:g}' for number in numbers)})"


Storage = Literal["shared", "local", "network"]


Billing = Literal["second", "hour"]


Boot = Literal["start", "first-use"]


_TIMES = ("engine_s", "queue_s", "post_s", "clustering_s", "boot_s")


_OPTIONAL = ("speed", "drift", "vm_lifetime_s", "spot_lifetime_s")


_CHOICES = {
    "storage": ("shared", "local", "network"),
    "billing": ("second", "hour"),
    "boot": ("start", "first-use"),
}


ZERO = Distribution("constant", 0.0)


@dataclass(frozen=True)
class World:
    """What surrounds the machines of a run; by default there are no overheads and no failures.

    Storage. `shared`: an activation first reads its distinct inputs (those it does not write itself) at
    `bandwidth_mb_s` (10^6 bytes a second), without contention. `local`: only those that are not yet on its
    VM; what was read or written there stays there. `network`: a file travels from the VM of its writer while
    the receiver may still be busy, and costs nothing on the same VM (the model of the HEFT paper).

    Overheads, drawn once per activation: `engine_s` from its last parent until it may be scheduled, `queue_s`
    on the VM before it starts, `post_s` until its children hear of it, `clustering_s` for merged ones.

    Randomness. `speed`: a factor for each VM (1: nominal). `drift`: another, redrawn each `drift_period_s`.
    `failure_rate`: the chance that one attempt fails, at a random point; it is tried again `retries` times.
    `vm_lifetime_s`: time until a VM breaks; it boots again, what ran or lay on it is lost. `spot_lifetime_s`:
    time until a spot VM is taken away for good.

    Money. A VM is paid from its boot (`boot`: at the start, or at its first use) to its last use, by the
    second with the machine's minimum, or by started hours. One that is never used costs nothing.
    """

    storage: Storage = "shared"
    bandwidth_mb_s: float = 15.0
    engine_s: Distribution = ZERO
    queue_s: Distribution = ZERO
    post_s: Distribution = ZERO
    clustering_s: Distribution = ZERO
    speed: Distribution | None = None
    drift: Distribution | None = None
    drift_period_s: float = 600.0
    failure_rate: float = 0.0
    retries: int = 3
    vm_lifetime_s: Distribution | None = None
    spot_lifetime_s: Distribution | None = None
    boot_s: Distribution = ZERO
    boot: Boot = "start"
    billing: Billing = "second"

    def __post_init__(self) -> None:
        for name, options in _CHOICES.items():
            if getattr(self, name) not in options:
                raise unknown(name, getattr(self, name), options)
        for name in (*_TIMES, *_OPTIONAL):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, Distribution.parse(value))
        if not (self.bandwidth_mb_s > 0 and math.isfinite(self.bandwidth_mb_s)):
            raise BadInput(f"The bandwidth is {self.bandwidth_mb_s:g} MB/s; give a number above zero.")
        if not 0 <= self.failure_rate < 1:
            raise BadInput(f"The failure rate is {self.failure_rate:g}; give a number from 0 to below 1.")
        if self.retries < 0:
            raise BadInput(f"There are {self.retries} retries; give zero or more.")
        if not self.drift_period_s > 0:
            raise BadInput(f"The drift period is {self.drift_period_s:g} s; give a number above zero.")

    @property
    def is_calm(self) -> bool:
        """Whether two runs in it are always the same: nothing in it is random."""
        lucky = (self.speed, self.drift, self.vm_lifetime_s, self.spot_lifetime_s)
        fixed = all(getattr(self, name).kind == "constant" for name in _TIMES)
        return fixed and not self.failure_rate and all(value is None for value in lucky)

    def calm(self) -> World:
        """The same world with every overhead at its mean and nothing random: what a planner knows."""
        known: dict[str, Any] = dict.fromkeys(_OPTIONAL)
        known |= {name: Distribution("constant", getattr(self, name).mean) for name in _TIMES}
        return replace(self, failure_rate=0.0, **known)

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as plain values."""
        default = World()
        changed = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value != getattr(default, each.name):
                changed[each.name] = str(value) if isinstance(value, Distribution) else value
        return changed
