"""The machine parameter: its values, features, steps, facts and prices, alone and inside a space."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.catalog import Catalog
from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.errors import BadInput
from prudent.core.parameters import Parameter
from prudent.core.space import Space

TYPES = ["m5.large", "m6i.large", "c5.xlarge", "r5.xlarge", "g4dn.xlarge", "t2.small"]
type_lists = st.lists(st.sampled_from(TYPES), min_size=1, unique=True)
count_lists = st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True)


def cluster(types: Any = ("m5.large", "c5.xlarge"), counts: Any = (1, 2, 4)) -> MachineParameter:
    return MachineParameter("cluster", types, counts)


def test_it_is_a_parameter() -> None:
    parameter: Parameter = cluster()
    assert parameter.finite
    assert parameter.size == len(parameter.values) == 6


def test_values_go_by_type_then_count() -> None:
    assert cluster(counts=[4, 1]).values == ("1*m5.large", "4*m5.large", "1*c5.xlarge", "4*c5.xlarge")


def test_wildcards_are_spread_and_named_once() -> None:
    assert cluster(["m3.large", "m3.*"]).types == ("m3.large", "m3.medium", "m3.xlarge", "m3.2xlarge")


@pytest.mark.parametrize(
    ("said", "meant"), [(4, (4,)), ("1..4", (1, 2, 3, 4)), (np.array([2, 1]).tolist(), (1, 2))]
)
def test_counts_in_every_form(said: Any, meant: tuple[int, ...]) -> None:
    assert cluster(counts=said).counts == meant


@pytest.mark.parametrize("wrong", [0, [], [1, 0], [1.5], [True], "many", "8..1", [2, 2], None, ["1"]])
def test_wrong_counts_are_refused(wrong: Any) -> None:
    with pytest.raises(BadInput, match="cluster"):
        cluster(counts=wrong)


def test_a_typing_error_does_not_list_millions() -> None:
    with pytest.raises(BadInput, match="fewer counts"):
        cluster(counts="1..1000000000")


def test_values_are_checked() -> None:
    parameter = cluster()
    assert parameter.check(" 2 * m5.large") == "2*m5.large"
    assert parameter.check("m5.large") == "1*m5.large"
    with pytest.raises(BadInput, match=r'machine type of "cluster" "m5\.lage"\. Did you mean "m5\.large"'):
        parameter.check("2*m5.lage")
    with pytest.raises(BadInput, match="cannot be 3 machines: choose one of 1, 2, 4"):
        parameter.check("3*m5.large")
    with pytest.raises(BadInput, match=r"write it like 1\*m5.large"):
        parameter.check(4)


def test_the_whole_cluster_is_priced_with_its_minimum() -> None:
    price = cluster().price("4*m5.large")
    assert price.usd_per_h == pytest.approx(0.384)
    assert (price.minimum_s, price.source) == (60, "catalog aws us-east-1")


@given(types=type_lists, counts=count_lists)
def test_features_are_in_the_unit_cube_and_tell_all_values_apart(types: list[str], counts: list[int]) -> None:
    parameter = cluster(types, counts)
    rows = [parameter.encode(value) for value in parameter.values]
    assert all(len(row) == parameter.width == len(parameter.feature_names) for row in rows)
    assert all(0.0 <= feature <= 1.0 for row in rows for feature in row)
    assert len(set(rows)) == parameter.size
    for column in zip(*rows, strict=True):
        assert min(column) == 0.0
        assert max(column) == 1.0


def test_features_follow_what_the_machines_are() -> None:
    parameter = MachineParameter("vm", ["m5.*"], [1, 2])
    assert parameter.feature_names == ("vm.vcpus", "vm.count", "vm.total_vcpus")  # price, memory say the same
    smaller, larger = parameter.encode("1*m5.large"), parameter.encode("2*m5.24xlarge")
    assert smaller == (0.0, 0.0, 0.0)
    assert larger == (1.0, 1.0, 1.0)


def test_machines_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("name,price_usd_per_h\na,1\nb,1\n")
    parameter = MachineParameter("vm", ["a", "b"], [1], Catalog.load(path))
    assert parameter.feature_names == ("vm.type",)
    assert parameter.encode("1*a") != parameter.encode("1*b")


def test_a_single_value_has_no_features() -> None:
    parameter = cluster("m5.large", 1)
    assert (parameter.width, parameter.encode("1*m5.large"), parameter.size) == (0, (), 1)


@given(types=type_lists, counts=count_lists)
def test_every_value_has_a_fair_share_of_the_unit_interval(types: list[str], counts: list[int]) -> None:
    parameter = cluster(types, counts)
    places = (np.arange(parameter.size) + 0.5) / parameter.size
    assert [parameter.from_unit(float(u)) for u in places] == list(parameter.values)
    assert parameter.from_unit(0.0) == parameter.values[0]
    assert parameter.from_unit(1.0) == parameter.values[-1]


@given(types=type_lists, counts=count_lists, seed=st.integers(0, 1000))
def test_a_step_changes_the_type_or_the_count_a_little(
    types: list[str], counts: list[int], seed: int
) -> None:
    parameter = cluster(types, counts)
    rng = np.random.default_rng(seed)
    value = parameter.values[seed % parameter.size]
    near = parameter.neighbours(value, rng)
    (count, machine), (new_count, new_machine) = parameter.cluster(value), parameter.cluster(near)
    assert (near == value) == (parameter.size == 1)
    assert count == new_count or machine == new_machine


def test_steps_reach_every_value() -> None:
    parameter = cluster(TYPES, [1, 2, 4, 8])
    rng = np.random.default_rng(0)
    seen, value = set(), parameter.values[0]
    for _ in range(3000):
        value = parameter.neighbours(value, rng)
        seen.add(value)
    assert seen == set(parameter.values)


def test_facts_are_those_of_the_whole_cluster() -> None:
    parameter = cluster(["g4dn.12xlarge"], [2])
    facts = parameter.facts("2*g4dn.12xlarge")
    assert set(facts) == set(parameter.fact_names)
    assert facts["type"] == "g4dn.12xlarge"
    assert (facts["family"], facts["count"], facts["vcpus"], facts["memory_gb"], facts["gpus"]) == (
        "g4dn",
        2,
        96,
        384,
        8,
    )
    assert facts["price_usd_per_h"] == pytest.approx(7.824)


def test_a_space_reads_it_from_yaml_and_rules_use_its_facts() -> None:
    spec = {"cluster": {"machine": {"types": ["m5.*", "c5.large"], "count": "1..4"}}, "batch": [16, 64]}
    space = Space.parse(spec, kinds={"machine": MachineParameter.parse}, rule="cluster.vcpus <= 8")
    clusters = {configuration["cluster"] for configuration in space.configurations()}
    assert clusters == {
        "1*m5.large", "2*m5.large", "3*m5.large", "4*m5.large", "1*m5.xlarge", "2*m5.xlarge", "1*m5.2xlarge",
        "1*c5.large", "2*c5.large", "3*c5.large", "4*c5.large",
    }  # fmt: skip


def test_short_forms() -> None:
    assert MachineParameter.parse("vm", "m5.large").values == ("1*m5.large",)
    assert MachineParameter.parse("vm", ["m3.*"]).size == 4
    assert MachineParameter.parse("vm", {"types": "m3.*", "count": 2}).values[0] == "2*m3.medium"


def test_own_prices_are_used(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("name,price_usd_per_h,date\nlab,0.02,2026-01-01\n")
    named = MachineParameter.parse("vm", {"types": ["lab"], "count": 2, "catalog": str(path)})
    handed = partial(MachineParameter.parse, catalog=Catalog.load(path))("vm", {"types": ["lab"], "count": 2})
    assert named == handed
    for parameter in (named, handed):
        assert parameter.price("2*lab").usd_per_h == pytest.approx(0.04)
        assert parameter.price("2*lab").date == "2026-01-01"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"types": ["m5.lagre"]}, 'Did you mean "m5.large"'),
        ({"types": ["q9.*"]}, "Unknown machine types"),
        ({"types": []}, "at least one"),
        ({"types": [4]}, "does not name its machine types"),
        ({"count": [1]}, "does not name its machine types"),
        ({"types": ["m5.large"], "counts": [1]}, 'Did you mean "count"'),
        ({"types": ["m5.large"], "catalog": "nowhere.csv"}, "cannot be read"),
        (4, "write {machine:"),
    ],
)
def test_wrong_specs_are_refused(spec: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        MachineParameter.parse("vm", spec)


def test_it_introduces_itself() -> None:
    assert str(cluster()) == "cluster: 1, 2, 4 of m5.large, c5.xlarge"
    assert str(MachineParameter("vm", ["m5.*"], "1..9")).endswith(
        "1, 2, 3, 4, 5, 6, 7, 8, … of m5.large, "
        "m5.xlarge, m5.2xlarge, m5.4xlarge, m5.8xlarge, m5.12xlarge, m5.16xlarge, m5.24xlarge"
    )
