"""The budget holds: with extensions, failures, parallel trials and resumed studies."""

from __future__ import annotations

import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prudent.core.errors import BadInput, PrudentError
from prudent.core.ledger import CREDIT, BudgetExceeded, Ledger, LedgerEntry, Reservation, ReservationClosed
from prudent.core.money import ROUNDING_USD, Price

PRICE = Price(3.6, "2025-01-01", "test")  # 0.001 $ a second
MINUTE = Price(3.6, "2025-01-01", "test", minimum_s=60)


def settle(
    ledger: Ledger, run: Reservation, seconds: float, price: Price, *more: Any, **named: Any
) -> LedgerEntry:
    """Charge a run for its seconds."""
    return ledger.settle_usd(run, price.cost_usd(seconds), seconds, price, *more, **named)


def test_reserve_then_settle_frees_the_rest() -> None:
    ledger = Ledger(1.0)
    run = ledger.reserve("a", 0.8)
    assert (ledger.reserved_usd, ledger.spent_usd) == (0.8, 0.0)
    assert ledger.left_usd == pytest.approx(0.2)
    entry = settle(ledger, run, 300, PRICE, machines=4, note="finished")
    assert entry == LedgerEntry("a", 0.3, 300, PRICE, 4, "finished")
    assert (ledger.reserved_usd, ledger.spent_usd) == (0.0, pytest.approx(0.3))
    assert ledger.entries == (entry,)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    ledger = Ledger(1.0)
    ledger.reserve("a", 0.8)
    with pytest.raises(BudgetExceeded, match=r'"b" needs \$0.3, but only \$0.2 .* raise the budget'):
        ledger.reserve("b", 0.3)
    assert ledger.reserved_usd == 0.8


def test_budget_exceeded_is_one_of_our_errors() -> None:
    assert issubclass(BudgetExceeded, PrudentError)
    assert issubclass(ReservationClosed, PrudentError)


def test_rounding_is_forgiven_but_never_overspent() -> None:
    ledger = Ledger(0.3)
    for label in ("a", "b", "c"):
        ledger.settle_usd(ledger.reserve(label, 0.1), 0.1, 100, PRICE)
    assert ledger.spent_usd <= 0.3
    run = ledger.reserve("crumb", ROUNDING_USD / 2)
    assert run.usd <= 1e-16


def test_a_run_that_never_started_costs_nothing() -> None:
    ledger = Ledger(1.0)
    ledger.release(ledger.reserve("a", 1.0))
    assert (ledger.left_usd, ledger.spent_usd, ledger.entries) == (1.0, 0.0, ())


def test_the_billing_minimum_is_charged() -> None:
    ledger = Ledger(1.0)
    assert settle(ledger, ledger.reserve("a", 0.1), 1, MINUTE).usd == pytest.approx(0.06)


def test_a_bill_above_the_reservation_is_charged_in_full_and_told() -> None:
    ledger = Ledger(1.0)
    run, beside = ledger.reserve("a", 0.1), ledger.reserve("b", 0.5)
    assert settle(ledger, run, 200, PRICE).usd == pytest.approx(0.2)
    assert (run.open, ledger.over_usd) == (False, 0.0)
    assert ledger.left_usd == pytest.approx(0.3)
    assert settle(ledger, beside, 5000, PRICE).usd == pytest.approx(5.0)
    assert (ledger.spent_usd, ledger.over_usd) == (pytest.approx(5.2), pytest.approx(4.2))
    assert ledger.left_usd == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.reserve("c", 0.01)


def test_nothing_is_over_without_a_budget_or_by_rounding() -> None:
    free = Ledger(None)
    settle(free, free.reserve("a", 1.0), 3600, PRICE)
    exact = Ledger(1.0)
    exact.restore(LedgerEntry("a", 1.0 + ROUNDING_USD / 2, 1.0, PRICE))
    assert (free.over_usd, exact.over_usd) == (0.0, 0.0)


def test_a_bill_above_by_rounding_is_capped() -> None:
    ledger = Ledger(0.1)
    run = ledger.reserve("a", 0.1)
    assert ledger.settle_usd(run, 0.1 + ROUNDING_USD / 2, 100, PRICE).usd == 0.1


def test_extend_up_to_gives_what_there_is() -> None:
    ledger = Ledger(1.0)
    run = ledger.reserve("a", 0.5)
    assert ledger.extend_up_to(run, 0.2) == 0.2
    assert ledger.extend_up_to(run, math.inf) == pytest.approx(0.3)
    assert ledger.extend_up_to(run, 1.0) == 0.0


