import itertools
import json
import math
import pickle
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.parameters import Categorical, Constant, Ordinal
from prudent.core.ranges import Integer, Real
from prudent.core.rules import Rule
from prudent.core.seeds import rng_for
from prudent.core.space import Space

RULES = [
    None,
    "n <= 6",
    "n * batch <= 64 or vm == 'a'",
    "vm != 'b' and n > 2 and batch in (16, 32)",
    "n % 2 == 0 and not (vm == 'c' and batch > 16)",
    "n > 100",
]


def finite(rule: str | None = None) -> Space:
    return Space(
        [
            Categorical("vm", ["a", "b", "c"]),
            Integer("n", 1, 8),
            Ordinal("batch", [16, 32, 64]),
            Constant("k", 1),
        ],
        rule=rule,
    )


@pytest.fixture
def mixed() -> Space:
    return Space.parse(
        {
            "vm": ["a", "b", "c"],
            "rate": {"log": [1e-5, 0.1]},
            "n": {"integer": [1, 9]},
            "flag": [True, False],
            "k": 3,
        }
    )


def brute(space: Space, rule: str | None) -> list[dict[str, Any]]:
    combinations = itertools.product(*(parameter.values for parameter in space.parameters))
    all_of_them = [dict(zip(space.names, values, strict=True)) for values in combinations]
    return [one for one in all_of_them if rule is None or eval(rule, {}, one)]


@pytest.mark.parametrize("rule", RULES)
def test_enumeration_is_what_the_rule_leaves_in_order(rule: str | None) -> None:
    space = finite(rule)
    assert list(space.configurations()) == brute(space, rule)
    assert space.count() == len(brute(space, rule))
    assert (space.size, space.finite) == (72, True)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 12))
def test_count_matches_enumeration(sizes: list[int], bound: int) -> None:
    parameters = [Integer(f"p{place}", 1, size) for place, size in enumerate(sizes)]
    space = Space(parameters, rule=" + ".join(p.name for p in parameters) + f" <= {bound}")
    assert space.count() == sum(1 for _ in space.configurations())
    assert Space(parameters).count() == Space(parameters).size == math.prod(sizes)


def test_a_callable_can_be_the_rule() -> None:
    space = Space(finite().parameters, rule=lambda c: c["n"] * c["batch"] < 64)
    assert space.count() == len([c for c in brute(space, None) if c["n"] * c["batch"] < 64])
    with pytest.raises(BadInput, match="lambda"):
        space.check({"vm": "a", "n": 8, "batch": 64})


def test_a_vast_space_yields_at_once_and_skips_what_a_rule_excludes() -> None:
    names = "abcd"
    free = Space([Integer(name, 1, 1000) for name in names])
    assert next(free.configurations()) == dict.fromkeys(names, 1)
    ruled = Space([Integer(name, 1, 1000) for name in names], rule="d > 0 and a >= 900 and b == 7")
    assert next(ruled.configurations()) == {"a": 900, "b": 7, "c": 1, "d": 1}
    assert next(Space([Integer("n", 1, 10**12)]).configurations()) == {"n": 1}
    assert (free.size, free.count()) == (10**12, None)


def test_counting_stops_at_the_limit() -> None:
    assert finite().count(limit=71) is None
    assert finite("n > 2").count(limit=5) is None
    assert finite("n > 2").count(limit=100) == 54


def test_an_infinite_space_cannot_be_listed(mixed: Space) -> None:
    assert (mixed.size, mixed.finite, mixed.count()) == (None, False, None)
    with pytest.raises(BadInput, match='infinite in "rate"'):
        mixed.configurations()


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"bach": 16}, r'Unknown parameter "bach"\. Did you mean "batch"'),
        ({"vm": "d"}, "Choose one of: a, b, c"),
        ({"n": 9}, "from 1 to 8"),
        ({"n": 7}, r"The rule \(n <= 6\) excludes vm=a, n=7"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_remedy(change: dict[str, Any], remedy: str) -> None:
    good = {"vm": "a", "n": 1, "batch": 16}
    space = finite("n <= 6")
    assert space.check(good) == {**good, "k": 1}
    assert good in space
    assert {**good, **change} not in space
    with pytest.raises(BadInput, match=remedy):
        space.check({**good, **change})


def test_a_missing_value_is_named() -> None:
    with pytest.raises(BadInput, match='"batch" has no value'):
        finite().check({"vm": "a", "n": 1})
    with pytest.raises(BadInput, match='no value for "batch"'):
        finite().encode([{"vm": "a", "n": 1, "k": 1}])


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        ("m > 1", 'Did you mean "vm"'),
        ("vm == a", "in quotes"),
        ("vm == 'd'", "Choose one of: a, b, c"),
        ("batch == '16'", "write the value as 16"),
        ("vm.cores > 1", 'Unknown name "vm.cores"'),
    ],
)
def test_a_rule_is_checked_against_the_space(rule: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        finite(rule)


def test_rules_may_come_as_a_list() -> None:
    space = Space.parse({"a": [1, 2, 3], "b": [1, 2, 3]}, rule=["a < b or b == 3", "a != 2"])
    assert list(space.configurations()) == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 3, "b": 3}]
    with pytest.raises(BadInput, match='The rule "b >" cannot be read'):
        Space.parse({"a": [1, 2], "b": [1, 2]}, rule=["a < b", "b >"])


