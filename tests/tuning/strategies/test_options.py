"""The published options of every strategy: names, defaults, words, and limits exactly at their borders."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.problem import Problem
from prudent.tuning.strategies import registry
from prudent.tuning.strategies.registry import build, default_strategy, register, strategies
from prudent.tuning.strategies.strategy import read_options

LYNCEUS = {
    "lookahead": 0, "nodes": 3, "gamma": 0.9, "epsilon": 0.0, "start": "price", "start_trials": 4,
    "surrogate": "gp", "trees": 10, "confidence": 0.5,
}  # fmt: skip
CLASSIC = {"start": "latin", "start_trials": 3}
FABOLAS = {
    "surrogate": "gp", "curves": "power", "representers": 40, "draws": 32, "breadth": 256, "nodes": 3,
    "overhead_usd": 0.003, "start": "latin", "start_configurations": 6, "start_fractions": "thrifty",
    "confidence": 0.99, "trees": 10, "epsilon": 0.0,
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "prudent": {"bold_runs": 6.0, "epsilon": 0.0, "start_trials": 3},
    "random": {},
    "grid": {},
    "cherrypick": {**CLASSIC, "stop_below": 0.1, "least_trials": 6},
    "gp-ei": CLASSIC,
    "gp-eic": CLASSIC,
    # The paper's: trees, a random start, two steps ahead, 99 % sure of paying.
    "obol": {
        **LYNCEUS, "lookahead": 2, "start": "random", "start_trials": 12, "surrogate": "trees",
        "confidence": 0.99,
    },
    "lynceus": LYNCEUS,
    "nephele": {
        **LYNCEUS, "accuracy_nodes": 1, "halving": 6, "start_usd": None, "feasible": "probability",
        "drop": True,
    },
    "hyperband": {"eta": 3.0},
    "bohb": {"eta": 3.0, "random_share": 1 / 3, "good_share": 0.15},
    "fabolas": FABOLAS,
    "fabulinus": {**FABOLAS, "acquisition": "constrained", "beta": 0.25},
}  # fmt: skip
STARTS = ("price", "latin", "random", "sobol")
WORDS: dict[str, tuple[str, ...]] = {
    "start": STARTS,
    "surrogate": ("gp", "trees"),
    "curves": ("power", "paper"),
    "start_fractions": ("thrifty", "every"),
    "feasible": ("probability", "means"),
    "acquisition": ("constrained", "es"),
}
A_BIT = 1e-9
# option -> (accepted at both ends, refused just beyond them); None: there is no such end.
LYNCEUS_LIMITS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "lookahead": ((0, 4), (-1, 5)),
    "nodes": ((1, 9), (0, 10)),
    "gamma": ((A_BIT, 1.0), (0.0, 1 + A_BIT)),
    "epsilon": ((0.0,), (-A_BIT,)),
    "start_trials": ((1,), (0,)),
    "trees": ((2,), (1,)),
    "confidence": ((0.5, 1 - A_BIT), (0.5 - A_BIT, 1.0)),
}
FABOLAS_LIMITS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "representers": ((2,), (1,)),
    "draws": ((8,), (7,)),
    "breadth": ((1,), (0,)),
    "nodes": ((1, 9), (0, 10)),
    "overhead_usd": ((A_BIT,), (0.0,)),
    "start_configurations": ((2,), (1,)),
    "confidence": ((0.5, 1 - A_BIT), (0.5 - A_BIT, 1.0)),
    "trees": ((2,), (1,)),
    "epsilon": ((0.0,), (-A_BIT,)),
}
LIMITS = {
    "prudent": {
        "bold_runs": ((0.0,), (-A_BIT,)),
        "epsilon": ((0.0,), (-A_BIT,)),
        "start_trials": ((1,), (0,)),
    },
    "cherrypick": {"start_trials": ((1,), (0,)), "stop_below": ((0.0, 5.0), (-A_BIT,))},
    "gp-ei": {"start_trials": ((1,), (0,))},
    "gp-eic": {"start_trials": ((1,), (0,))},
    "lynceus": LYNCEUS_LIMITS,
    "obol": LYNCEUS_LIMITS,
    "nephele": {
        **LYNCEUS_LIMITS,
        "accuracy_nodes": ((1, 9), (0, 10)),
        "halving": ((0, 1), (-1,)),
        "start_usd": ((None, A_BIT), (0.0, -1.0)),
        "drop": ((True, False), (1, "yes", None)),
    },
    "hyperband": {"eta": ((1 + A_BIT,), (1.0,))},
    "bohb": {
        "eta": ((1 + A_BIT,), (1.0,)),
        "random_share": ((0.0, 1.0), (-A_BIT, 1 + A_BIT)),
        "good_share": ((A_BIT, 1 - A_BIT), (0.0, 1.0)),
    },
    "fabolas": FABOLAS_LIMITS,
    "fabulinus": {**FABOLAS_LIMITS, "beta": ((A_BIT, 1.0), (0.0, 1 + A_BIT))},
}


def options_of(name: str, **values: Any) -> Any:
    module, kind = registry._STRATEGIES[name]
    return read_options(getattr(importlib.import_module(module), kind).Options, values, name)


def problem(goal: str = "minimise cost_usd", fraction: str | None = None) -> Problem:
    space = Space.parse({"n": [1, 2, 3, 4], "s": [0.1, 1.0]})
    return Problem(space, Goal.parse(goal), lambda c: Price(float(c["n"]), "", ""), ("accuracy",), fraction)


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(name: str) -> None:
    assert dataclasses.asdict(options_of(name)) == DEFAULTS[name]


def test_the_strategies_are_these() -> None:
    assert strategies() == list(DEFAULTS)


@pytest.mark.parametrize(("name", "option"), [(name, o) for name, limits in LIMITS.items() for o in limits])
def test_limits(name: str, option: str) -> None:
    accepted, refused = LIMITS[name][option]
    for value in accepted:
        assert getattr(options_of(name, **{option: value}), option) == value
    for value in refused:
        with pytest.raises(BadInput, match=option):
            options_of(name, **{option: value})


@pytest.mark.parametrize("name", DEFAULTS)
def test_words(name: str) -> None:
    for option in DEFAULTS[name].keys() & WORDS.keys():
        for word in WORDS[option]:
            assert getattr(options_of(name, **{option: word}), option) == word
        with pytest.raises(BadInput, match=rf'value of {name}\.{option} "guess"'):
            options_of(name, **{option: "guess"})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("nodes", 2.5, "lynceus.nodes is 2.5; give a whole number"),
        ("nodes", "some", "lynceus.nodes is 'some'; give a whole number"),
        ("nodes", None, "lynceus.nodes is None; give a whole number"),
        ("gamma", "much", "lynceus.gamma is 'much'; give a number"),
        ("gama", 0.5, 'Did you mean "gamma"'),
    ],
)
def test_wrong_values_are_answered_with_the_remedy(option: str, value: Any, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        options_of("lynceus", **{option: value})
    assert message in str(refused.value)


def test_what_means_the_same_is_taken() -> None:
    assert options_of("lynceus", nodes="4").nodes == 4
    assert options_of("lynceus", nodes=4.0).nodes == 4
    assert type(options_of("lynceus", gamma=1).gamma) is float
    assert options_of("nephele", start_usd="2.5").start_usd == 2.5
    assert typing.get_type_hints(type(options_of("nephele")))["drop"] is bool
    with pytest.raises(BadInput, match=r"nephele\.drop is 'no'; give true or false"):
        options_of("nephele", drop="no")


def test_the_default_follows_from_the_goal() -> None:
    assert default_strategy(problem()) == "prudent"
    assert default_strategy(problem(fraction="s")) == "nephele"
    assert default_strategy(problem("maximise accuracy at full data", "s")) == "fabulinus"


def test_a_strategy_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_STRATEGIES", dict(registry._STRATEGIES))
    register("mine", "prudent.tuning.strategies.simple", "RandomSearch")
    assert strategies()[-1] == "mine"
    assert build("mine", problem(), {}, 1).recommend is not None
    with pytest.raises(BadInput, match='There is a strategy "mine" already'):
        register("mine", "prudent.tuning.strategies.simple", "GridSearch")
    with pytest.raises(BadInput, match='Did you mean "mine"'):
        build("mien", problem(), {}, 1)
    register("mine", "prudent.tuning.strategies.simple", "RandomSearch")  # the same once more


def test_a_strategy_that_is_not_listed_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_STRATEGIES", dict(registry._STRATEGIES))
    monkeypatch.setattr(registry, "_UNLISTED", set(registry._UNLISTED))
    register("secret", "prudent.tuning.strategies.simple", "RandomSearch", listed=False)
    assert strategies() == list(DEFAULTS)
    assert build("secret", problem(), {}, 1).recommend is not None
