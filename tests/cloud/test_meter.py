"""The meter of rented machines, beside arithmetic of the test's own."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prudent.cloud.billing import RentalPeriod, affordable_s
from prudent.cloud.leases.lease import Lease, LeasedMachine, LeaseHolder
from prudent.cloud.meter import BudgetGuard, Meter
from prudent.cloud.providers.provider import LaunchOrder
from prudent.core.errors import RunFailed
from prudent.core.money import Price

LONG_S = 60.0
NOW_S = 10_000.0


@dataclass
class Kept:
    """Machines under a lease that the test writes."""

    record: Lease | None


def lease(price: Price, since: tuple[float, ...], until_s: float | None = None, wanted: int = 0) -> Kept:
    order = LaunchOrder("c", "run", "me", "m5.large", wanted or len(since), NOW_S)
    machines = tuple(LeasedMachine(str(number), since_s, price) for number, since_s in enumerate(since))
    wanted_s = min(since, default=NOW_S)
    return Kept(
        Lease(order, "cloud", {}, LeaseHolder(1, "", ""), wanted_s, NOW_S, price, "up", machines, until_s)
    )


def price(usd_per_s: float, minimum_s: float = 0.0, step_s: float = 0.0) -> Price:
    return Price(usd_per_s * 3600.0, "", "test", minimum_s, step_s)


def metered(*rentals: Kept, allowed_usd: float | None = None, ending_s: float = 0.0) -> Meter:
    meter = Meter(allowed_usd, ending_s=ending_s, clock=lambda: NOW_S)
    for rental in rentals:
        meter.add(rental)
    return meter


def test_every_machine_costs_its_own_time_at_its_own_price() -> None:
    meter = metered(
        lease(price(0.01), (NOW_S - 100, NOW_S - 50)),
        lease(price(0.5, minimum_s=60), (NOW_S - 10,)),
        lease(price(1.0), (NOW_S - 100,), until_s=NOW_S - 80),
        Kept(None),
    )
    assert meter.spent_usd() == pytest.approx(1.5 + 30.0 + 20.0)
    assert meter.usd_per_s == pytest.approx(0.52)
    meter.earlier_usd = 7.0
    assert meter.spent_usd() == pytest.approx(58.5)


def test_a_billing_minimum_that_was_paid_is_there_to_be_used() -> None:
    two = lease(price(0.001, minimum_s=60), (NOW_S - 10, NOW_S - 10))
    assert metered(two, allowed_usd=0.12).lasts_s() == pytest.approx(50.0, abs=1e-4)
    assert metered(two, allowed_usd=0.119).lasts_s() == 0.0
    assert metered(lease(price(1.0), (NOW_S - 90,), until_s=NOW_S), allowed_usd=0.0).lasts_s() == math.inf


def test_a_minimum_is_due_from_the_first_moment_and_a_machine_that_is_gone_costs_no_more() -> None:
    least = price(0.001, minimum_s=60)
    new, gone = RentalPeriod("new", least, NOW_S), RentalPeriod("gone", least, NOW_S - 90, until_s=NOW_S - 20)
    assert (new.cost_usd(NOW_S), new.due_usd(NOW_S)) == (0.0, pytest.approx(0.06))
    assert gone.cost_usd(0.0) == gone.due_usd(NOW_S + 1e6) == pytest.approx(0.07)
    assert affordable_s([new, gone], 0.129, NOW_S) < 0 < affordable_s([new, gone], 0.13, NOW_S)


def test_what_was_ordered_and_is_not_known_yet_is_committed() -> None:
    meter = metered(lease(price(0.1, minimum_s=60), (), wanted=3), allowed_usd=20.0)
    assert meter.spent_usd() == 0
    assert meter.committed_usd() == pytest.approx(18.0)
    assert meter.left_usd == pytest.approx(2.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 5.0),
            st.floats(0.0, 500.0),
            st.sampled_from([0.0, 60.0]),
            st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.0, 2000.0),
    st.sampled_from([0.0, 5.0, 40.0]),
)
@example([(0.001, 365.5190034230187, 0.0, 60.0)], 504.54831643929543, 5.0)  # at the edge of a minute
def test_given_back_when_it_says_so_no_more_is_paid_than_is_allowed(
    machines: list[tuple[float, float, float, float]], allowed_usd: float, ending_s: float
) -> None:
    def bill_usd(later_s: float) -> float:
        total_usd = 0.0
        for rate, age_s, minimum_s, step_s in machines:
            lasted_s = max(age_s + later_s + ending_s, minimum_s)
            billed_s = math.ceil(lasted_s / step_s - 1e-9) * step_s if step_s else lasted_s
            total_usd += billed_s * rate if age_s + later_s + ending_s > 0 else 0.0
        return total_usd

    rentals = [lease(price(rate, least, step), (NOW_S - age,)) for rate, age, least, step in machines]
    lasts_s = metered(*rentals, allowed_usd=allowed_usd, ending_s=ending_s).lasts_s()
    if lasts_s > 0:
        assert bill_usd(lasts_s) <= allowed_usd + 1e-6
    assert bill_usd(lasts_s + 1.0) > allowed_usd - 1e-6


def test_without_machines_or_a_limit_the_money_lasts() -> None:
    assert metered(allowed_usd=0.0).lasts_s() == math.inf
    assert metered(lease(price(1.0), (NOW_S,))).lasts_s() == math.inf
    assert metered(lease(price(0.0), (NOW_S,)), allowed_usd=0.0).lasts_s() == math.inf


def test_an_end_that_took_longer_is_expected_to_again() -> None:
    meter = metered(lease(price(0.1), (NOW_S,)), allowed_usd=10.0, ending_s=5.0)
    assert meter.lasts_s() == pytest.approx(95.0)
    meter.note_release_time(3.0)
    assert meter.lasts_s() == pytest.approx(95.0)
    meter.note_release_time(20.0)
    assert meter.lasts_s() == pytest.approx(80.0)


def test_a_ceiling_is_what_the_money_left_pays_for() -> None:
    meter = metered(lease(price(0.1), (NOW_S - 50,)), allowed_usd=11.0, ending_s=5.0)
    offered = price(0.01, minimum_s=60)
    assert meter.least_usd(offered, 2) == pytest.approx(1.2)
    assert meter.most_usd_per_h(offered) == pytest.approx(5.5 / 60 * 3600)
    assert meter.most_usd_per_h(offered, 2) == pytest.approx(5.5 / 120 * 3600)
    assert metered().most_usd_per_h(offered) is None


def test_a_guard_acts_once_when_the_money_is_gone_and_not_before() -> None:
    kept, acted = lease(price(1.0), (NOW_S,)), threading.Event()
    clock = [NOW_S]
    meter = Meter(10.0, ending_s=2.0, clock=lambda: clock[0])
    meter.add(kept)

    def give_back() -> None:
        acted.set()
        raise RunFailed("It does not end.")

    with BudgetGuard(meter, give_back) as guard:
        clock[0] = NOW_S + 7.9
        assert not acted.wait(0.3)
        assert not guard.acted
        clock[0] = NOW_S + 8.1
        assert acted.wait(LONG_S)
        assert guard.acted
    with BudgetGuard(metered(), give_back) as idle:
        pass
    assert not idle.acted