def test_a_space_needs_distinct_parameters() -> None:
    with pytest.raises(BadInput, match='"n" is given twice'):
        Space([Integer("n", 1, 2), Real("n", 0, 1)])
    with pytest.raises(BadInput, match="at least one"):
        Space([])


def test_the_key_does_not_depend_on_spelling_or_order() -> None:
    space = finite()
    key = space.key({"vm": "a", "n": 2, "batch": 16, "k": 1})
    assert key == '{"batch":16,"k":1,"n":2,"vm":"a"}'
    assert key == space.key({"batch": "16", "n": np.int64(2), "vm": "a"})
    assert Space(space.parameters[::-1]).key({"n": 2.0, "vm": "a", "batch": 16}) == key


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_keys_tell_configurations_apart_and_read_back(seed: int) -> None:
    space = Space(
        [Real("x", 0, 1), Categorical("layers", [(64,), (64, 64), None]), Integer("n", 1, 99, log=True)]
    )
    drawn = space.sample(20, rng_for(seed, "keys"))
    keys = [space.key(one) for one in drawn]
    assert len(set(keys)) == 20
    assert [space.check(json.loads(key)) for key in keys] == drawn


def test_features_are_named_and_grouped(mixed: Space) -> None:
    assert mixed.feature_names == ("vm=a", "vm=b", "vm=c", "rate", "n", "flag=False")
    assert mixed.width == 6
    assert mixed.groups[0] == ("vm", slice(0, 3))
    assert mixed.groups[-1] == ("k", slice(6, 6))
    one = {"vm": "b", "rate": 1e-3, "n": 5, "flag": False, "k": 3}
    np.testing.assert_allclose(mixed.encode([one]), [[0, 1, 0, 0.5, 0.5, 1]])
    assert mixed.encode([]).shape == (0, 6)
    assert mixed.encode(iter([one])).dtype == np.float64


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_encoding_many_is_encoding_each(seed: int) -> None:
    space = Space.parse(
        {
            "vm": ["a", "b", "c"],
            "rate": {"log": [1e-5, 0.1]},
            "n": {"integer": [3, 90], "step": 3, "log": True},
        }
    )
    drawn = space.sample(10, rng_for(seed, "encode"))
    features = space.encode(drawn)
    assert ((features >= 0) & (features <= 1)).all()
    each = [[f for p in space.parameters for f in p.encode(one[p.name])] for one in drawn]
    np.testing.assert_allclose(features, each, rtol=1e-12)


def test_encoding_understands_and_refuses_what_check_does(mixed: Space) -> None:
    one = {"vm": "b", "rate": 1e-3, "n": 5, "flag": False, "k": 3}
    spelt = {**one, "rate": "0.001", "n": np.int64(5), "flag": "False"}
    np.testing.assert_array_equal(mixed.encode([spelt]), mixed.encode([one]))
    for wrong in ({"rate": 2.0}, {"n": 5.5}, {"vm": "d"}, {"rate": math.nan}, {"n": None}, {"rate": "x"}):
        with pytest.raises(BadInput):
            mixed.encode([one, {**one, **wrong}])
    with pytest.raises(BadInput, match="into a list"):
        mixed.encode(one)  # type: ignore[arg-type]


def test_encoding_is_fast(mixed: Space) -> None:
    many = mixed.sample(1000, rng_for(1, "fast")) * 100
    begin = time.process_time()
    assert mixed.encode(many).shape == (100_000, 6)
    assert time.process_time() - begin < 0.8


class Machine:
    """A parameter of another layer: text values, several features, facts for rules."""

    name, finite, size, width = "cluster", True, 4, 2
    values = ("1*s", "2*s", "1*l", "2*l")
    fact_names = ("vcpus",)

    def check(self, value: Any) -> Any:
        if value not in self.values:
            raise BadInput(f"no cluster {value}; choose another")
        return value

    def encode(self, value: Any) -> tuple[float, ...]:
        return (float(value[0] == "2"), float(value[2] == "l"))

    def from_unit(self, u: float) -> Any:
        return self.values[int(u * 4)]

    def neighbours(self, value: Any, rng: np.random.Generator) -> Any:
        return self.values[(self.values.index(value) + 1) % 4]

    def facts(self, value: str) -> Mapping[str, Any]:
        return {"vcpus": int(value[0]) * (8 if value[2] == "l" else 2)}


