"""Functions with known minima, for trying searches: they need no data and no engine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Self

from prudent._version import __version__
from prudent.training.engines.engine import DataShape, ModelFacts, TrialSpec
from prudent.training.models.description import write_facts
from prudent.tuning.trial import CUT, FINISHED, Outcome, Progress


def branin(x1: float, x2: float) -> float:
    """Branin's function: a(x₂ - b x₁² + c x₁ - r)² + s(1 - t) cos x₁ + s, with its usual constants.

    It has three minima of 0.397887 for x₁ in [-5, 10] and x₂ in [0, 15].

    >>> round(branin(math.pi, 2.275), 6)
    0.397887
    """
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x2 - b * x1**2 + c * x1 - 6.0) ** 2 + 10.0 * (1 - t) * math.cos(x1) + 10.0


class FunctionSession:
    """A session of the engine contract in which a trial is one evaluation."""

    @property
    def shape(self) -> DataShape:
        return DataShape(0, 0, 0, "")

    @property
    def description(self) -> Mapping[str, Any]:
        return {}

    def start(self, spec: TrialSpec) -> _Evaluation:
        return _Evaluation(spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Evaluation:
    """A run that ends with the first call of `next`."""

    def __init__(self, spec: TrialSpec) -> None:
        self._spec = spec

    def next(self, until_s: float) -> Progress | Outcome | None:
        del until_s
        clock = time.perf_counter()
        value = branin(float(self._spec.hyperparameters["x1"]), float(self._spec.hyperparameters["x2"]))
        spent_s = time.perf_counter() - clock
        facts = ModelFacts("value", value, -value, spent_s, 0.0, None, 0, 0, {"prudent": __version__})
        self._spec.folder.mkdir(parents=True, exist_ok=True)
        write_facts(self._spec.folder, facts)
        return Outcome(FINISHED, spent_s, facts.measures)

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, {}, why)