def test_without_a_budget_nothing_is_refused() -> None:
    ledger = Ledger(None)
    run = ledger.reserve("a", 1e9)
    assert ledger.extend_up_to(run, math.inf) == math.inf
    assert ledger.left_usd == math.inf
    assert settle(ledger, run, 3600, PRICE).usd == pytest.approx(3.6)
    assert ledger.spent_usd == pytest.approx(3.6)


@pytest.mark.parametrize("close", ["settle", "release"])
def test_nothing_can_be_done_with_a_closed_reservation(close: str) -> None:
    ledger = Ledger(1.0)
    run = ledger.reserve("a", 0.5)
    if close == "settle":
        settle(ledger, run, 1, PRICE)
    else:
        ledger.release(run)
    assert (run.open, run.usd) == (False, 0.0)
    spent = ledger.spent_usd
    for action in (
        lambda: settle(ledger, run, 1, PRICE),
        lambda: ledger.release(run),
        lambda: ledger.extend_up_to(run, 0.1),
    ):
        with pytest.raises(ReservationClosed, match='"a"'):
            action()
    assert ledger.spent_usd == spent


def test_a_reservation_belongs_to_its_ledger() -> None:
    run = Ledger(1.0).reserve("a", 0.5)
    with pytest.raises(ReservationClosed):
        settle(Ledger(1.0), run, 1, PRICE)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_an_impossible_budget_is_refused(wrong: float) -> None:
    with pytest.raises(BadInput, match="budget"):
        Ledger(wrong)


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_impossible_amounts_are_refused(wrong: float) -> None:
    ledger = Ledger(1.0)
    run = ledger.reserve("a", 0.1)
    for action in (
        lambda: ledger.reserve("b", wrong),
        lambda: ledger.extend_up_to(run, wrong),
        lambda: ledger.settle_usd(run, wrong, 1, PRICE),
        lambda: settle(ledger, run, wrong, PRICE),
    ):
        with pytest.raises(BadInput):
            action()
    assert (run.open, ledger.spent_usd) == (True, 0.0)


def test_an_endless_run_cannot_be_settled() -> None:
    ledger = Ledger(None)
    run = ledger.reserve("a", math.inf)
    with pytest.raises(BadInput, match="not finite"):
        settle(ledger, run, math.inf, PRICE)
    assert run.open


def test_restored_charges_count_even_above_a_lowered_budget() -> None:
    ledger = Ledger(0.1)
    ledger.restore(LedgerEntry("a", 0.3, 300, PRICE))
    assert (ledger.spent_usd, ledger.left_usd) == (0.3, 0.0)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("b", 0.01)


@given(st.lists(st.floats(min_value=0, max_value=1e3), max_size=30), st.randoms())
def test_money_left_is_the_same_in_any_order(bills: list[float], chance: random.Random) -> None:
    shuffled = list(bills)
    chance.shuffle(shuffled)
    first, second = Ledger(1e6), Ledger(1e6)
    for one, other in zip(bills, shuffled, strict=True):
        first.restore(LedgerEntry("a", one, 1, PRICE))
        second.restore(LedgerEntry("a", other, 1, PRICE))
    assert (first.left_usd, first.spent_usd) == (second.left_usd, second.spent_usd)


@given(st.floats(min_value=0, max_value=1e6), st.floats(min_value=0, max_value=1e6), st.text(max_size=20))
def test_entries_survive_a_journal(usd: float, seconds: float, note: str) -> None:
    entry = LedgerEntry("trial 3", usd, seconds, MINUTE, machines=4, note=note)
    assert LedgerEntry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry


@pytest.mark.parametrize(
    ("change", "says"),
    [({"usd": "much"}, "damaged"), ({"usd": -1.0}, "not an amount"), ({"price": {}}, "price record lacks")],
)
def test_a_damaged_entry_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        LedgerEntry.from_dict({**LedgerEntry("a", 1.0, 1.0, PRICE).to_dict(), **change})


def test_an_entry_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(BadInput, match="lacks 'label'"):
        LedgerEntry.from_dict({"usd": 1.0})