def test_a_parameter_of_another_kind_joins() -> None:
    space = Space([Integer("n", 1, 4), Machine()], rule="cluster.vcpus * n <= 16 and cluster != '1*s'")
    allowed = list(space.configurations())
    assert allowed == [
        {"n": n, "cluster": cluster}
        for n in range(1, 5)
        for cluster, vcpus in (("2*s", 4), ("1*l", 8), ("2*l", 16))
        if n * vcpus <= 16
    ]
    assert space.feature_names == ("n", "cluster[0]", "cluster[1]")
    np.testing.assert_array_equal(space.encode([{"n": 1, "cluster": "2*l"}]), [[0, 1, 1]])
    assert all(space.check(one) == one for one in space.sample(5, rng_for(1, "machine")))
    with pytest.raises(BadInput, match=r'Did you mean "cluster\.vcpus"'):
        Space([Machine()], rule="cluster.vcpu > 3")


TABLE = [{"vm": vm, "n": n} for vm, ns in (("s", (8, 16, 32)), ("l", (1, 2, 4))) for n in ns]


def test_points_are_all_there_is() -> None:
    space = Space.from_points(TABLE)
    assert (space.size, space.count(), space.finite) == (6, 6, True)
    assert list(space.configurations()) == TABLE
    assert space.check({"vm": "l", "n": "4"}) == {"vm": "l", "n": 4}
    with pytest.raises(BadInput, match=r"no run at vm=l, n=8; choose a listed one, such as vm=l, n=4"):
        space.check({"vm": "l", "n": 8})


def test_points_are_a_set_and_obey_the_rule() -> None:
    parameters = Space.from_points(TABLE).parameters
    space = Space(parameters, rule=Rule.parse("n > 2"), points=[*TABLE, TABLE[0]])
    assert (space.size, space.count()) == (6, 4)
    assert all(one["n"] > 2 for one in space.configurations())
    with pytest.raises(BadInput, match="empty"):
        Space(parameters, points=[])
    with pytest.raises(BadInput, match=r"Choose one of"):
        Space(parameters, points=[{"vm": "s", "n": 5}])


def test_points_even_make_an_infinite_space_finite() -> None:
    space = Space([Real("x", 0, 1)], points=[{"x": 0.25}, {"x": 0.5}])
    assert (space.size, space.finite) == (2, True)
    assert list(space.configurations()) == [{"x": 0.25}, {"x": 0.5}]


def test_a_table_may_name_its_columns() -> None:
    rows = [{"id": k, "vm": "ab"[k % 2], "n": k} for k in range(4)]
    assert Space.from_points(rows, ["vm", "n"]).names == ("vm", "n")
    with pytest.raises(BadInput, match=r'Row 1 of the table: Unknown column "vmm"\. Did you mean "vm"'):
        Space.from_points(rows, ["vmm"])
    with pytest.raises(BadInput, match="no rows"):
        Space.from_points([])


def test_what_a_caller_does_to_a_configuration_stays_with_the_caller() -> None:
    space = Space.from_points(TABLE)
    for one in (next(space.configurations()), space.points[0], space.sample(1, rng_for(1))[0]):  # type: ignore[index]
        one["n"] = 99
    assert list(space.configurations()) == TABLE


def test_fingerprints_tell_spaces_apart() -> None:
    spaces = [finite(), finite("n <= 6"), Space(finite().parameters[:2]), Space.from_points(TABLE)]
    assert len({space.fingerprint() for space in spaces}) == 4
    assert finite("n <= 6").fingerprint() == finite("n <= 6").fingerprint()


def test_a_space_says_itself() -> None:
    assert str(finite("n <= 6")).splitlines() == [
        "vm: a, b, c",
        "n: 1 to 8",
        "batch: 16, 32, 64 (in order)",
        "k: 1 (constant)",
        "rule: n <= 6",
    ]
    assert repr(finite()) == "Space(vm, n, batch, k; size 72)"
    assert finite()["n"] == Integer("n", 1, 8)
    with pytest.raises(BadInput, match='Did you mean "batch"'):
        finite()["bach"]


def test_a_space_can_be_sent_to_another_process() -> None:
    space = pickle.loads(pickle.dumps(finite("n <= 6 and vm != 'a'")))
    assert list(space.configurations()) == list(finite("n <= 6 and vm != 'a'").configurations())
    assert space.fingerprint() == finite("n <= 6 and vm != 'a'").fingerprint()
