"""What is known of machines before a run: from parameters, from the catalog, or from the price alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.money import Price
from prudent.core.ranges import Integer
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.machine_features import MachineFeatures

Pricing = Callable[[dict[str, Any]], float]


def features(space: Space, price: Pricing) -> MachineFeatures:
    return MachineFeatures(Problem(space, Goal(), lambda c: Price(price(c), "", "")), 1)


def columns(known: MachineFeatures, configuration: dict[str, Any]) -> dict[str, float]:
    problem = known._problem
    row = known.of(problem.candidates([configuration]))[0]
    return {name: math.exp(value) for name, value in zip(known.names, row, strict=True)}


def test_types_of_the_catalog_are_seen_through() -> None:
    space = Space.parse({"vm": ["c4.large", "m4.large", "r4.2xlarge"], "n": [2, 4, 8], "rate": [0.1, 0.2]})
    per_h = {"c4.large": 0.1, "m4.large": 0.12, "r4.2xlarge": 0.53}
    known = features(space, lambda c: per_h[c["vm"]] * c["n"])
    assert known.priced == ("vm", "n")
    assert known.beside == ("rate",)
    seen = columns(known, {"vm": "r4.2xlarge", "n": 4, "rate": 0.1})
    assert (seen["vcpus"], seen["memory"], seen["count"]) == pytest.approx((8, 61, 4))
    assert seen["price"] == pytest.approx(4 * 0.53)
    assert "unit price" not in seen


def test_an_unknown_type_is_known_by_its_price() -> None:
    space = Space.parse({"vm": ["A-small", "B-large"], "n": [1, 2, 4]})
    known = features(space, lambda c: {"A-small": 0.5, "B-large": 2.0}[c["vm"]] * c["n"])
    seen = columns(known, {"vm": "B-large", "n": 4})
    assert seen == pytest.approx({"price": 8.0, "count": 4.0, "unit price": 2.0})


def test_a_machine_parameter_tells_itself() -> None:
    cluster = MachineParameter("cluster", ["m5.large", "c5.xlarge", "r5.large"], [1, 2, 4])
    known = features(Space([cluster]), lambda c: cluster.price(c["cluster"]).usd_per_h)
    seen = columns(known, {"cluster": "4*m5.large"})
    assert (seen["count"], seen["vcpus"], seen["memory"]) == pytest.approx((4, 2, 8))


def test_what_says_the_same_twice_is_seen_once() -> None:
    known = features(Space.parse({"vm": ["a", "b"], "n": [1]}), lambda c: {"a": 1.0, "b": 3.0}[c["vm"]])
    assert known.names == ("price",)
    assert features(Space.parse({"rate": [1, 2]}), lambda c: 1.0).names == ()


def test_prices_that_follow_several_numbers_are_found_in_a_space_too_large_to_list() -> None:
    space = Space([Integer("n", 1, 5000), Integer("batch", 1, 5000)])
    known = features(space, lambda c: 0.1 * c["n"])
    assert (known.priced, known.beside) == (("n",), ("batch",))
    assert np.isfinite(known.of_space).all()
