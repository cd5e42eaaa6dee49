"""Money of executions on rented machines: leases and the commands' own clocks beside the book."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.billing import Bill
from prudent.cloud.leases.lease import Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.machine_delays import DelayRecords
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.provider import LaunchFailed, LaunchOrder, Offer
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute.money import bill_fact
from prudent.workflows.execute.rented_workers import BootTooLong
from prudent.workflows.execute.run import WorkflowRun
from prudent.workflows.execute.runner import execute

Step = Callable[..., Activation]
TYPE = "m3.medium"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def dollar_a_second(tmp_path: Path) -> str:
    """A place with machines of this computer at a dollar a second."""
    path = tmp_path / "prices.csv"
    path.write_text(f"name,price_usd_per_h,minimum_s\n{TYPE},3600,0\n")
    return f"local:{path}"


def _plan(workflow: Workflow, machines: int = 1) -> Plan:
    fleet = Fleet(tuple(Vm(f"v{at}", TYPE, usd_per_h=0.067) for at in range(1, machines + 1)))
    return schedule(workflow, fleet, World(bandwidth_mb_s=1e6), scheduler="heft")


def _leased_usd(home: Path) -> float:
    """By the files of the leases alone: a dollar for every second from launch to release."""
    paid = 0.0
    for path in (home / "leases").glob("*.json"):
        said = json.loads(path.read_text())
        assert said["state"] == "released"
        paid += sum(said["released_s"] - one["launched_s"] for one in said["machines"])
    return paid


@pytest.mark.timeout(300)
def test_a_run_stops_before_its_budget_is_passed_and_goes_on_with_more(
    step: Step, ground: Path, tmp_path: Path, home: Path, dollar_a_second: str
) -> None:
    """The second activation never ends by itself. Its own clock says when it began and when it last lived."""
    go, clock, alive = tmp_path / "go", tmp_path / "clock", "date +%s.%N > new; mv new alive"
    workflow = Workflow(
        "waits",
        (
            step("first", f"date +%s.%N > '{clock}'; cp in mid", "in", "mid"),
            step(
                "second",
                f"until [ -e '{go}' ]; do {alive}; sleep 0.1; done; cp mid out",
                "mid",
                "out",
            ),
        ),
    )
    plan, folder = _plan(workflow), tmp_path / "run"
    for _ in range(50):  # so slow is this computer said to be, that it is early enough on any
        DelayRecords(LeaseRegister(home).home).note("local", "give_back", 5.0)
    again: dict[str, Any] = {"directory": ground, "on": dollar_a_second, "home": home, "check": False}
    run = execute(plan, workflow, folder, budget_usd=24.0, anyway=True, **again)
    assert run.stopped is not None
    assert "remain" in run.stopped
    assert provider_of("local", home).list() == ()
    assert run.cost_usd == pytest.approx(_leased_usd(home))
    assert 0 < run.cost_usd <= 24.0
    assert run.over_usd == 0
    [lease] = LeaseRegister(home).leases()
    assert lease.machines[0].launched_s < float((ground / "alive").read_text()) <= (lease.released_s or 0.0)
    # The run's clock counts the boot: the first command began when its own clock says so, since the order.
    began_s = float(clock.read_text()) - lease.machines[0].launched_s
    assert run.execution.assignments["first"].start_s == pytest.approx(began_s, abs=3.0)
    assert began_s > 0.2
    with pytest.raises(BadInput, match="--budget"):
        execute(plan, workflow, folder, budget_usd=run.cost_usd + 1.0, resume=True, **again)
    assert len(LeaseRegister(home).leases()) == 1, "nothing is rented before the forecast"
    go.touch()
    run = execute(plan, workflow, folder, budget_usd=500.0, resume=True, **again)
    assert run.succeeded
    assert run.skipped == 1
    assert len(LeaseRegister(home).leases()) == 2
    assert run.cost_usd == pytest.approx(_leased_usd(home))
    assert [rent.vm for rent in run.vm_usage] == ["v1", "v1"]
    assert run.forecast is not None


def test_what_is_forecast_to_be_too_dear_rents_nothing(
    letters: Workflow, ground: Path, tmp_path: Path, home: Path, dollar_a_second: str
) -> None:
    plan = _plan(letters, 2)
    told: dict[str, Any] = {"directory": ground, "on": dollar_a_second, "home": home}
    with pytest.raises(BadInput, match=r"expected to cost .*budget of \$0\.50; give --budget \$"):
        execute(plan, letters, tmp_path / "run", budget_usd=0.5, **told)
    with pytest.raises(BadInput, match=r"expected to take .*give --deadline \"1 min\""):
        execute(plan, letters, tmp_path / "run", deadline_s=0.5, **told)
    assert LeaseRegister(home).leases() == ()
    with pytest.raises(BadInput, match="leave out"):
        execute(plan, letters, tmp_path / "run", budget_usd=0.5, replay=0.1, **told)


def test_less_than_the_shortest_use_of_its_machines_rents_none(
    letters: Workflow, ground: Path, tmp_path: Path, home: Path
) -> None:
    """Though it is begun anyway: two machines are billed for an hour each, at least."""
    (tmp_path / "prices.csv").write_text(f"name,price_usd_per_h,minimum_s\n{TYPE},36,3600\n")
    with pytest.raises(BadInput, match=r"2 machines costs \$72.00 at least.* \$71.00 of the budget of \$71"):
        execute(
            _plan(letters, 2), letters, tmp_path / "run", directory=ground, home=home, anyway=True,
            on=f"local:{tmp_path / 'prices.csv'}", budget_usd=71.0,
        )  # fmt: skip
    assert LeaseRegister(home).leases() == ()


def test_machines_that_do_not_come_up_in_time_are_given_back(
    letters: Workflow, ground: Path, tmp_path: Path, home: Path, dollar_a_second: str
) -> None:
    """Less than a second after the order all money is needed for the give-back."""
    run = execute(
        _plan(letters), letters, tmp_path / "run", directory=ground, on=dollar_a_second, home=home,
        deadline_s=0.05, anyway=True, check=False,
    )  # fmt: skip
    assert run.stopped is not None
    assert "4 of 4 activations remain" in run.stopped
    assert provider_of("local", home).list() == ()
    assert run.cost_usd == pytest.approx(_leased_usd(home))
    with pytest.raises(RunFailed, match="4 of 4 activations remain"):
        run.check()
    assert issubclass(BootTooLong, RunFailed)


def test_a_price_that_rose_since_the_forecast_is_not_paid_from_a_budget(
    letters: Workflow,
    ground: Path,
    tmp_path: Path,
    home: Path,
    dollar_a_second: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = LocalProvider.offer

    def yesterday(self: LocalProvider, name: str, spot: bool = False) -> Offer:
        offer = offered(self, name, spot)
        return replace(offer, price=replace(offer.price, usd_per_h=offer.price.usd_per_h / 2))

    monkeypatch.setattr(LocalProvider, "offer", yesterday)
    with pytest.raises(LaunchFailed, match=r"costs .* now, more than"):
        execute(
            _plan(letters), letters, tmp_path / "run", directory=ground, on=dollar_a_second, home=home,
            budget_usd=100.0,
        )  # fmt: skip
    assert provider_of("local", home).list() == ()
    assert WorkflowRun.read(tmp_path / "run").cost_usd == 0.0


@pytest.mark.soak  # the bill of a killed session is looked at below, without a kill
@pytest.mark.timeout(300)
def test_what_a_killed_program_had_rented_is_on_the_bill(
    step: Step, ground: Path, tmp_path: Path, home: Path, dollar_a_second: str
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"touch '{begun}'; until [ -e '{go}' ]; do sleep 0.1; done; cp in out"
    workflow = Workflow("waits", (step("a", script, "in", "out"),))
    workflow.write(tmp_path / "w.json")
    plan = tmp_path / "plan.json"
    _plan(workflow).save(plan)
    words = [sys.executable, "-m", "prudent.cli.main", "execute", plan, tmp_path / "w.json", "--resume"]
    words += ["--where", dollar_a_second, "--directory", ground, "--json"]
    told: dict[str, Any] = {"env": {**os.environ, "PRUDENT_HOME": str(home)}, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **told) as first:
        while not begun.exists():
            assert first.poll() is None
            time.sleep(0.05)
        first.kill()
    refused = subprocess.run([*words, "--budget", "$0.01"], **told, stderr=subprocess.PIPE, check=False)
    assert refused.returncode == 2, refused.stderr
    assert WorkflowRun.read(plan.with_suffix(".run")).cost_usd == pytest.approx(_leased_usd(home))
    go.touch()
    done = subprocess.run(words, **told, check=True)
    assert len(LeaseRegister(home).leases()) == 2
    assert json.loads(done.stdout)["cost_usd"] == pytest.approx(_leased_usd(home))


class TestBill:
    price = Price(3.6, "2025-01-01", "catalog", minimum_s=60)

    def lease(self, run: str, cluster: str, launched_s: float, released_s: float | None) -> Lease:
        order = LaunchOrder(cluster, run, "me", TYPE, 1, 0.0)
        machine = LeasedMachine(f"{cluster}-0", launched_s, self.price)
        state = "up" if released_s is None else "released"
        return Lease(
            order, "local", {"local": ""}, LeaseHolder.here(), launched_s, launched_s + 300, self.price,
            state, (machine,), released_s,
        )  # fmt: skip

    def test_only_the_run_s_own_machines_are_on_it(self, home: Path) -> None:
        register = LeaseRegister(home)
        for lease in (
            self.lease("mine", "a", 1000.0, 1100.0),
            self.lease("mine", "b", 1000.0, 1010.0),
            self.lease("other", "c", 1000.0, 9000.0),
        ):
            register.add(lease)
        bill = Bill.of_run(register, "mine")
        assert [line.cluster for line in bill.lines] == ["a", "b"]
        assert bill.total_usd() == pytest.approx(0.1 + 0.06)

    def test_what_a_killed_session_rented_is_paid_for(self, home: Path) -> None:
        """Its journal has no bill, but the register has its leases, also those that the reaper ended."""
        register = LeaseRegister(home)
        register.add(self.lease("run", "killed", 1005.0, 1105.0))
        facts: list[dict[str, Any]] = [
            {"fact": "run"},
            {"fact": "session", "at_s": 0.0, "wall_s": 1000.0},
            {"fact": "rented", "vm": "v1", "cluster": "killed", "at_s": 5.0},
            {"fact": "session", "at_s": 40.0, "wall_s": 2000.0},
        ]
        fact = bill_fact(Bill.of_run(register, "run"), facts)
        assert fact["total_usd"] == pytest.approx(0.1)
        [row] = fact["machines"]
        assert (row["vm"], row["from_s"], row["until_s"]) == ("v1", 5.0, 105.0)

    def test_what_the_register_forgot_stays_on_the_bill(self, home: Path) -> None:
        register = LeaseRegister(home)
        register.add(self.lease("run", "old", 1000.0, 1100.0))
        first = bill_fact(Bill.of_run(register, "run"), [])
        register.forget(time.time())
        register.add(self.lease("run", "new", 5000.0, 5100.0))
        assert bill_fact(Bill.of_run(register, "run"), [first])["total_usd"] == pytest.approx(0.2)


class TestAtThePricesOfThePlan:
    """Workers that nobody rents: a budget is kept as if they were."""

    def test_a_budget_is_kept_and_stays_the_run_s(
        self, step: Step, plan_for: Callable[..., Plan], ground: Path, tmp_path: Path, site: Any
    ) -> None:
        """Two machines at $3.60 an hour: 0.6 cents are 3 seconds; 100 activations are too many."""
        steps = tuple(step(f"a{at}", f"touch done{at}", "in", f"done{at}", 1.0) for at in range(100))
        workflow = Workflow("many", steps)
        told: dict[str, Any] = {"directory": ground, "address": site.address}
        plan, folder = plan_for(workflow), tmp_path / "run"
        with pytest.raises(BadInput, match=r"expected to cost .*budget of \$0\.006;"):
            execute(plan, workflow, folder, budget_usd=0.006, **told)
        slow = tuple(step(f"a{at}", "sleep 60", "in", "", 1.0) for at in range(4))
        waits = Workflow("slow", slow)
        run = execute(
            plan_for(waits), waits, folder, budget_usd=0.006, anyway=True, check=False, retries=0, **told
        )
        assert run.stopped is not None
        assert run.execution.unfinished == ("a0", "a1", "a2", "a3")
        with pytest.raises(BadInput, match="the budget of"):  # it is remembered
            execute(plan_for(waits), waits, folder, resume=True, **told)
        assert WorkflowRun.read(folder).budget_usd == 0.006
