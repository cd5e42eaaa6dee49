"""Strategies by name; a strategy's module is imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from prudent.core.errors import BadInput, unknown
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.strategy import FrugalStrategy, Strategy, read_options

_HERE = "prudent.tuning.strategies"

# name -> (module, class); the class has a dataclass `Options` and is built from (problem, options, seed).
_STRATEGIES: dict[str, tuple[str, str]] = {
    "prudent": (f"{_HERE}.prudent", "PrudentStrategy"),
    "random": (f"{_HERE}.simple", "RandomSearch"),
    "grid": (f"{_HERE}.simple", "GridSearch"),
    "cherrypick": (f"{_HERE}.classic", "CherryPick"),
    "gp-ei": (f"{_HERE}.classic", "GpEi"),
    "gp-eic": (f"{_HERE}.classic", "GpEic"),
    "obol": (f"{_HERE}.lynceus", "Obol"),
    "lynceus": (f"{_HERE}.lynceus", "Lynceus"),
    "nephele": (f"{_HERE}.nephele", "Nephele"),
    "hyperband": (f"{_HERE}.hyperband", "Hyperband"),
    "bohb": (f"{_HERE}.hyperband", "Bohb"),
    "fabolas": (f"{_HERE}.fabulinus", "Fabolas"),
    "fabulinus": (f"{_HERE}.fabulinus", "Fabulinus"),
}
_UNLISTED: set[str] = set()

_PRESETS = f"{_HERE}.published.presets"
# The same names with the option `as: published`: step by step as in their papers.
_PUBLISHED: dict[str, tuple[str, str]] = {
    "cherrypick": (_PRESETS, "PublishedCherryPick"),
    "gp-ei": (_PRESETS, "PublishedGpEi"),
    "gp-eic": (_PRESETS, "PublishedGpEic"),
    "obol": (_PRESETS, "PublishedObol"),
    "lynceus": (_PRESETS, "PublishedObol"),
    "nephele": (_PRESETS, "PublishedNephele"),
    "fabolas": (_PRESETS, "PublishedFabolas"),
    "fabulinus": (_PRESETS, "PublishedFabulinus"),
}


def strategies() -> list[str]:
    """The names that `strategy=` takes.

    Those of the papers (`published()`) also take the option `as: published`: step by step as they were
    published.
    """
    return [name for name in _STRATEGIES if name not in _UNLISTED]


def published() -> list[str]:
    """The names that take the option `as: published`."""
    return list(_PUBLISHED)


def register(name: str, module: str, class_name: str, listed: bool = True) -> None:
    """Add a strategy of your own: the module it is imported from, and its class.

    One that is not listed is for studies that the caller builds, and cannot be chosen in a job file.
    """
    if _STRATEGIES.setdefault(name, (module, class_name)) != (module, class_name):
        raise BadInput(f'There is a strategy "{name}" already; choose another name.')
    if not listed:
        _UNLISTED.add(name)


def build(name: str, problem: Problem, options: Mapping[str, Any], seed: int) -> Strategy:
    """The strategy of that name, with its options checked."""
    if name not in _STRATEGIES:
        raise unknown("strategy", name, _STRATEGIES)
    module, class_name = _STRATEGIES[name]
    if "as" in options:
        options = dict(options)
        module, class_name = _as_published(name, options.pop("as"))
    kind: Any = getattr(import_module(module), class_name)
    built = cast(Strategy, kind(problem, read_options(kind.Options, options, name), seed))
    if problem.goal.runs_planned is not None:
        _check_frugal(name, built, problem)
    return built


def _check_frugal(name: str, strategy: Strategy, problem: Problem) -> None:
    """Refuse a number of planned runs that the strategy would not heed."""
    if not isinstance(strategy, FrugalStrategy):
        raise BadInput(
            f'The strategy "{name}" does not weigh what a trial costs against the runs that are planned; '
            'use "prudent" or "lynceus", or leave the number of runs out of the goal.'
        )
    if problem.fraction is not None:
        raise BadInput(
            "For a job that learns on shares of its data, trials are not weighed against the runs that are "
            "planned; leave the number of runs out of the goal, or the fraction out of the job."
        )


def _as_published(name: str, how: Any) -> tuple[str, str]:
    if how != "published":
        raise unknown(f"value of {name}.as", how, ["published"])
    if name not in _PUBLISHED:
        raise BadInput(f'"{name}" is not the strategy of a paper; leave out "as: published".')
    return _PUBLISHED[name]


def default_strategy(problem: Problem) -> str:
    """The best strategy for a goal, by our benchmarks."""
    if problem.fraction is None:
        return "prudent"
    return "fabulinus" if problem.goal.speaks_of_full_data else "nephele"