def test_threads_never_overspend() -> None:
    ledger = Ledger(1.0)
    start = threading.Barrier(8)

    def trial(number: int) -> list[float]:
        chance = random.Random(number)
        start.wait()
        paid = []
        for _ in range(300):
            try:
                run = ledger.reserve(f"trial {number}", chance.uniform(0, 0.05))
            except BudgetExceeded:
                continue
            ledger.extend_up_to(run, chance.uniform(0, 0.05))
            if chance.random() < 0.5:
                ledger.release(run)
            else:
                seconds = run.usd * chance.random() * 1000.0  # at 0.001 $ a second
                settle(ledger, run, seconds, PRICE)
                paid.append(seconds * 0.001)
        return paid

    with ThreadPoolExecutor(8) as pool:
        paid = [usd for one in pool.map(trial, range(8)) for usd in one]
    assert len(ledger.entries) == len(paid) > 0
    assert ledger.reserved_usd == 0.0
    # What the threads themselves added up: nearly everything, and no more than there was.
    assert 0.9 < math.fsum(paid) <= 1.0 + 1e-9
    assert ledger.spent_usd == pytest.approx(math.fsum(paid))


def test_what_misses_by_more_than_rounding_is_refused() -> None:
    ledger = Ledger(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("a", 1.0 + 3 * ROUNDING_USD)
    run = ledger.reserve("a", 1.0 + ROUNDING_USD / 2)
    assert (run.usd, ledger.left_usd) == (1.0, 0.0)
    assert ledger.extend_up_to(run, 3 * ROUNDING_USD) == 0.0
    assert run.usd == 1.0
    assert ledger.settle_usd(run, 1.0 + ROUNDING_USD / 2, 1.0, PRICE).usd == 1.0


def test_a_budget_of_nothing_pays_for_what_is_free() -> None:
    ledger = Ledger(0.0)
    assert settle(ledger, ledger.reserve("a", 0.0), 0, PRICE).usd == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.reserve("b", 0.01)


@pytest.mark.parametrize(("usd", "seconds"), [(math.inf, 1.0), (1.0, math.inf), (1.0, -1.0), (-1.0, 1.0)])
def test_an_impossible_charge_cannot_be_made(usd: float, seconds: float) -> None:
    with pytest.raises(BadInput):
        LedgerEntry("a", usd, seconds, PRICE)


def test_a_credit_takes_back_what_was_not_paid_after_all() -> None:
    ledger = Ledger(1.0)
    ledger.restore(LedgerEntry("a", 0.75, 1.0, PRICE))
    ledger.restore(LedgerEntry("a machine that was gone", -0.25, 0.0, PRICE, note=CREDIT))
    assert (ledger.spent_usd, ledger.left_usd) == (0.5, 0.5)
    with pytest.raises(BadInput):
        LedgerEntry("a", -math.inf, 0.0, PRICE, note=CREDIT)


def test_a_reservation_says_what_it_is() -> None:
    assert repr(Ledger(1.0).reserve("a", 0.5)) == "Reservation('a', usd=0.5, open=True)"


class Spending(RuleBasedStateMachine):
    """Whatever is reserved, extended, settled within it or released: the budget holds."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(10.0)
        self.runs: list[Reservation] = []
        self.paid_usd: list[float] = []

    @rule(usd=st.floats(min_value=0, max_value=12))
    def reserve(self, usd: float) -> None:
        left = self.ledger.left_usd
        try:
            self.runs.append(self.ledger.reserve("run", usd))
        except BudgetExceeded:
            assert usd > left

    @precondition(lambda self: self.runs)
    @rule(more=st.floats(min_value=0, max_value=12), which=st.integers(0, 99))
    def extend(self, more: float, which: int) -> None:
        run = self.runs[which % len(self.runs)]
        before = run.usd
        left = self.ledger.left_usd
        assert self.ledger.extend_up_to(run, more) == min(more, left)
        assert run.usd == before + min(more, left)

    @precondition(lambda self: self.runs)
    @rule(share=st.floats(min_value=0, max_value=1), which=st.integers(0, 99))
    def settle(self, share: float, which: int) -> None:
        run = self.runs.pop(which % len(self.runs))
        seconds = run.usd * share * 1000.0  # at 0.001 $ a second
        settle(self.ledger, run, seconds, PRICE)
        self.paid_usd.append(seconds * 0.001)

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        self.ledger.release(self.runs.pop(which % len(self.runs)))

    @invariant()
    def budget_holds(self) -> None:
        # By an account of the test's own: what was really paid, and what each run may still use.
        paid_usd = math.fsum(self.paid_usd)
        assert self.ledger.spent_usd == pytest.approx(paid_usd, abs=1e-9)
        assert self.ledger.reserved_usd == pytest.approx(math.fsum(run.usd for run in self.runs), abs=1e-9)
        total = paid_usd + self.ledger.reserved_usd
        assert total <= 10.0 + 1e-9
        assert self.ledger.left_usd == pytest.approx(10.0 - total, abs=1e-9)


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
