"""Clusters and fleets, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.catalog import cluster_text, parse_cluster, parse_fleet
from prudent.cloud.catalog import parse_fleet as from_catalog
from prudent.core.errors import BadInput


@given(st.integers(1, 10_000), st.sampled_from(["m5.large", "t2.nano", "my-server", "p4d.24xlarge"]))
def test_a_cluster_is_read_as_it_was_written(count: int, name: str) -> None:
    assert parse_cluster(cluster_text(count, name)) == (count, name)


@pytest.mark.parametrize("text", ["4*m5.large", " 4 * m5.large ", "4* m5.large"])
def test_spaces_do_not_matter(text: str) -> None:
    assert parse_cluster(text) == (4, "m5.large")


def test_a_type_alone_is_one_machine() -> None:
    assert parse_cluster("m5.large") == (1, "m5.large")


@pytest.mark.parametrize("text", ["", "4*", "*m5.large", "4*m5*large", "4 m5.large", "4*m5.large,"])
def test_what_is_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="count\\*type"):
        parse_cluster(text)


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "many", "²"])
def test_what_is_no_count_is_refused(count: str) -> None:
    with pytest.raises(BadInput, match="whole number"):
        parse_cluster(f"{count}*m5.large")


def test_a_fleet_keeps_its_order() -> None:
    assert parse_fleet("8*m3.medium, 3*m3.2xlarge,m5.large") == [
        (8, "m3.medium"),
        (3, "m3.2xlarge"),
        (1, "m5.large"),
    ]
    assert from_catalog is parse_fleet


@pytest.mark.parametrize("text", ["", "  ", "8*m3.medium,", ",m3.medium", "8*m3.medium,,m5.large"])
def test_what_is_no_fleet_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_fleet(text)
