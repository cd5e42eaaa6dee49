from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.parameters import Categorical, Ordinal
from prudent.core.ranges import Integer, Real
from prudent.core.seeds import rng_for
from prudent.core.space import Space

METHODS = ["random", "latin", "sobol"]
methods = st.sampled_from(METHODS)
seeds = st.integers(0, 2**32)


def keys(space: Space, drawn: list[dict[str, Any]]) -> set[str]:
    return {space.key(one) for one in drawn}


def grid(rule: str | None = None) -> Space:
    return Space(
        [Categorical("vm", ["a", "b", "c"]), Integer("n", 1, 8), Ordinal("b", [16, 32, 64])], rule=rule
    )


@given(methods, seeds, st.integers(0, 80))
def test_samples_of_a_finite_space_are_distinct_and_complete(method: str, seed: int, n: int) -> None:
    drawn = grid().sample(n, rng_for(seed, "sample"), method)
    assert len(drawn) == len(keys(grid(), drawn)) == min(n, 72)


@settings(max_examples=25, deadline=None)
@given(
    methods, seeds, st.integers(1, 30), st.sampled_from(["n <= 2", "n * b < 100", "vm == 'a' and b == 16"])
)
def test_the_rule_is_always_respected(method: str, seed: int, n: int, rule: str) -> None:
    space = grid(rule)
    drawn = space.sample(n, rng_for(seed, "sample"), method)
    assert all(space.check(one) == one for one in drawn)
    assert len(keys(space, drawn)) == len(drawn) == min(n, space.count() or 0)


@given(methods, seeds, st.integers(1, 40))
def test_a_seed_decides_the_sample(method: str, seed: int, n: int) -> None:
    space = Space([Real("x", 0, 1), Integer("n", 1, 9)], rule="x < 0.5 or n > 3")
    first, again = (space.sample(n, rng_for(seed, "s"), method) for _ in range(2))
    assert first == again
    assert first != space.sample(n, rng_for(seed + 1, "s"), method)


@pytest.mark.parametrize("n", [7, 16, 50])
def test_a_latin_hypercube_uses_every_strip_once(n: int) -> None:
    space = Space([Real("x", 0, 1), Real("y", 1e-3, 1e3, log=True)])
    features = space.encode(space.sample(n, rng_for(3, "latin"), "latin"))
    for column in features.T:
        assert sorted(np.floor(column * n).astype(int)) == list(range(n))


def test_sobol_covers_more_evenly_than_chance() -> None:
    from scipy.stats import qmc

    space = Space([Real(name, 0, 1) for name in "abc"])
    even, chance = (
        np.mean([qmc.discrepancy(space.encode(space.sample(64, rng_for(s, "d"), method))) for s in range(5)])
        for method in ("sobol", "random")
    )
    assert even < 0.5 * chance


def test_random_samples_are_fair() -> None:
    space = Space([Categorical("k", ["a", "b"]), Integer("n", 1, 2)])
    counts = {space.key(one): 0 for one in space.configurations()}
    for seed in range(400):
        counts[space.key(space.sample(1, rng_for(seed, "fair"))[0])] += 1
    assert all(70 < count < 130 for count in counts.values())


def test_everything_comes_in_a_random_order() -> None:
    drawn = grid().sample(100, rng_for(1, "all"))
    assert drawn != list(grid().configurations())
    assert keys(grid(), drawn) == keys(grid(), list(grid().configurations()))


@pytest.mark.parametrize("method", METHODS)
def test_a_needle_is_found_by_listing(method: str) -> None:
    space = Space([Integer("a", 1, 300), Integer("b", 1, 300)], rule="a == 177 and b == 299")
    assert space.sample(3, rng_for(1, "needle"), method) == [{"a": 177, "b": 299}]


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_that_leaves_nothing_is_named(method: str) -> None:
    for n in (1, 3, 100):
        with pytest.raises(BadInput, match=r"The rule \(n > 8\) excludes every configuration"):
            grid("n > 8").sample(n, rng_for(1, "none"), method)
    infinite = Space([Real("x", 0, 1)], rule="x > 1")
    with pytest.raises(BadInput, match=r"Only 0 of \d+ sampled.*\(x > 1\) excludes almost all; loosen it"):
        infinite.sample(2, rng_for(1, "none"), method)


def test_a_wrong_request_is_refused() -> None:
    with pytest.raises(BadInput, match='Did you mean "sobol"'):
        grid().sample(3, rng_for(1), "sobool")
    with pytest.raises(BadInput, match="zero or more"):
        grid().sample(-1, rng_for(1))


TABLE = [{"vm": vm, "n": n} for vm, ns in (("s", range(8, 64, 8)), ("l", range(1, 8))) for n in ns]


@given(methods, seeds, st.integers(1, 20))
def test_samples_of_a_table_are_its_rows(method: str, seed: int, n: int) -> None:
    space = Space.from_points(TABLE)
    drawn = space.sample(n, rng_for(seed, "table"), method)
    assert all(one in TABLE for one in drawn)
    assert len(keys(space, drawn)) == len(drawn) == min(n, len(TABLE))


def test_a_design_on_a_table_spreads() -> None:
    points = [{"x": x / 100, "y": y / 100} for x in range(0, 100, 5) for y in range(0, 100, 5)]
    space = Space([Real("x", 0, 1), Real("y", 0, 1)], points=points)
    for method in ("latin", "sobol"):
        features = space.encode(space.sample(10, rng_for(2, "spread"), method))
        assert all(len(np.unique(np.floor(column * 5))) == 5 for column in features.T)


@given(seeds, st.integers(1, 30))
def test_neighbours_are_distinct_allowed_and_elsewhere(seed: int, n: int) -> None:
    rng = rng_for(seed, "near")
    for space in (
        grid("n * b < 200"),
        Space.from_points(TABLE),
        Space([Real("x", 0, 1), Categorical("k", ["a", "b", "c"])]),
    ):
        here = space.sample(1, rng)[0]
        near = space.neighbours(here, rng, n)
        assert len(keys(space, near)) == len(near) <= n
        assert here not in near
        assert all(space.check(one) == one for one in near)


def test_neighbours_are_near() -> None:
    space = Space([Real(name, 0, 1) for name in "abcd"])
    here = dict.fromkeys("abcd", 0.5)
    near = space.neighbours(here, rng_for(1, "near"), 200)
    assert len(near) == 200
    distances = space.distances(space.encode(near), space.encode([here])[0])
    assert np.median(distances) < 0.15
    assert all(sum(one[name] != 0.5 for name in "abcd") <= 2 for one in near)


def test_neighbours_on_a_table_are_the_nearest_rows() -> None:
    space = Space.from_points([{"n": n} for n in range(10)])
    assert {one["n"] for one in space.neighbours({"n": 5}, rng_for(1), 2)} == {4, 6}


def test_a_lone_configuration_has_no_neighbours() -> None:
    assert Space.parse({"a": 1, "b": ["x"]}).neighbours({"a": 1, "b": "x"}, rng_for(1), 5) == []
    assert Space.from_points([{"a": 1}]).neighbours({"a": 1}, rng_for(1), 5) == []
