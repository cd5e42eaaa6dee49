"""The clusters of a study, without machines: which is taken, kept, given back, and what is due."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.cloud.providers.provider import CAPACITY, PRICE, QUOTA, TRANSIENT, LaunchFailed
from prudent.core.errors import RunFailed
from prudent.core.money import Price
from prudent.tuning.jobs import cluster_pool as module
from prudent.tuning.jobs.cluster_pool import ClusterPool, PooledCluster

PRICED = Price(3.6, "", "the test", minimum_s=60.0)


class Rental:
    """A cluster that costs what it is told to, and fails as it is told to."""

    cluster = "a cluster"

    def __init__(self) -> None:
        self.record: Any = None
        self.lost: str | None = None
        self.launched: list[float | None] = []
        self.errors: list[Exception] = []
        self.released: list[str] = []
        self.ended = True

    def cost(self, usd: float) -> None:
        self.record = SimpleNamespace(cost_usd=lambda now_s: usd, machines=(), ordered=())

    def launch(self, most_usd_per_h: float | None) -> None:
        self.launched.append(most_usd_per_h)
        if self.errors:
            raise self.errors.pop(0)

    def wait_ready(self) -> None:
        pass

    def release(self, why: str) -> None:
        self.released.append(why)
        if self.errors:
            raise self.errors.pop(0)


class Owner:
    """Makes the rentals of `ClusterPool`, and remembers them."""

    def __init__(self, keep_s: float = 60.0, grace_s: float = 0.0, *errors: Exception) -> None:
        self.made: list[Rental] = []
        self.errors = list(errors)
        offer = SimpleNamespace(price=Price(7.2, "", "now"))
        provider: Any = SimpleNamespace(offer=lambda type_name, spot: offer)
        self.rentals = ClusterPool(provider, None, keep_s, 30.0, grace_s=grace_s)  # type: ignore[arg-type]
        self.rentals._rental = self.make  # type: ignore[assignment,method-assign]

    def make(self, *key: Any) -> Rental:
        rental = Rental()
        if self.errors:
            rental.errors.append(self.errors.pop(0))
        self.made.append(rental)
        return rental

    def take(self, type_name: str = "m", up: bool = True) -> PooledCluster:
        held = self.rentals.take(type_name, 2, "study/1", PRICED)
        held.up = held.up or up
        return held

    def boot(self, held: PooledCluster, usd: float = math.inf) -> None:
        self.rentals.boot(held, threading.Event(), lambda: usd)


def wait_for_releases(owner: Owner) -> None:
    for thread in list(owner.rentals._background):
        thread.join(60)


def test_what_is_expected_until_it_was_measured() -> None:
    assert (module.ORDER_S, module.END_S, module.KEEP_S, module.WAIT_S) == (1.0, 5.0, 60.0, 600.0)
    assert Owner(grace_s=2.5).rentals.ending_s == 7.5


def test_what_is_due_is_charged_once() -> None:
    owner = Owner()
    held = owner.take()
    assert (held.due_usd(), held.settle()) == (0.0, 0.0)
    owner.made[0].cost(0.5)
    assert held.due_usd() == 0.5
    assert held.settle() == 0.5
    assert (held.due_usd(), held.settle()) == (0.0, 0.0)
    held.again()
    owner.made[1].cost(0.25)  # what the first has cost stays on the bill
    assert held.settle() == 0.25
    owner.made[1].cost(0.125)  # a machine was gone before, as is known by now
    assert (held.due_usd(), held.settle()) == (-0.125, -0.125)
    owner.rentals.close()


@pytest.mark.parametrize(
    ("price", "ordering_s", "ending_s", "usd", "lasts_s"),
    [
        (PRICED, 1.0, 5.0, 0.06, math.inf),
        (PRICED, 1.0, 5.0, 0.06 - 1e-10, math.inf),
        (PRICED, 1.0, 5.0, 0.0599, 0.0),
        (PRICED, 60.0, 40.0, 0.1, math.inf),
        (PRICED, 60.0, 40.0, 0.0999, 0.0),
    ],
)
def test_machines_are_ordered_if_their_shortest_use_can_be_paid(
    price: Price, ordering_s: float, ending_s: float, usd: float, lasts_s: float
) -> None:
    held = PooledCluster(("m", 1, "x"), Rental, price)  # type: ignore[arg-type]
    assert held.lasts_s(usd, ordering_s, ending_s) == lasts_s


def test_what_earlier_attempts_have_cost_is_not_there_for_the_next() -> None:
    owner = Owner()
    held = owner.take()
    owner.made[0].cost(0.03)
    held.again()
    assert held.lasts_s(0.09, 1.0, 5.0) == math.inf
    assert held.lasts_s(0.0899, 1.0, 5.0) == 0.0
    assert held.settle() == 0.03
    assert held.lasts_s(0.06, 1.0, 5.0) == math.inf  # somebody has paid for it
    # 0.06 dollars for two machines and a minute.
    assert held.most_usd_per_h(0.06, 10.0) == pytest.approx(1.8)
    assert held.most_usd_per_h(0.06, 120.0) == pytest.approx(0.9)
    assert held.most_usd_per_h(math.inf, 10.0) is None
    assert PooledCluster(("m", 1, "x"), Rental, Price(1.0, "", "")).most_usd_per_h(1.0, 0.0) is None  # type: ignore[arg-type]
    owner.rentals.close()


def test_a_sound_cluster_of_the_same_kind_is_taken_again() -> None:
    owner = Owner()
    first = owner.take()
    owner.rentals.give_back(first)
    assert owner.take() is first
    owner.rentals.give_back(first)
    owner.made[0].lost = "spot"
    second = owner.take()
    assert second is not first
    wait_for_releases(owner)
    assert owner.made[0].released == ["another kind of machine was wanted"]
    owner.rentals.close()
    assert owner.made[1].released == ["the study is over"]


@pytest.mark.parametrize(("busy", "released"), [(False, ["another kind of machine was wanted"]), (True, [])])
def test_another_kind_is_given_back_when_nothing_else_runs(busy: bool, released: list[str]) -> None:
    owner = Owner()
    idle, other = owner.take("m"), owner.take("n")
    owner.rentals.give_back(idle)
    if not busy:
        owner.rentals.give_back(other, "broken")
    owner.take("c5")
    wait_for_releases(owner)
    assert owner.made[0].released == released
    owner.rentals.close()
    assert [len(rental.released) for rental in owner.made] == [1, 1, 1]


@pytest.mark.parametrize(
    ("keep_s", "up", "broken", "why"),
    [
        (60.0, True, "", None),
        (60.0, True, "no money", "no money"),
        (60.0, False, "", "its run is over"),
        (0.0, True, "", "its run is over"),
    ],
)
def test_only_what_is_sound_is_kept(keep_s: float, up: bool, broken: str, why: str | None) -> None:
    owner = Owner(keep_s)
    held = owner.take(up=up)
    owner.rentals.give_back(held, broken)
    owner.rentals.give_back(held, broken)  # twice is once
    wait_for_releases(owner)
    assert owner.made[0].released == ([] if why is None else [why])
    owner.rentals.close()
    assert len(owner.made[0].released) == 1


def test_what_no_run_uses_is_charged_to_whoever_comes_next() -> None:
    owner = Owner()
    used, idle, booting = owner.take(), owner.take(), owner.take(up=False)
    for rental, usd in zip(owner.made, (1.0, 0.5, 0.25), strict=True):
        rental.cost(usd)
    assert owner.rentals.unassigned_usd == 0.0
    owner.rentals.give_back(idle)
    assert owner.rentals.unassigned_usd == 0.5
    owner.rentals.abandon(booting)
    owner.rentals.abandon(used)  # it is up: it has a run
    assert owner.rentals.unassigned_usd == 0.75
    assert owner.rentals.settle_unassigned(0.0) == 0.75
    assert owner.rentals.settle_unassigned(0.125) == 0.125
    assert owner.rentals.settle_unassigned(-0.25) == 0.0
    assert owner.rentals.settle_unassigned(0.125) == 0.0
    assert owner.rentals.settle_unassigned(0.25) == 0.125
    owner.made[0].cost(1.5)
    owner.rentals.give_back(used, "broken")
    wait_for_releases(owner)
    assert owner.rentals.unassigned_usd == 1.5
    assert (owner.rentals.settle_unassigned(0.0), owner.rentals.unassigned_usd) == (1.5, 0.0)
    owner.rentals.close()


def test_what_cannot_be_ended_is_tried_again_at_the_end() -> None:
    owner = Owner()
    held = owner.take()
    owner.made[0].errors = [RunFailed("no answer")]
    owner.made[0].cost(0.5)
    owner.rentals.give_back(held, "broken")
    wait_for_releases(owner)
    assert owner.rentals.unassigned_usd == 0.5
    owner.rentals.close()
    assert owner.made[0].released == ["broken", "the study is over"]


@pytest.mark.parametrize("kind", [TRANSIENT, CAPACITY, PRICE])
def test_some_failures_to_launch_are_worth_another_try(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    monkeypatch.setattr(module, "_MONEY_S", 0.001)
    owner = Owner(60.0, 0.0, LaunchFailed("x", kind), LaunchFailed("x", kind))
    held = owner.take(up=False)
    owner.boot(held)
    assert held.up
    assert len(owner.made) == 3
    assert owner.made[2].launched == [None]
    assert held.price.usd_per_h == (14.4 if kind == PRICE else 3.6)
    owner.rentals.close()


def test_three_that_fail_by_chance_are_no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    owner = Owner(60.0, 0.0, *(LaunchFailed("x", TRANSIENT) for _ in range(3)))
    held = owner.take(up=False)
    with pytest.raises(LaunchFailed):
        owner.boot(held)
    assert len(owner.made) == 3
    owner.rentals.close()


def test_what_is_left_of_an_earlier_attempt_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    owner = Owner(60.0, 0.0, LaunchFailed("x", TRANSIENT), LaunchFailed("x", TRANSIENT))
    held = owner.take(up=False)
    first = owner.made[0]
    first.ended = False
    owner.boot(held)
    first.errors = [RunFailed("no answer")]
    owner.rentals.give_back(held, "broken")
    wait_for_releases(owner)
    owner.rentals.close()
    assert [one.released for one in owner.made] == [
        ["broken", "the study is over"],
        [],
        ["broken", "the study is over"],
    ], "of the second attempt nothing was left"


@pytest.mark.parametrize(("kind", "wait_s"), [(QUOTA, 600.0), (CAPACITY, 0.0), (PRICE, 0.0)])
def test_others_are_not(kind: str, wait_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", wait_s)
    owner = Owner(60.0, 0.0, LaunchFailed("x", kind))
    held = owner.take(up=False)
    with pytest.raises(LaunchFailed):
        owner.boot(held)
    assert (held.up, len(owner.made)) == (False, 1)
    owner.rentals.close()


def test_idle_machines_make_room_for_those_that_are_wanted() -> None:
    owner = Owner()
    idle = owner.take()
    wanted = owner.take("n", up=False)
    owner.rentals.give_back(idle)
    owner.made[1].errors = [LaunchFailed("x", CAPACITY)]
    owner.boot(wanted)
    assert owner.made[0].released == ["its machines were wanted"]
    owner.rentals.close()


def test_what_is_stopped_orders_nothing() -> None:
    owner, stopped = Owner(), threading.Event()
    held = owner.take(up=False)
    stopped.set()
    with pytest.raises(LaunchFailed, match="stopped"):
        owner.rentals.boot(held, stopped, lambda: 0.0)
    assert owner.made[0].launched == []
    owner.rentals.close()


def test_the_most_that_a_machine_may_cost_is_told_to_who_rents_it_out() -> None:
    owner = Owner(grace_s=1000.0)
    held = owner.take(up=False)
    owner.boot(held, 3.6)
    # Order, grace and give-back take 1006 s; the money is for two machines.
    assert owner.made[0].launched == [pytest.approx(3.6 / 1006 * 3600 / 2)]
    owner.rentals.close()


def test_what_is_idle_for_too_long_is_given_back() -> None:
    owner = Owner(keep_s=0.001)
    held = owner.take()
    owner.rentals.give_back(held)
    sweeper = owner.rentals._sweeper
    if sweeper is not None:
        sweeper.join(60)
    assert owner.made[0].released == ["nobody wanted it"]
    assert owner.rentals._idle == []
    owner.rentals.close()
    assert len(owner.made[0].released) == 1
