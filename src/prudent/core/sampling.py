"""Configurations drawn from a space: at random, as a Latin hypercube, or along a Sobol sequence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.core.parameters import Value

if TYPE_CHECKING:
    from prudent.core.space import Space

_TRIES_AT_LEAST = 10_000
_TRIES_PER_SAMPLE = 20
_ENUMERATE_LIMIT = 1_000_000


def sample(space: Space, n: int, rng: np.random.Generator, method: str = "random") -> list[dict[str, Value]]:
    """n allowed configurations, distinct in a finite space; all of them, shuffled, if there are no more."""
    if method not in METHODS:
        raise unknown("sampling method", method, METHODS)
    if n < 0:
        raise BadInput(f"Cannot sample {n} configurations; ask for zero or more.")
    if n == 0:
        return []
    if space.points is not None or (space.size is not None and n >= space.size):
        return _from_list(space, list(space.configurations()), n, rng, method)
    return _by_rejection(space, n, rng, method)


def _by_rejection(space: Space, n: int, rng: np.random.Generator, method: str) -> list[dict[str, Value]]:
    chosen: dict[tuple[Value, ...], dict[str, Value]] = {}
    tries, tries_allowed = 0, max(_TRIES_AT_LEAST, _TRIES_PER_SAMPLE * n)
    for batch in METHODS[method](n, len(space.parameters), rng):
        for row in batch.tolist():
            configuration = place(space, row)
            if space.allows(configuration):
                chosen.setdefault(tuple(configuration.values()), configuration)
                if len(chosen) == n:
                    return list(chosen.values())
        tries += len(batch)
        if tries >= tries_allowed:
            break
    rest = _rest(space, chosen, n, rng)
    if rest is None:
        raise BadInput(
            f"Only {len(chosen)} of {tries} sampled configurations were allowed and new, but {n} are asked "
            f"for: the rule ({space.rule_text}) excludes almost all; loosen it or narrow the parameters."
        )
    return [*chosen.values(), *rest]


def place(space: Space, row: Sequence[float]) -> dict[str, Value]:
    """The configuration at a point of the unit cube; the rule is not asked."""
    return {
        parameter.name: parameter.from_unit(u) for parameter, u in zip(space.parameters, row, strict=True)
    }


def _rest(
    space: Space, chosen: dict[tuple[Value, ...], dict[str, Value]], n: int, rng: np.random.Generator
) -> list[dict[str, Value]] | None:
    """What drawing did not find, found by listing; None if the list would be too long."""
    if space.count(_ENUMERATE_LIMIT) is None:
        return None
    others = [other for other in space.configurations() if tuple(other.values()) not in chosen]
    if not others and not chosen:
        raise nothing_allowed(space)
    order = rng.permutation(len(others))[: n - len(chosen)]
    return [others[index] for index in order]


def nothing_allowed(space: Space) -> BadInput:
    """The error for a rule that leaves nothing."""
    return BadInput(f"The rule ({space.rule_text}) excludes every configuration; loosen it.")


def _from_list(
    space: Space, allowed: list[dict[str, Value]], n: int, rng: np.random.Generator, method: str
) -> list[dict[str, Value]]:
    if not allowed:
        raise nothing_allowed(space)
    if n >= len(allowed) or method == "random":
        return [allowed[index] for index in rng.permutation(len(allowed))[:n]]
    design = next(METHODS[method](n, len(space.parameters), rng))[:n]
    targets = space.encode([place(space, row) for row in design.tolist()])
    return [allowed[row] for row in _nearest(space, space.encode(allowed), targets, rng)]


def _nearest(
    space: Space, features: NDArray[np.float64], targets: NDArray[np.float64], rng: np.random.Generator
) -> list[int]:
    """For each target the nearest row not taken yet; the rng decides between equally near ones."""
    order = rng.permutation(len(features))
    shuffled, free = features[order], np.ones(len(features), dtype=bool)
    taken = []
    for target in targets:
        distances = np.where(free, space.distances(shuffled, target), np.inf)
        row = int(np.argmin(distances))
        free[row] = False
        taken.append(int(order[row]))
    return taken


def _random(n: int, width: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    while True:
        yield rng.random((n, width))


def _latin(n: int, width: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Every parameter's range is cut into n strips, and each strip is used once."""
    while True:
        strips = rng.permuted(np.tile(np.arange(n), (width, 1)), axis=1).T
        yield (strips + rng.random((n, width))) / n


def _sobol(n: int, width: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """A scrambled Sobol sequence, drawn in powers of two, where alone it is balanced."""
    from scipy.stats import qmc

    # scipy renamed the argument in 1.15.
    word = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"
    options: dict[str, Any] = {word: rng}
    sequence = qmc.Sobol(width, scramble=True, **options)
    power = max(int(n - 1).bit_length(), 0)
    yield np.asarray(sequence.random_base2(power))
    while True:
        yield np.asarray(sequence.random_base2(power))
        power += 1


METHODS: dict[str, Callable[[int, int, np.random.Generator], Iterator[NDArray[np.float64]]]] = {
    "random": _random,
    "latin": _latin,
    "sobol": _sobol,
}


_MOVES_PER_NEIGHBOUR = 20


def neighbours(
    space: Space, here: dict[str, Value], rng: np.random.Generator, n: int
) -> list[dict[str, Value]]:
    """Small moves: one parameter, sometimes two, a step away; the rule respected, no move twice."""
    movable = [parameter for parameter in space.parameters if parameter.size != 1]
    found: dict[tuple[Value, ...], dict[str, Value]] = {}
    for _ in range(_MOVES_PER_NEIGHBOUR * n if movable else 0):
        moves = 2 if len(movable) > 1 and rng.random() < 0.3 else 1
        moved = dict(here)
        for index in rng.choice(len(movable), size=moves, replace=False):
            parameter = movable[index]
            moved[parameter.name] = parameter.neighbours(here[parameter.name], rng)
        if moved != here and space.allows(moved):
            found.setdefault(tuple(moved.values()), moved)
            if len(found) >= n:
                break
    return list(found.values())
