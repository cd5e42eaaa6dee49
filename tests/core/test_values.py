"""Values in one plain form, and their place on a scale, at the edges too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from prudent.core.encoding import Encoder
from prudent.core.errors import BadInput
from prudent.core.parameters import (
    Categorical,
    Constant,
    Ordinal,
    as_number,
    at,
    find,
    is_number,
    place,
    places,
    plain,
)
from prudent.core.ranges import Integer, Real, _reflect
from prudent.core.seeds import rng_for


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (2.5, 2.5), ("4", 4), ("0.5", 0.5), ("x", None), (True, None), (None, None), ((1,), None)],
)
def test_numbers_are_numbers_or_spell_them(value: Any, number: float | None) -> None:
    assert as_number(value) == number
    assert type(as_number(value)) is type(number)
    assert is_number(value) == (isinstance(value, (int, float)) and value is not True)


@pytest.mark.parametrize("value", [None, True, "x", 3, 2.5, (1, "a")])
def test_what_is_plain_stays(value: Any) -> None:
    assert plain("p", value) == value
    assert type(plain("p", value)) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, {"a": 1}, {1}, b"x", [1, math.inf]])
def test_what_cannot_be_a_value_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BadInput, match='"p"'):
        plain("p", value)


def test_a_value_is_found_by_itself_by_its_text_or_as_almost_the_same_number() -> None:
    index = {0.1: 0, "b": 1, True: 2, 1000.0: 3}
    assert [find("p", index, said) for said in (0.1, "0.1", 0.1 * (1 + 1e-10), "b", "True")] == [
        0,
        0,
        0,
        1,
        2,
    ]
    assert find("p", index, "1e3") == 3
    for stranger in (0.1 * (1 + 1e-8), "c", 0.11):
        with pytest.raises(BadInput, match='Unknown value of "p"'):
            find("p", index, stranger)


def test_places_between_the_bounds_and_at_them() -> None:
    assert [place(value, 2.0, 6.0, log=False) for value in (2.0, 3.0, 6.0)] == [0.0, 0.25, 1.0]
    assert place(10.0, 1.0, 1000.0, log=True) == pytest.approx(1 / 3)
    assert place(5.0, 5.0, 5.0, log=False) == 0.0
    assert [place(value, 2.0, 6.0, log=False) for value in (1.0, 7.0)] == [0.0, 1.0]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("u", [0.0, 0.3, 1.0])
def test_a_place_has_its_value(u: float, log: bool) -> None:
    value = at(u, 2.0, 50.0, log)
    assert 2.0 <= value <= 50.0
    assert place(value, 2.0, 50.0, log) == pytest.approx(u)


def test_a_column_has_the_places_of_its_values_and_none_outside() -> None:
    for log in (False, True):
        column = places(np.array([1.9, 2.0, 10.0, 50.0, 50.1]), 2.0, 50.0, log)
        assert np.isnan(column[[0, 4]]).all()
        assert column[1:4] == pytest.approx([place(value, 2.0, 50.0, log) for value in (2.0, 10.0, 50.0)])
    assert places(np.array([4.0, 5.0, 6.0]), 5.0, 5.0, False)[1] == 0.0
    assert np.isnan(places(np.array([4.0, 5.0, 6.0]), 5.0, 5.0, False)[[0, 2]]).all()


@pytest.mark.parametrize(
    ("outside", "inside"), [(-0.25, 0.25), (0.0, 0.0), (1.0, 1.0), (1.25, 0.75), (2.25, 0.25), (-1.25, 0.75)]
)
def test_a_step_beyond_an_end_is_folded_back(outside: float, inside: float) -> None:
    assert _reflect(outside) == pytest.approx(inside)


def test_an_integer_ends_at_its_last_step() -> None:
    stepped = Integer("n", 1, 10, step=4)
    assert (stepped.high, stepped.size, stepped.values) == (9, 3, (1, 5, 9))
    assert np.isnan(stepped.encode_many(np.array([0.0, 4.0, 10.0, 13.0]))).all()
    assert stepped.encode_many(np.array([1.0, 5.0, 9.0])).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(BadInput, match="in steps of 4"):
        stepped.check(10)
    assert Integer("n", 3, 3).size == 1
    assert Integer("n", 3, 3).neighbours(3, rng_for(1)) == 3


@pytest.mark.parametrize("log", [False, True])
def test_the_ends_of_the_unit_interval_are_the_ends_of_a_range(log: bool) -> None:
    whole, real = Integer("n", 2, 9, log=log), Real("x", 2.0, 9.0, log=log)
    assert [whole.from_unit(u) for u in (0.0, 1.0 - 1e-12, 1.0)] == [2, 9, 9]
    assert [real.from_unit(u) for u in (0.0, 1.0)] == pytest.approx([2.0, 9.0])
    assert [real.check(value) for value in (2.0, 9)] == [2.0, 9.0]
    for beyond in (2.0 - 1e-9, 9.0 + 1e-9):
        with pytest.raises(BadInput, match="from 2 to 9"):
            real.check(beyond)


def test_steps_at_the_ends_lead_inwards() -> None:
    sizes = Ordinal("n", [1, 2, 3])
    assert {sizes.neighbours(1, rng_for(seed)) for seed in range(20)} == {2}
    assert {sizes.neighbours(3, rng_for(seed)) for seed in range(20)} == {2}
    assert {sizes.neighbours(2, rng_for(seed)) for seed in range(20)} == {1, 3}
    kinds = Categorical("k", ["a", "b", "c"])
    for here in "abc":
        assert {kinds.neighbours(here, rng_for(seed)) for seed in range(40)} == set("abc") - {here}
    assert Categorical("k", ["a"]).neighbours("a", rng_for(1)) == "a"
    assert Ordinal("k", ["a"]).neighbours("a", rng_for(1)) == "a"


def test_listed_values_share_the_unit_interval_fairly() -> None:
    kinds = Categorical("k", ["a", "b", "c", "d"])
    assert [kinds.from_unit(u) for u in (0.0, 0.2499, 0.25, 0.74, 0.75, 1.0)] == list("aabcdd")


def test_more_than_eight_values_are_not_all_said() -> None:
    assert str(Ordinal("n", range(8))) == "n: 0, 1, 2, 3, 4, 5, 6, 7 (in order)"
    assert str(Ordinal("n", range(9))) == "n: 0, 1, 2, 3, 4, 5, 6, 7, … (9 values) (in order)"
    assert str(Real("x", 0.5, 2, log=True)) == "x: 0.5 to 2 (log scale)"
    assert str(Integer("n", 1, 4, log=True)) == "n: 1 to 4 (log scale)"


def test_features_have_names() -> None:
    parameters = [
        Categorical("k", ["a", "b", "c"]),
        Categorical("t", [0, 1]),
        Constant("c", 1),
        Real("x", 0, 1),
    ]
    encoder = Encoder(parameters)
    assert encoder.feature_names == ("k=a", "k=b", "k=c", "t=1", "x")
    assert encoder.groups == [("k", slice(0, 3)), ("t", slice(3, 4)), ("c", slice(4, 4)), ("x", slice(4, 5))]
    assert encoder.width == 5
    assert Encoder([]).width == 0


def test_a_constant_has_no_feature_and_hides_no_other() -> None:
    encoder = Encoder([Constant("c", 1), Real("x", 0, 4), Categorical("t", [0, 1])])
    assert encoder.encode([{"c": 1, "x": 1.0, "t": 1}, {"c": 1, "x": 4.0, "t": 0}]).tolist() == [
        [0.25, 1.0],
        [1.0, 0.0],
    ]


def test_two_categories_are_as_far_apart_as_the_ends_of_a_range() -> None:
    encoder = Encoder([Categorical("k", ["a", "b", "c"]), Real("x", 0, 1)])
    rows = encoder.encode(
        [{"k": "a", "x": 0.0}, {"k": "b", "x": 0.0}, {"k": "a", "x": 1.0}, {"k": "c", "x": 1.0}]
    )
    assert encoder.distances(rows, rows[0]) == pytest.approx([0.0, 1.0, 1.0, math.sqrt(2.0)])


def test_rows_with_wrong_or_missing_values_are_refused() -> None:
    encoder = Encoder([Categorical("k", ["a", "b", "c"]), Integer("n", 1, 9, step=2)])
    with pytest.raises(BadInput, match='no value for "n"'):
        encoder.encode([{"k": "a"}])
    with pytest.raises(BadInput, match='The value 4 of "n"'):
        encoder.encode([{"k": "a", "n": 3}, {"k": "a", "n": 4}])
    with pytest.raises(BadInput, match='value of "k" "d"'):
        encoder.encode([{"k": "d", "n": 3}])
    assert encoder.encode([{"k": "b", "n": "5"}]).tolist() == [[0.0, 1.0, 0.0, 0.5]]


def test_a_seed_and_each_name_make_their_own_numbers() -> None:
    def drawn(seed: int, *names: str | int) -> int:
        return int(rng_for(seed, *names).integers(2**60))

    same = {drawn(7, "a", 1), drawn(7, "a", 1)}
    others = {
        drawn(8, "a", 1),
        drawn(7, "b", 1),
        drawn(7, "a", 2),
        drawn(7, "a"),
        drawn(7),
        drawn(-7, "a", 1),
    }
    assert len(same) == 1
    assert len(same | others) == 7
