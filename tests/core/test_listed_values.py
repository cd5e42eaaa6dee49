"""Parameters with listed values: what lies beside each, and how long lists are shown."""

from __future__ import annotations

import pytest

from prudent.core.parameters import Categorical, Ordinal
from prudent.core.seeds import rng_for


@pytest.mark.parametrize(("value", "beside"), [(1, {2}), (2, {1, 4}), (4, {2, 8}), (8, {4, 16}), (16, {8})])
def test_the_neighbours_of_an_ordered_value_are_those_beside_it(value: int, beside: set[int]) -> None:
    rng, parameter = rng_for(1, "beside"), Ordinal("n", [1, 2, 4, 8, 16])
    assert {parameter.neighbours(value, rng) for _ in range(60)} == beside


def test_the_only_value_is_its_own_neighbour() -> None:
    assert Ordinal("n", [3]).neighbours(3, rng_for(1, "alone")) == 3


def test_the_neighbours_of_a_category_are_all_others() -> None:
    rng, parameter = rng_for(1, "others"), Categorical("k", ["a", "b", "c"])
    assert {parameter.neighbours("b", rng) for _ in range(60)} == {"a", "c"}


def test_eight_values_are_shown_and_of_more_the_number() -> None:
    assert str(Categorical("k", range(8))) == "k: 0, 1, 2, 3, 4, 5, 6, 7"
    assert str(Categorical("k", range(9))) == "k: 0, 1, 2, 3, 4, 5, 6, 7, … (9 values)"
