"""The bill of a run: every machine of every lease of it, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.billing import Bill
from prudent.cloud.leases.lease import RELEASED, UP, Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.provider import LaunchOrder
from prudent.core.money import Price

PRICE = Price(3.6, "2025-01-01", "catalog", minimum_s=60)


def lease(cluster: str, run: str, launched_s: tuple[float, ...], released_s: float | None) -> Lease:
    order = LaunchOrder(cluster, run, "me", "m5.large", len(launched_s), 5000.0)
    machines = tuple(LeasedMachine(f"{cluster}{i}", at_s, PRICE) for i, at_s in enumerate(launched_s))
    state = UP if released_s is None else RELEASED
    made = Lease(order, "local", {"local": ""}, LeaseHolder.here(), 1000.0, 5000.0, PRICE, state)
    return Lease(**{**vars(made), "machines": machines, "released_s": released_s})


def test_the_machines_of_a_run_are_on_its_bill_the_first_one_first(tmp_path: Path) -> None:
    register = LeaseRegister(tmp_path)
    for one in (
        lease("b", "run-1", (1100.0, 1000.0), 1200.0),
        lease("a", "run-1", (1100.0,), None),
        lease("c", "run-2", (1000.0,), None),
    ):
        register.add(one)
    bill = Bill.of_run(register, "run-1")
    assert [(line.cluster, line.launched_s, line.released_s) for line in bill.lines] == [
        ("b", 1000.0, 1200.0),
        ("a", 1100.0, None),
        ("b", 1100.0, 1200.0),
    ]
    assert {(line.type, line.price) for line in bill.lines} == {("m5.large", PRICE)}
    assert bill.total_usd(1400.0) == pytest.approx(0.2 + 0.3 + 0.1)
    assert bill.total_usd() > 1000.0  # since 1970, one still runs
    assert Bill.of([]).total_usd() == 0.0
