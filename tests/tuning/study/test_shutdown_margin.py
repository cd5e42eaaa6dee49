"""How much time is kept back for the end of a run, and what a run is charged."""

from __future__ import annotations

from typing import Any

import pytest

from prudent.core.money import Price
from prudent.tuning.study.limits import ShutdownMargin
from prudent.tuning.study.settlement import (
    charge_of,
    heartbeat_after_s,
    interrupted_charge,
    interrupted_outcome,
)
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome

PRICE = Price(3.6, "2025-01-01", "the test", boot_s=10.0, release_s=5.0)


class Plain:
    def next(self, until_s: float) -> Outcome | None:
        raise AssertionError

    def cut(self, at_s: float, why: str) -> Outcome:
        raise AssertionError


class Gentle(Plain):
    grace_s = 5.0


def test_until_it_was_measured_a_tenth_of_a_second_is_kept_for_noticing_and_one_for_stopping() -> None:
    endings = ShutdownMargin()
    assert (endings.noticing_s, endings.least_s, endings.deciding_s) == (0.1, 0.2, 2.0)


def test_what_took_longer_once_is_expected_to_again() -> None:
    endings = ShutdownMargin()
    assert not endings.noticed(0.1)
    assert endings.noticed(3.0)
    assert not endings.noticed(3.0)
    assert not endings.noticed(1.0)
    assert (endings.noticing_s, endings.deciding_s) == (3.0, 3.0)
    endings.stopped(took_s=6.0, grace_s=5.5)
    endings.stopped(took_s=6.0, grace_s=6.0)
    assert endings.least_s == pytest.approx(3.5)


@pytest.mark.parametrize(("paid_s", "grace_s"), [(10.0, 1.0), (50.0, 5.0), (60.0, 5.0)])
def test_the_grace_is_a_tenth_of_what_is_paid_at_most(paid_s: float, grace_s: float) -> None:
    endings = ShutdownMargin()
    assert endings.grace_s(Gentle(), paid_s) == pytest.approx(grace_s)
    assert endings.room_s(Gentle(), paid_s) == pytest.approx(grace_s + 0.2)
    assert endings.grace_s(Plain(), paid_s) == 0.0


@pytest.mark.parametrize(("lasted_s", "after_s"), [(0.0, 1.0), (100.0, 1.0), (200.0, 2.0)])
def test_a_sign_of_life_is_due_every_second_or_hundredth(lasted_s: float, after_s: float) -> None:
    assert heartbeat_after_s(lasted_s) == pytest.approx(after_s)


@pytest.mark.parametrize(
    ("outcome", "usd", "seconds"),
    [
        # As the price says, where nobody measured boot and give-back.
        ({"time_s": 100.0}, 0.115, 115.0),
        ({"time_s": 100.0, "overhead_s": 20.0}, 0.125, 125.0),
        ({"time_s": 100.0, "ending_s": 7.0}, 0.117, 117.0),
        ({"time_s": 0.0, "overhead_s": 20.0}, 0.025, 25.0),  # its machines were there, if not for long
        ({"time_s": 0.0}, None, 0.0),
        ({"time_s": 100.0, "started": False}, None, 0.0),
        # Somebody else keeps the bill.
        ({"time_s": 100.0, "overhead_s": 20.0, "bill_usd": 0.3}, 0.3, 120.0),
        ({"time_s": 0.0, "bill_usd": 0.3, "started": False}, 0.3, 0.0),
        ({"time_s": 0.0, "bill_usd": 0.0}, None, 0.0),
        ({"time_s": 100.0, "bill_usd": 0.0}, 0.0, 100.0),
    ],
)
def test_a_run_is_charged_what_was_paid_for_it(
    outcome: dict[str, Any], usd: float | None, seconds: float
) -> None:
    found = charge_of("trial 1", PRICE, Outcome(FINISHED, **outcome), 1.0)
    if usd is None:
        assert found is None
        return
    assert found is not None
    assert (found.usd, found.seconds) == (pytest.approx(usd), pytest.approx(seconds))
    assert (found.label, found.price, found.note) == ("trial 1", PRICE, FINISHED)


@pytest.mark.parametrize(("bill_usd", "charged"), [(0.5, 0.5), (0.5 + 9e-10, 0.5), (0.5 + 1e-8, 0.5 + 1e-8)])
def test_what_is_above_the_reservation_by_arithmetic_alone_is_not(bill_usd: float, charged: float) -> None:
    found = charge_of("trial 1", PRICE, Outcome(FAILED, 9.0, bill_usd=bill_usd), 0.5)
    assert found is not None
    assert found.usd == charged


def test_an_interrupted_run_is_charged_for_its_time() -> None:
    found = interrupted_charge("trial 1", PRICE, interrupted_outcome(85.0))
    assert found is not None
    assert (found.label, found.note) == ("trial 1, interrupted", "interrupted")
    assert (found.usd, found.seconds) == (pytest.approx(0.1), pytest.approx(100.0))
    assert interrupted_charge("trial 1", PRICE, interrupted_outcome(0.0)) is None
    assert (interrupted_outcome(3.0).status, interrupted_outcome(3.0).why) == (CUT, "interrupted")
