"""A price answers what a run costs and how long money lasts."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.money import ROUNDING_USD, Price

rates = st.floats(min_value=0.001, max_value=100.0)
minimums = st.sampled_from([0.0, 1.0, 60.0, 3600.0])


def price(usd_per_h: float = 0.096, minimum_s: float = 0.0) -> Price:
    return Price(usd_per_h, "2025-01-01", "test", minimum_s)


def test_an_hour_costs_the_hourly_price() -> None:
    assert price().cost_usd(3600) == pytest.approx(0.096)


def test_short_runs_cost_the_minimum() -> None:
    billed = price(3.6, minimum_s=60)
    assert billed.cost_usd(1) == pytest.approx(0.06)
    assert billed.cost_usd(60) == pytest.approx(0.06)
    assert billed.cost_usd(61) == pytest.approx(0.061)


def test_a_run_that_never_started_costs_nothing() -> None:
    assert price(minimum_s=60).cost_usd(0) == 0.0


def test_a_free_price_lasts_for_ever() -> None:
    free = price(0.0, minimum_s=60)
    assert free.seconds_for(0) == math.inf
    assert free.cost_usd(math.inf) == 0.0


def test_money_below_the_minimum_buys_no_time() -> None:
    billed = price(3.6, minimum_s=60)
    assert billed.seconds_for(0.0599) == 0.0
    assert billed.seconds_for(0.06) == 60.0
    assert billed.seconds_for(0.06 - ROUNDING_USD / 10) == 60.0
    assert billed.seconds_for(0.12) == pytest.approx(120)


def test_no_money_buys_no_time() -> None:
    assert price().seconds_for(0.0) == 0.0
    assert price().seconds_for(-1.0) == 0.0


@given(rate=rates, minimum_s=minimums, usd=st.floats(min_value=0.0, max_value=1e4))
def test_what_money_buys_never_costs_more_than_that_money(rate: float, minimum_s: float, usd: float) -> None:
    billed = price(rate, minimum_s)
    assert billed.cost_usd(billed.seconds_for(usd)) <= usd * (1 + 1e-12) + ROUNDING_USD


@given(rate=rates, minimum_s=minimums, seconds=st.floats(min_value=1e-3, max_value=1e6))
def test_the_bill_pays_for_the_run(rate: float, minimum_s: float, seconds: float) -> None:
    billed = price(rate, minimum_s)
    lasts = billed.seconds_for(billed.cost_usd(seconds))
    assert lasts >= max(seconds, minimum_s) * (1 - 1e-9)


@given(rate=rates, count=st.integers(min_value=1, max_value=100), seconds=st.floats(0.0, 1e6))
def test_many_machines_cost_as_many_times(rate: float, count: int, seconds: float) -> None:
    one = price(rate, minimum_s=60)
    assert one.times(count).cost_usd(seconds) == pytest.approx(count * one.cost_usd(seconds))


def test_a_cluster_keeps_date_source_and_minimum() -> None:
    cluster = price(0.1, minimum_s=60).times(3)
    assert (cluster.date, cluster.source, cluster.minimum_s) == ("2025-01-01", "test", 60)


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf])
def test_an_impossible_price_is_refused_with_its_source(wrong: float) -> None:
    with pytest.raises(BadInput, match="table runs"):
        Price(wrong, "2025-01-01", "table runs.csv")


@pytest.mark.parametrize("wrong", [-60.0, math.nan, math.inf])
def test_an_impossible_minimum_is_refused(wrong: float) -> None:
    with pytest.raises(BadInput, match="minimum"):
        Price(1.0, "2025-01-01", "test", minimum_s=wrong)


def test_a_date_is_iso_or_unknown() -> None:
    assert Price(1.0, "", "an old table").date == ""
    with pytest.raises(BadInput, match="2025-01-31"):
        Price(1.0, "January", "test")


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_impossible_times_are_refused(wrong: float) -> None:
    with pytest.raises(BadInput, match="seconds"):
        price().cost_usd(wrong)


def test_impossible_amounts_are_refused() -> None:
    with pytest.raises(BadInput, match="not a number"):
        price().seconds_for(math.nan)
    with pytest.raises(BadInput, match="machines"):
        price().times(-1)


@given(rate=rates, minimum_s=minimums)
def test_prices_survive_a_journal(rate: float, minimum_s: float) -> None:
    before = price(rate, minimum_s)
    assert Price.from_dict(json.loads(json.dumps(before.to_dict()))) == before


@pytest.mark.parametrize(
    ("record", "says"),
    [({"usd_per_h": 1.0}, "lacks 'date'"), ({**price().to_dict(), "usd_per_h": "dear"}, "damaged")],
)
def test_a_damaged_record_is_refused(record: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Price.from_dict(record)


def test_the_minimum_is_paid_at_once_and_no_second_is_lost_beside_it() -> None:
    billed = price(3.6, minimum_s=60)
    assert billed.seconds_for(0.06 - 2 * ROUNDING_USD) == 0.0
    assert billed.seconds_for(0.0605) == pytest.approx(60.5)
    assert billed.cost_usd(59.999) == billed.cost_usd(60) < billed.cost_usd(60.001)
    assert price(3.6).cost_usd(0.001) == pytest.approx(1e-6)


def test_no_machines_cost_nothing() -> None:
    assert price().times(0).usd_per_h == 0.0
    assert price().times(1) == price()


def test_rounding_buys_no_time_without_a_minimum() -> None:
    assert price(3.6).seconds_for(ROUNDING_USD / 2) == pytest.approx(ROUNDING_USD / 2 * 1000)
    assert price(3.6).seconds_for(-ROUNDING_USD / 2) == 0.0


BILLED = Price(3.6, "", "test", minimum_s=60, step_s=10, boot_s=30, release_s=5)  # 0.001 $ a second


@pytest.mark.parametrize(
    ("run_s", "billed_s"), [(0, 0), (0.1, 60), (25, 60), (25.1, 70), (35, 70), (100, 140)]
)
def test_a_bill_has_minimum_boot_give_back_and_whole_steps(run_s: float, billed_s: float) -> None:
    assert BILLED.bill_usd(run_s) == pytest.approx(billed_s * 0.001)


def test_the_least_bill_is_that_of_the_shortest_run() -> None:
    assert BILLED.least_usd == pytest.approx(0.06)
    assert Price(3.6, "", "test", minimum_s=60, boot_s=90).least_usd == pytest.approx(0.09)
    assert price(3.6).least_usd == 0.0


@given(
    rate=rates,
    minimum_s=minimums,
    step_s=st.sampled_from([0.0, 1.0, 3600.0]),
    boot_s=st.floats(0, 500),
    usd=st.floats(min_value=0.0, max_value=1e4),
)
def test_a_run_that_lasts_as_long_as_its_money_costs_no_more_than_that(
    rate: float, minimum_s: float, step_s: float, boot_s: float, usd: float
) -> None:
    billed = Price(rate, "", "test", minimum_s, step_s, boot_s, release_s=3.0)
    longest_s = billed.lasts_s(usd)
    # By hand, as a cloud would: from the order to the give-back, in whole steps.
    there_s = max(longest_s + boot_s + 3.0, minimum_s)
    paid_s = math.ceil(there_s / step_s - 1e-6) * step_s if step_s else there_s
    assert longest_s == 0 or paid_s * rate / 3600 <= usd * (1 + 1e-9) + ROUNDING_USD


def test_a_price_as_it_was_written_before_is_read() -> None:
    old = {"usd_per_h": 0.1, "date": "", "source": "table", "minimum_s": 60.0}
    assert Price.from_dict(old).to_dict() == old
    assert Price.from_dict(json.loads(json.dumps(BILLED.to_dict()))) == BILLED


@pytest.mark.parametrize("part", ["step_s", "boot_s", "release_s"])
def test_times_of_a_price_are_checked(part: str) -> None:
    with pytest.raises(BadInput, match="give seconds, 0 or more"):
        Price(1.0, "", "test", **{part: -1.0})  # type: ignore[arg-type]
