"""Catalog machines have the one-minute minimum."""

from __future__ import annotations

import pytest

from prudent.cloud.billing import MINIMUM_S
from prudent.cloud.catalog import Catalog, mips_of, speed_of
from prudent.core.money import Price


def test_a_started_machine_is_paid_for_a_minute() -> None:
    price = Price(3.6, "2025-01-01", "catalog", MINIMUM_S)
    assert MINIMUM_S == 60
    assert price.cost_usd(1) == price.cost_usd(60) == pytest.approx(0.06)
    assert price.cost_usd(90) == pytest.approx(0.09)


def test_every_machine_of_a_cluster_is_paid() -> None:
    price = Catalog.load()["m5.large"].price.times(4)
    assert price.usd_per_h == pytest.approx(0.384)
    assert price.cost_usd(1) == pytest.approx(4 * 0.096 / 60)
    assert price.date == Catalog.load()["m5.large"].price.date


@pytest.mark.parametrize(
    ("older", "newer"), [("m3", "m4"), ("m5", "m6i"), ("t2", "t3"), ("p3", "p4d"), ("c6i", "c7i")]
)
def test_a_generation_is_fifteen_per_cent(older: str, newer: str) -> None:
    assert speed_of(newer) / speed_of(older) == pytest.approx(1.15)


def test_families_nobody_knows_run_at_reference_speed() -> None:
    assert speed_of("desk") == speed_of("m3") == speed_of("m1") == 1.0


def test_more_vcpus_help_less_than_in_proportion() -> None:
    assert mips_of(1, 1.0) < mips_of(2, 1.0) < 2 * mips_of(1, 1.0)
