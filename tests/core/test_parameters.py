import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter
from prudent.core.ranges import Integer, Real
from prudent.core.seeds import rng_for

texts = st.text("abcdefgh", min_size=1, max_size=5)
numbers = st.integers(1, 10_000) | st.floats(1e-6, 1e6)


@st.composite
def parameters(draw: st.DrawFn) -> Parameter:
    kind = draw(st.sampled_from(["categorical", "ordinal", "ranks", "integer", "real", "constant"]))
    log = draw(st.booleans())
    low = draw(st.integers(1, 1000))
    if kind == "categorical":
        return Categorical("p", draw(st.lists(texts | st.none(), min_size=1, max_size=6, unique=True)))
    if kind == "ordinal":
        return Ordinal("p", draw(st.lists(numbers, min_size=1, max_size=6, unique=True)), log=log)
    if kind == "ranks":
        return Ordinal("p", draw(st.lists(texts, min_size=1, max_size=6, unique=True)))
    if kind == "integer":
        return Integer("p", low, low + draw(st.integers(0, 10**6)), log=log, step=draw(st.integers(1, 9)))
    if kind == "real":
        return Real("p", low, low + draw(st.floats(0.01, 1e6)), log=log)
    return Constant("p", draw(texts | numbers))


@settings(deadline=None)
@given(parameters(), st.floats(0, 1, exclude_max=True))
def test_a_drawn_value_is_allowed_and_canonical(parameter: Parameter, u: float) -> None:
    value = parameter.from_unit(u)
    assert parameter.check(value) == value
    assert type(parameter.check(value)) is type(value)


@settings(deadline=None)
@given(parameters(), st.floats(0, 1, exclude_max=True))
def test_features_have_the_width_and_lie_in_the_unit_interval(parameter: Parameter, u: float) -> None:
    features = parameter.encode(parameter.from_unit(u))
    assert len(features) == parameter.width
    assert all(0.0 <= feature <= 1.0 for feature in features)


@settings(deadline=None)
@given(parameters(), st.floats(0, 1, exclude_max=True), st.integers(0, 2**32))
def test_a_step_leads_to_another_allowed_value(parameter: Parameter, u: float, seed: int) -> None:
    value = parameter.from_unit(u)
    moved = parameter.neighbours(value, rng_for(seed, "step"))
    assert parameter.check(moved) == moved
    if parameter.finite and parameter.size != 1:
        assert moved != value


@settings(deadline=None)
@given(parameters())
def test_a_finite_parameter_lists_its_values(parameter: Parameter) -> None:
    if parameter.size is not None and parameter.size < 2000:
        assert isinstance(parameter.values, tuple)
        assert len(set(parameter.values)) == parameter.size
        assert [parameter.check(value) for value in parameter.values] == list(parameter.values)
        width_tells = len({parameter.encode(value) for value in parameter.values})
        assert width_tells == parameter.size or isinstance(parameter, (Integer, Ordinal))


@settings(deadline=None)
@given(parameters(), st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=8))
def test_ordered_values_keep_their_order_in_the_features(parameter: Parameter, us: list[float]) -> None:
    if not isinstance(parameter, (Categorical, Constant)):
        places = [parameter.encode(parameter.from_unit(u))[0] for u in sorted(us)]
        assert places == sorted(places)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(0, 60), st.booleans())
def test_every_integer_can_be_drawn(low: int, more: int, log: bool) -> None:
    parameter = Integer("n", low, low + more, log=log)
    assert {parameter.from_unit(u) for u in np.linspace(0, 1, 4_000, endpoint=False)} == set(parameter.values)


def test_categories_have_a_column_each_but_two_share_one() -> None:
    assert Categorical("k", ["a", "b", "c"]).encode("b") == (0.0, 1.0, 0.0)
    assert [Categorical("k", [False, True]).encode(value) for value in (False, True)] == [(0.0,), (1.0,)]


def test_ordinal_numbers_lie_at_their_value_and_texts_at_their_rank() -> None:
    assert Ordinal("n", [64, 0, 16]).values == (0, 16, 64)
    assert Ordinal("n", [0, 16, 64]).encode(16) == (0.25,)
    assert Ordinal("n", [1, 10, 1000], log=True).encode(10)[0] == pytest.approx(1 / 3)
    assert Ordinal("n", ["S", "M", "L"]).encode("M") == (0.5,)


def test_log_integers_prefer_small_values() -> None:
    parameter = Integer("n", 1, 1000, log=True)
    drawn = [parameter.from_unit(u) for u in rng_for(1, "log").random(3000)]
    assert 25 < np.median(drawn) < 40


