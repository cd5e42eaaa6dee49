"""What machines may cost, on machines of this computer: none is ordered without money, each is paid once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.register import Register
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.providers.local import LocalProvider
from prudent.core.space import Space
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.jobs.cluster_run import ClusterRun
from prudent.tuning.trial import CUT, FINISHED, Outcome

MINUTE_USD = 0.067 / 60
"""What the shortest use of the machine costs."""
CONFIGURATION = {"cluster": "1*m3.medium"}


class Slow(LocalProvider):
    """Orders take their time."""

    def launch(self, order: Any) -> Any:
        time.sleep(0.5)
        return super().launch(order)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ClusterRun]]:
    (tmp_path / "job").mkdir()
    provider = Slow(tmp_path / "home")
    space = Space([MachineParameter("cluster", ["m3.medium"], [1])])
    jobs = []

    def begin(command: str = "true", number: int = 1) -> ClusterRun:
        job = ClusterCommandJob(
            command, space, provider, register=Register(tmp_path / "home"), directory=tmp_path / "job"
        )
        jobs.append(job)
        return job.start(CONFIGURATION, number)

    yield begin
    for job in jobs:
        job.release()
    assert provider.list() == ()


def ended(run: ClusterRun) -> Outcome:
    while not isinstance(event := run.next(60.0), Outcome):
        assert event is not None
    return event


def test_the_minimum_that_was_paid_is_there_to_be_used(start: Callable[..., ClusterRun]) -> None:
    run = start("sleep 0.5")
    assert run.lasts_s(MINUTE_USD) == float("inf")  # nothing was ordered yet
    while not run._held or run._held.rental.lasts_s(1.0) is None:
        time.sleep(0.01)
    assert 50.0 < run.lasts_s(MINUTE_USD) < 61.0
    assert 110.0 < run.lasts_s(2 * MINUTE_USD) < 121.0
    outcome = ended(run)
    assert outcome.status == FINISHED
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)


def test_nothing_is_ordered_again_that_the_money_does_not_pay_for(
    start: Callable[..., ClusterRun], tmp_path: Path
) -> None:
    run, provider = start("sleep 60"), LocalProvider(tmp_path / "home")
    run.lasts_s(1.5 * MINUTE_USD)
    while not run._processes:
        time.sleep(0.01)
    provider.preempt(*provider.list())
    while not run._lost_usd:
        time.sleep(0.01)
    now_s = run._timeline.now_s()
    assert run.lasts_s(1.5 * MINUTE_USD) == pytest.approx(now_s, abs=0.5)
    time.sleep(0.5)
    outcome = run.cut(now_s, "no money")
    assert (outcome.status, outcome.bill_usd) == (CUT, pytest.approx(MINUTE_USD))
    run._thread.join(10.0)
    [lease] = Register(tmp_path / "home").leases()
    assert len(lease.machines) == 1


def test_an_order_under_way_is_on_the_bill_of_the_run_that_is_cut(start: Callable[..., ClusterRun]) -> None:
    run = start()
    time.sleep(0.2)
    outcome = run.cut(0.2, "not wanted")
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)


def test_cut_while_it_ends_it_has_the_same_bill(start: Callable[..., ClusterRun]) -> None:
    run = start()
    run._thread.join(30.0)
    # It has ended, and nobody has looked yet.
    outcome = run.cut(5.0, "too late")
    assert outcome.bill_usd == pytest.approx(MINUTE_USD)
    assert ended(run).bill_usd == outcome.bill_usd
