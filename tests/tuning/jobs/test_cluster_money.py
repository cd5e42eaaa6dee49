"""What machines may cost, on machines of this computer: none is ordered without money, each is paid once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.lease import RELEASED
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.space import Space
from prudent.tuning.jobs import cluster_pool as rentals
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.jobs.cluster_run import ClusterRun
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome

MINUTE_USD = 0.067 / 60
"""What the shortest use of the machine costs."""
CONFIGURATION = {"cluster": "1*m3.medium"}


class Slow(LocalProvider):
    """Orders take their time; at their end the price may be another one, and to end machines takes longer."""

    dearer = 1.0
    end_s = 0.0

    def __init__(self, *where: Path) -> None:
        super().__init__(*where)
        self.ordered = threading.Event()

    def launch(self, order: Any) -> Any:
        self.ordered.set()
        time.sleep(0.3)
        if self.dearer != 1.0:
            assert self._catalog_path is not None
            write_price(self._catalog_path, self.dearer)
            self.__dict__.pop("_catalog", None)
        return super().launch(order)

    def terminate(self, instances: Any) -> None:
        time.sleep(self.end_s)
        super().terminate(instances)


def write_price(path: Path, factor: float = 1.0, minimum_s: float = 60.0) -> None:
    path.write_text(f"name,price_usd_per_h,minimum_s\nm3.medium,{0.067 * factor},{minimum_s}\n")


@pytest.fixture
def provider(tmp_path: Path) -> Slow:
    write_price(tmp_path / "prices.csv")
    return Slow(tmp_path / "home", tmp_path / "prices.csv")


@pytest.fixture
def start(tmp_path: Path, provider: Slow) -> Iterator[Callable[..., ClusterRun]]:
    (tmp_path / "job").mkdir()
    space = Space([MachineParameter("cluster", ["m3.medium"], [1])])
    jobs = []

    def begin(command: str = "true", number: int = 1, usd: float | None = 1.0) -> ClusterRun:
        job = ClusterCommandJob(
            command,
            space,
            provider,
            register=LeaseRegister(tmp_path / "home"),
            directory=tmp_path / "job",
            grace_s=0.5,
        )
        jobs.append(job)
        run = job.start(CONFIGURATION, number)
        if usd is not None:
            run.lasts_s(usd)  # as a study does
        return run

    yield begin
    for job in jobs:
        job.release()
    assert provider.list() == ()


def ended(run: ClusterRun) -> Outcome:
    while not isinstance(event := run.next(120.0), Outcome):
        assert event is not None
    return event


def wait_for(what: Callable[[], Any]) -> None:
    end_s = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


def test_the_minimum_that_was_paid_is_there_to_be_used(
    start: Callable[..., ClusterRun], tmp_path: Path
) -> None:
    run = start(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    assert run.lasts_s(MINUTE_USD) == float("inf")  # nothing was launched yet
    wait_for(lambda: run._held and (lease := run._held.rental.record) and lease.machines)
    # A minute from the launch, less what it takes to end machines; another one with as much again.
    one_s, two_s = run.lasts_s(MINUTE_USD), run.lasts_s(2 * MINUTE_USD)
    assert 30.0 < one_s < run._timeline.now_s() + 60.0
    assert two_s - one_s == pytest.approx(60.0, abs=10.0)
    (tmp_path / "go").touch()
    outcome = ended(run)
    assert outcome.status == FINISHED
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)


def test_nothing_is_ordered_again_that_the_money_does_not_pay_for(
    start: Callable[..., ClusterRun], tmp_path: Path
) -> None:
    run, provider = start("sleep 60", usd=1.5 * MINUTE_USD), LocalProvider(tmp_path / "home")
    wait_for(lambda: run._processes)
    provider.preempt(*provider.list())
    wait_for(lambda: run._lost_usd and run._held is not None)  # it would order others
    now_s = run._timeline.now_s()
    assert now_s <= run.lasts_s(1.5 * MINUTE_USD) <= run._timeline.now_s()
    time.sleep(0.3)
    outcome = run.cut(now_s, "no money")
    assert (outcome.status, outcome.bill_usd) == (CUT, pytest.approx(MINUTE_USD))
    run._thread.join(60.0)
    assert not run._thread.is_alive()
    [lease] = LeaseRegister(tmp_path / "home").leases()
    assert len(lease.machines) == 1


def test_three_losses_are_a_failure_and_are_paid_for(
    start: Callable[..., ClusterRun], provider: Slow, tmp_path: Path
) -> None:
    run = start("sleep 1000")
    for losses in range(3):
        wait_for(
            lambda n=losses: len(run._processes) and len(LeaseRegister(tmp_path / "home").leases()) == n + 1
        )
        provider.preempt(*provider.list())
        wait_for(lambda n=losses: run._lost_usd == pytest.approx((n + 1) * MINUTE_USD))
    outcome = ended(run)
    assert (outcome.status, outcome.bill_usd) == (FAILED, pytest.approx(3 * MINUTE_USD))
    assert outcome.why.startswith("its machines were lost 3 times: ")
    assert len(LeaseRegister(tmp_path / "home").leases()) == 3


def test_what_was_charged_for_a_machine_that_was_gone_is_taken_off_later_bills(
    provider: Slow, tmp_path: Path
) -> None:
    write_price(tmp_path / "prices.csv", 1e5, minimum_s=0.0)
    register = LeaseRegister(tmp_path / "home")
    clusters = rentals.ClusterPool(provider, register, 60.0, 300.0)
    held = clusters.take("m3.medium", 1, "run", provider.offer("m3.medium").price)
    clusters.boot(held, threading.Event(), lambda: float("inf"))
    provider.preempt(*provider.list())
    time.sleep(0.2)
    charged_usd = held.settle()  # nobody has noticed yet
    assert held.rental.preempted()
    clusters.give_back(held, "it was taken away")
    clusters.close()
    assert charged_usd > bill_usd(tmp_path) > 0
    assert clusters.settle_unassigned(0.0) == 0.0
    assert charged_usd + clusters.settle_unassigned(1e4) == pytest.approx(bill_usd(tmp_path) + 1e4)


def test_an_order_under_way_is_on_the_bill_of_the_run_that_is_cut(
    start: Callable[..., ClusterRun], provider: Slow
) -> None:
    run = start()
    assert provider.ordered.wait(60.0)
    outcome = run.cut(0.2, "not wanted")
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)


def test_cut_while_it_ends_it_has_the_same_bill(start: Callable[..., ClusterRun]) -> None:
    run = start()
    run._thread.join(120.0)
    assert not run._thread.is_alive()
    # It has ended, and nobody has looked yet.
    outcome = run.cut(5.0, "too late")
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)
    assert ended(run).bill_usd == outcome.bill_usd


def bill_usd(tmp_path: Path) -> float:
    return sum(lease.cost_usd(time.time()) for lease in LeaseRegister(tmp_path / "home").leases())


def test_a_price_that_rises_between_offer_and_launch_is_not_paid(
    start: Callable[..., ClusterRun], provider: Slow, tmp_path: Path
) -> None:
    provider.dearer = 1.5
    run = start("sleep 60", usd=1.2 * MINUTE_USD)
    wait_for(lambda: run.lasts_s(1.2 * MINUTE_USD) != float("inf"))
    assert bill_usd(tmp_path) == 0.0
    # With more money the higher price is right.
    run.lasts_s(1.6 * MINUTE_USD)
    wait_for(lambda: run._processes)
    outcome = run.cut(1.0, "enough")
    assert outcome.bill_usd == pytest.approx(1.5 * MINUTE_USD)


def test_nothing_is_ordered_before_it_is_known_what_it_may_cost(
    start: Callable[..., ClusterRun], tmp_path: Path
) -> None:
    run = start("sleep 60", usd=None)
    time.sleep(0.15)
    assert LeaseRegister(tmp_path / "home").leases() == ()
    run.lasts_s(0.9 * MINUTE_USD)
    time.sleep(0.15)
    assert run.cut(0.8, OUT_OF_MONEY).bill_usd == 0.0
    assert LeaseRegister(tmp_path / "home").leases() == ()


def test_what_it_takes_to_end_machines_is_kept_back(
    start: Callable[..., ClusterRun], provider: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Billed by the second, a run that is cut at its last cent costs more until its machines are gone."""
    monkeypatch.setattr(rentals, "END_S", 60.0)  # longer than it takes on a busy computer
    write_price(tmp_path / "prices.csv", minimum_s=0.0)
    provider.end_s = 0.3
    usd = 63.0 * 0.067 / 3600
    run = start("sleep 1000", usd=usd)
    wait_for(lambda: run.lasts_s(usd) <= run._timeline.now_s() + 0.01)
    run.cut(run._timeline.now_s(), OUT_OF_MONEY)
    # Not kept for another run either: there is nothing left to pay for that.
    wait_for(lambda: LeaseRegister(tmp_path / "home").leases()[0].state == RELEASED)
    assert 1.0 * 0.067 / 3600 < bill_usd(tmp_path) <= usd
