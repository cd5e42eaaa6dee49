"""The space that is searched: named parameters, and which of their combinations are possible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prudent.core import sampling
from prudent.core.encoding import Encoder
from prudent.core.errors import BadInput, unknown
from prudent.core.parameter_parsing import ParameterFactory, infer_parameter, parse_parameter
from prudent.core.parameters import Constant, Parameter, Value
from prudent.core.ranges import Integer
from prudent.core.rules import Rule

__all__ = ["Configuration", "Space", "infer_parameter"]

Configuration: TypeAlias = dict[str, Value]
Condition: TypeAlias = Callable[[Mapping[str, Value]], bool]


_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Space:
    """Parameters, with a rule that excludes combinations, or with the only configurations that there are.

    A rule of text (`Rule`) is asked as early as its names are known, so that a large excluded part is
    skipped at once; a Python callable is asked about whole configurations.

    >>> space = Space.parse({"vm": ["small", "large"], "workers": {"integer": [1, 8]}},
    ...                     rule="not (vm == 'large' and workers > 2)")
    >>> space.size, space.count()
    (16, 10)
    >>> space.check({"vm": "lage", "workers": 1})
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: Unknown value of "vm" "lage". Did you mean "large"? Choose one of: \
small, large.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        rule: Rule | Condition | str | None = None,
        points: Sequence[Mapping[str, Value]] | None = None,
    ) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        if not parameters:
            raise BadInput("A space needs at least one parameter; name one.")
        if len(self._parameters) < len(parameters):
            names = [parameter.name for parameter in parameters]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f'Parameter "{twice}" is given twice; rename or remove one.')
        self._encoder = Encoder(self.parameters)
        self._factual = [p for p in self.parameters if hasattr(p, "facts") and hasattr(p, "fact_names")]
        self._asked: list[Parameter] = []
        self._facts: dict[tuple[str, Value], Mapping[str, Value]] = {}
        self._rule = self._bound(Rule.parse(rule) if isinstance(rule, str) else rule)
        self._stages = self._staged()
        self._points: dict[str, Configuration] | None = None
        if points is not None:
            canonical = (self._canonical(point) for point in points)
            self._points = {self._text(point): point for point in canonical}
            if not self._points:
                raise BadInput("The list of configurations is empty; give at least one.")

    @staticmethod
    def parse(
        mapping: Mapping[str, Any],
        kinds: Mapping[str, ParameterFactory] | None = None,
        rule: Rule | Condition | str | Sequence[str] | None = None,
    ) -> Space:
        """A space from YAML or a dict; each parameter is said in the shortest form that is clear.

        ```yaml
        learning_rate: {log: [1e-5, 1e-1]}            # a real number on a log scale
        dropout:       {real: [0, 0.5]}               # a real number (log: true for the log scale)
        depth:         {integer: [1, 10]}             # whole numbers, both ends included (log: true, step: 2)
        batch:         [16, 64, 256]                  # numbers: ordered; log scale when they spread like one
        optimiser:     [adam, sgd]                    # anything else: categories
        size:          {values: [S, M, L], ordered: true}   # ordered text (or ordered: false for numbers)
        epochs:        20                             # a constant
        layers:        {constant: [64, 64]}           # a constant that is a list
        ```
        `kinds` adds others: {"machine": make} reads `cluster: {machine: …}` by `make("cluster", …)`, handing
        it what stands under the key.
        A rule may be a text or a list of texts that must all hold.

        >>> print(Space.parse({"rate": {"log": ["1e-5", "1e-1"]}, "batch": [16, 64, 256], "epochs": 20}))
        rate: 1e-05 to 0.1 (log scale)
        batch: 16, 64, 256 (log scale)
        epochs: 20 (constant)
        """
        if not isinstance(mapping, Mapping):
            raise BadInput(
                f"A space is a mapping of parameters, not {mapping!r}; write name: values for each."
            )
        if isinstance(rule, Sequence) and not isinstance(rule, str):
            for part in rule:
                Rule.parse(part)  # alone first, so that an error quotes the part that is wrong
            rule = " and ".join(f"({part})" for part in rule) or None
        return Space([parse_parameter(name, spec, kinds) for name, spec in mapping.items()], rule)

    @staticmethod
    def from_points(points: Sequence[Mapping[str, Value]], names: Sequence[str] | None = None) -> Space:
        """The space of a table of measured runs: its rows, with parameters as its columns show them.

        >>> Space.from_points([{"vm": "a", "n": 1}, {"vm": "b", "n": 4}]).size
        2
        """
        if not points:
            raise BadInput("The table has no rows; give at least one configuration.")
        chosen = list(names if names is not None else points[0])
        rows = []
        for number, point in enumerate(points, start=1):
            for name in chosen:
                if name not in point:
                    known = unknown("column", name, point)
                    raise BadInput(f"Row {number} of the table: {known}")
            rows.append({name: point[name] for name in chosen})
        return Space([infer_parameter(name, (row[name] for row in rows)) for name in chosen], points=rows)

    # What there is

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(self._parameters.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parameters)

    @property
    def fact_names(self) -> tuple[str, ...]:
        """The names of what parameters know about their values, like `cluster.vcpus`."""
        return tuple(f"{p.name}.{fact}" for p in self._factual for fact in getattr(p, "fact_names", ()))

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise unknown("parameter", name, self._parameters)
        return self._parameters[name]

    @property
    def rule(self) -> Rule | Condition | None:
        return self._rule

    @property
    def rule_text(self) -> str:
        """The rule as its author would know it: its text, or the name of the function."""
        return "" if self._rule is None else str(getattr(self._rule, "__qualname__", self._rule))

    @property
    def points(self) -> tuple[Configuration, ...] | None:
        """The only configurations that there are (the rule may exclude some), if they are listed."""
        return None if self._points is None else tuple(dict(point) for point in self._points.values())

    @property
    def finite(self) -> bool:
        return self._points is not None or all(parameter.finite for parameter in self.parameters)

    @property
    def size(self) -> int | None:
        """The number of combinations before the rule; None if infinite."""
        if self._points is not None:
            return len(self._points)
        sizes = [parameter.size for parameter in self.parameters]
        known = [size for size in sizes if size is not None]
        return prod(known) if len(known) == len(sizes) else None

    def count(self, limit: int = 1_000_000) -> int | None:
        """The number of allowed configurations, or None if it takes more than `limit` looks to count them."""
        if self.size is None or (self._rule is None and self.size > limit):
            return None
        if self._rule is None:
            return self.size
        allowed = 0
        for looks, configuration in enumerate(self._walk()):
            if looks >= limit:
                return None
            allowed += configuration is not None
        return allowed

    def configurations(self) -> Iterator[Configuration]:
        """Every allowed configuration, one by one, the last parameter changing fastest."""
        if not self.finite:
            endless = next(parameter.name for parameter in self.parameters if not parameter.finite)
            raise BadInput(
                f'The space is infinite in "{endless}"; sample it, or list the values of "{endless}".'
            )
        return (configuration for configuration in self._walk() if configuration is not None)

    def _walk(self) -> Iterator[Configuration | None]:
        """Depth first, a parameter a level; None for a look that found nothing allowed."""
        if self._points is not None:
            for point in self._points.values():
                yield dict(point) if self.allows(point) else None
            return
        names = self.names
        choices = [p.range if isinstance(p, Integer) else p.values for p in self.parameters]
        levels = [iter(choices[0])]
        partial: Configuration = {}
        while levels:
            depth = len(levels) - 1
            try:
                partial[names[depth]] = next(levels[-1])
            except StopIteration:
                levels.pop()
                partial.pop(names[depth], None)
                continue
            if not self._passes(depth, partial):
                yield None
            elif depth + 1 == len(names):
                yield dict(partial)
            else:
                levels.append(iter(choices[depth + 1]))

    # What is allowed

    def check(self, configuration: Mapping[str, Value]) -> Configuration:
        """The canonical form of an allowed configuration; BadInput says what is wrong with another."""
        canonical = self._canonical(configuration)
        if not self.allows(canonical):
            raise BadInput(f"The rule ({self.rule_text}) excludes {_said(canonical)}; change a value.")
        if self._points is not None and self._text(canonical) not in self._points:
            nearest = self._near_points(canonical, 1, None)[0]
            raise BadInput(
                f"There is no run at {_said(canonical)}; choose a listed one, such as {_said(nearest)}."
            )
        return canonical

    def __contains__(self, configuration: object) -> bool:
        try:
            return isinstance(configuration, Mapping) and bool(self.check(configuration))
        except BadInput:
            return False

    def allows(self, configuration: Mapping[str, Value]) -> bool:
        """Whether the rule allows a canonical configuration."""
        if self._rule is None:
            return True
        return all(self._passes(depth, configuration) for depth in range(len(self._stages)))

    def _canonical(self, configuration: Mapping[str, Value]) -> Configuration:
        for name in configuration:
            if name not in self._parameters:
                raise unknown("parameter", name, self._parameters)
        canonical: Configuration = {}
        for name, parameter in self._parameters.items():
            if name in configuration:
                canonical[name] = parameter.check(configuration[name])
            elif isinstance(parameter, Constant):
                canonical[name] = parameter.value
            else:
                raise BadInput(f'Parameter "{name}" has no value in {_said(configuration)}; give it one.')
        return canonical

    def _bound(self, rule: Rule | Condition | None) -> Rule | Condition | None:
        if not isinstance(rule, Rule):
            return rule

        def check(name: str, text: str) -> None:
            meant = self._parameters[name].check(text) if name in self._parameters else text
            if meant != text:
                raise BadInput(f"The rule compares {name} with {text!r}; write the value as {meant!r}.")

        bound = rule.bind([*self.names, *self.fact_names], check)
        asked = {name.split(".")[0] for name in rule.names if "." in name}
        self._asked = [p for p in self._factual if p.name in asked]
        return bound

    def _staged(self) -> list[list[Condition]]:
        """For each parameter in turn, what can be judged once it is chosen."""
        stages: list[list[Condition]] = [[] for _ in self.names]
        if isinstance(self._rule, Rule):
            order = {name: depth for depth, name in enumerate(self.names)}
            for part in self._rule.parts:
                depths = [order.get(name, order.get(name.split(".")[0], 0)) for name in part.names]
                stages[max(depths, default=0)].append(part)
        elif self._rule is not None:
            stages[-1].append(self._rule)
        return stages

    def _passes(self, depth: int, configuration: Mapping[str, Value]) -> bool:
        conditions = self._stages[depth]
        if not conditions:
            return True
        known = self._extended(configuration, self._asked) if self._asked else configuration
        return all(condition(known) for condition in conditions)

    def with_facts(self, configuration: Mapping[str, Value]) -> dict[str, Value]:
        """A canonical configuration, and what its parameters know about their values (`fact_names`)."""
        return self._extended(configuration, self._factual)

    def _extended(
        self, configuration: Mapping[str, Value], parameters: Iterable[Parameter]
    ) -> dict[str, Value]:
        known = dict(configuration)
        for parameter in parameters:
            if parameter.name in configuration:
                known.update(self._facts_of(parameter, configuration[parameter.name]))
        return known

    def _facts_of(self, parameter: Any, value: Value) -> Mapping[str, Value]:
        place = (parameter.name, value)
        if place not in self._facts:
            facts = parameter.facts(value).items()
            self._facts[place] = {f"{parameter.name}.{fact}": known for fact, known in facts}
        return self._facts[place]

    # Identity

    def key(self, configuration: Mapping[str, Value]) -> str:
        """One text per configuration, the same in every process and however its values were spelt."""
        return self._text(self._canonical(configuration))

    def _text(self, canonical: Mapping[str, Value]) -> str:
        return _JSON.encode(canonical)

    def fingerprint(self) -> str:
        """Tells spaces apart, so that the journal of another space can be refused."""
        points = sorted(self._points) if self._points is not None else None
        said = json.dumps([sorted(map(repr, self.parameters)), self.rule_text, points])
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        lines = [str(parameter) for parameter in self.parameters]
        return "\n".join(lines + ([f"rule: {self.rule_text}"] if self._rule is not None else []))

    def __repr__(self) -> str:
        return f"Space({', '.join(self.names)}; size {self.size})"

    # Features

    @property
    def width(self) -> int:
        return self._encoder.width

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self._encoder.feature_names

    @property
    def groups(self) -> list[tuple[str, slice]]:
        """Each parameter with the columns that encode it."""
        return list(self._encoder.groups)

    def encode(self, configurations: Iterable[Mapping[str, Value]]) -> NDArray[np.float64]:
        """Features in [0, 1], shape (configurations, width)."""
        if isinstance(configurations, Mapping):
            raise BadInput("encode takes a list of configurations; put the one you have into a list.")
        return self._encoder.encode(list(configurations))

    def distances(self, features: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far encoded configurations are from one; categories are 1 apart, as are the ends of a range."""
        return self._encoder.distances(features, target)

    # Choice

    def sample(self, n: int, rng: np.random.Generator, method: str = "random") -> list[Configuration]:
        """n distinct allowed configurations by "random", "latin" or "sobol"; all there are if n is larger."""
        return sampling.sample(self, n, rng, method)

    def neighbours(
        self, configuration: Mapping[str, Value], rng: np.random.Generator, n: int
    ) -> list[Configuration]:
        """Up to n distinct allowed configurations near one; fewer where there are no more."""
        here = self._canonical(configuration)
        if self._points is not None:
            return self._near_points(here, n, rng)
        return sampling.neighbours(self, here, rng, n)

    def _near_points(
        self, here: Configuration, n: int, rng: np.random.Generator | None
    ) -> list[Configuration]:
        others = [point for point in self._walk() if point is not None and point != here]
        if rng is not None:  # between equally near ones
            others = [others[index] for index in rng.permutation(len(others))]
        distances = self.distances(self.encode(others), self.encode([here])[0])
        return [others[index] for index in np.argsort(distances, kind="stable")[:n]]


def _said(configuration: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in configuration.items()) or "an empty configuration"