@pytest.mark.parametrize("said", ["0.001", 1e-3, np.float64(0.001), 0.001 * (1 + 1e-12)])
def test_a_value_may_be_spelt_in_several_ways(said: object) -> None:
    assert Ordinal("rate", [0.1, 0.001]).check(said) == 0.001


def test_numpy_lists_and_bools_become_plain() -> None:
    assert type(Ordinal("n", np.array([1, 2])).check(np.int64(2))) is int
    assert Categorical("layers", [[64], [64, 64]]).check([64, 64]) == (64, 64)
    assert Categorical("flag", [True, False]).check("True") is True
    assert Ordinal("flag", [0, 1]).check(True) == 1
    assert Integer("n", 1, 9).check(3.0) == 3
    assert Integer("n", 1, 9).check("4") == 4
    assert Constant("n", 4).check("4") == 4


@pytest.mark.parametrize(
    ("parameter", "value", "remedy"),
    [
        (Categorical("vm", ["m5.large", "c5.large"]), "m5.lage", 'Did you mean "m5.large"'),
        (Ordinal("batch", [16, 256]), 17, "Choose one of: 16, 256"),
        (Integer("n", 1, 9, step=2), 4, "one from 1 to 9 in steps of 2"),
        (Integer("n", 1, 9), 2.5, "whole numbers"),
        (Integer("n", 1, 9), "inf", "whole numbers"),
        (Integer("n", 1, 9), 10, "from 1 to 9"),
        (Real("x", 0, 1), 1.5, "a number from 0 to 1"),
        (Real("x", 0, 1), math.nan, "not a finite number"),
        (Real("x", 0, 1), "nan", "a number from 0 to 1"),
        (Real("x", 0, 1), "much", "a number from 0 to 1"),
        (Constant("n", 4), 5, "Choose one of: 4"),
        (Categorical("k", ["a"]), {"a": 1}, "cannot be a value"),
    ],
)
def test_a_wrong_value_is_refused_with_the_remedy(parameter: Parameter, value: object, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        parameter.check(value)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Categorical("k", []),
        lambda: Categorical("k", "abc"),
        lambda: Categorical("k", ["a", "a"]),
        lambda: Categorical("", ["a"]),
        lambda: Ordinal("k", [1, math.nan]),
        lambda: Ordinal("k", [0, 1], log=True),
        lambda: Ordinal("k", ["a", "b"], log=True),
        lambda: Integer("n", 5, 1),
        lambda: Integer("n", 0, 9, log=True),
        lambda: Integer("n", 1, 9, step=0),
        lambda: Integer("n", 1.5, 9),
        lambda: Real("x", 1, 1),
        lambda: Real("x", 0, 1, log=True),
        lambda: Real("x", 0, math.inf),
        lambda: Real("x", -1.7e308, 1.7e308),
        lambda: Real("x", "low", 1),
        lambda: Real("x", 0, 1).values,
    ],
)
def test_an_impossible_parameter_cannot_be_built(build: object) -> None:
    with pytest.raises(BadInput):
        build()  # type: ignore[operator]


def test_a_huge_integer_range_costs_nothing() -> None:
    parameter = Integer("n", 0, 10**15)
    assert parameter.size == 10**15 + 1
    assert parameter.check(10**14) == 10**14


def test_parameters_say_themselves() -> None:
    said = [Categorical("k", ["a", "b"]), Ordinal("b", [1, 10], log=True), Integer("n", 1, 9, step=2)]
    assert [str(parameter) for parameter in [*said, Real("x", 0, 1), Constant("c", 3)]] == [
        "k: a, b",
        "b: 1, 10 (log scale)",
        "n: 1 to 9, steps of 2",
        "x: 0 to 1",
        "c: 3 (constant)",
    ]


class _Still:
    """Chance that moves nothing, and then takes the first or the last of what there is."""

    def __init__(self, place: int) -> None:
        self.place = place

    def normal(self, mean: float, deviation: float) -> float:
        del deviation
        return mean

    def choice(self, options: tuple[int, ...]) -> int:
        return options[self.place]


@pytest.mark.parametrize(("place", "beside"), [(0, 4), (-1, 6)])
def test_a_step_that_leads_nowhere_goes_to_the_value_beside(place: int, beside: int) -> None:
    assert Integer("n", 1, 9).neighbours(5, _Still(place)) == beside  # type: ignore[arg-type]
