"""Budgets of requests on rented machines: what the cloud's own book says is what the leaderboard says.

All of it is on a clock of the test's own; the cloud's book shares nothing with leases, meter and ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange
from prudent.cloud.providers.provider import Instance
from prudent.core.errors import BadInput, RunFailed
from prudent.training.leaderboard import Leaderboard, SpendingUpdated, TrainingEvent
from prudent.training.models.output import OutputFolder
from prudent.training.request.request import TrainingRequest
from prudent.training.request.resources import cluster_trial_price
from prudent.training.search.search import INTERRUPTED
from prudent.training.train import run_training

from .rented import Cloud, Cluster, OnMachines
from .test_search import CLOCKED, Clock, TimedRun, asked

HOUR_S = 3600.0
CENT = 0.01 * HOUR_S
"""The price of a machine, in dollars per hour, that costs a cent a second."""

Train = Callable[..., Leaderboard]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in CLOCKED:
        monkeypatch.setattr(f"prudent.{module}.time", made)
    monkeypatch.setattr("prudent.cloud.meter._LOOK_S", 0.002)
    return made


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Train on machines of a cloud; every machine is gone afterwards."""

    def run(
        cloud: Cloud,
        cluster_request: ClusterRequest,
        budget: str,
        takes_s: float,
        data_s: float = 0.0,
        earlier_usd: float = 0.0,
        values: Sequence[float] = (0.0, 1.0),
        refits: bool = False,
        **more: Any,
    ) -> Any:
        request = TrainingRequest.parse(
            asked(list(values), parameterSearch="grid", parallelism=1, budget=budget, **more)
        )
        cluster = Cluster(cloud, cluster_request, tmp_path / "leases", request.budget.usd)
        cluster.meter.earlier_usd = earlier_usd
        engine = OnMachines(cluster, takes_s, data_s, refits)
        output = OutputFolder(tmp_path / "out", request, engine.name, earlier_usd > 0)
        events: list[TrainingEvent] = []
        board = run_training(request, engine, output, cluster, watch=events.append)
        assert cloud.running == 0
        assert board.spent_usd == pytest.approx(cloud.bill_usd(), rel=1e-9)
        assert [event for event in events if isinstance(event, SpendingUpdated)][
            -1
        ].total_usd == board.spent_usd
        return board

    return run


def test_machines_are_given_back_in_time_while_they_boot_and_read_data(clock: Clock, train: Train) -> None:
    """Boot and data take 90 s at two cents each, and the budget is $0.80."""
    cloud = Cloud(clock, {"a": 2 * CENT}, boot_s=20.0, end_s=3.0)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$0.80", takes_s=1.0, data_s=70.0)
    assert 0.5 < cloud.bill_usd() <= 0.80
    assert board.entries == ()
    assert "the budget of $0.80 was spent before its machines were ready" in board.ended
    assert board.over_usd == 0


def test_a_trial_on_four_machines_costs_four_machines(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT})
    board = train(cloud, ClusterRequest.exactly(4, "a"), "$2", takes_s=30.0)
    assert [entry.cost_usd for entry in board.entries] == [pytest.approx(1.20, rel=1e-3)]
    assert board.failures[0].cost_usd > 0.3  # the second one was cut when the money was gone
    assert 1.6 < cloud.bill_usd() <= 2.0
    assert board.ended == "the budget of $2.00 is spent"


def test_a_budget_for_a_part_of_a_trial_is_not_passed(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT}, end_s=2.0)
    board = train(cloud, ClusterRequest.exactly(4, "a"), "$0.30", takes_s=30.0)
    assert board.entries == ()
    assert [failure.why for failure in board.failures] == ["the budget could not pay for more"]
    assert 0.1 < cloud.bill_usd() <= 0.30


def test_every_type_has_its_price(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"m5.large": 0.096, "m5.4xlarge": 0.768})
    cluster_request = ClusterRequest((MachineRange("m5.large", 1, 1), MachineRange("m5.4xlarge", 3)), 4, 4)
    board = train(cloud, cluster_request, "$2", takes_s=30.0)
    assert len(board.entries) == 2
    assert board.spent_usd == pytest.approx(2.40 * 60 / HOUR_S, rel=1e-2)


def test_a_forecast_knows_every_type_too(clock: Clock, tmp_path: Path) -> None:
    cloud = Cloud(clock, {"m5.large": 0.096, "m5.4xlarge": 0.768})
    cluster_request = ClusterRequest((MachineRange("m5.large", 1, 1), MachineRange("m5.4xlarge", 0, 3)), 2, 4)
    price = cluster_trial_price(Cluster(cloud, cluster_request, tmp_path, None), 1)
    assert price.usd_per_h == pytest.approx(2.40)
    assert "1*m5.large, 3*m5.4xlarge" in price.source


def test_minimums_count(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT}, minimum_s=60.0)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$0.60", takes_s=10.0)
    assert len(board.entries) == 2
    assert board.spent_usd == pytest.approx(0.60)


def test_a_budget_below_the_first_minimum_rents_nothing(clock: Clock, train: Train, tmp_path: Path) -> None:
    cloud = Cloud(clock, {"a": CENT}, minimum_s=60.0)
    with pytest.raises(BadInput, match=r"3\*a costs \$1.80 at least.*raise the budget to \$1.80 or more"):
        train(cloud, ClusterRequest.exactly(3, "a"), "$1.79", takes_s=1.0)
    assert cloud.orders == []
    assert not (tmp_path / "out").exists()


def test_what_earlier_sessions_paid_counts_and_what_they_trained_is_ranked_without_machines(
    clock: Clock, train: Train
) -> None:
    """The first session is stopped by its budget; the second has more, the third no more than was spent."""
    cloud = Cloud(clock, {"a": CENT})
    first = train(cloud, ClusterRequest.exactly(1, "a"), "$0.20", takes_s=10.0)
    assert len(first.entries) == 1
    paid_usd = cloud.bill_usd()
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$0.60", takes_s=10.0, earlier_usd=paid_usd)
    assert len(board.entries) == 2
    assert paid_usd < cloud.bill_usd() <= 0.60
    orders, paid_usd = len(cloud.orders), cloud.bill_usd()
    again = train(
        cloud, ClusterRequest.exactly(1, "a"), f"${paid_usd:.6f}", takes_s=10.0, earlier_usd=paid_usd
    )
    assert [entry.score for entry in again.entries] == [entry.score for entry in board.entries]
    assert len(cloud.orders) == orders


def test_machines_that_were_paid_while_they_booted_are_counted_by_who_goes_on(
    clock: Clock, train: Train
) -> None:
    class Interrupted(Cloud):
        def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
            super().ready(instances, timeout_s)
            if len(self.orders) == 1:
                raise KeyboardInterrupt
            return tuple(instances)

    cloud = Interrupted(clock, {"a": CENT}, boot_s=10.0)
    with pytest.raises(KeyboardInterrupt):
        train(cloud, ClusterRequest.exactly(1, "a"), "$0.60", takes_s=10.0)
    assert cloud.bill_usd() == pytest.approx(0.10)
    with pytest.raises(BadInput, match="continue with --resume"):
        train(cloud, ClusterRequest.exactly(1, "a"), "$0.60", takes_s=10.0)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$0.60", takes_s=10.0, earlier_usd=cloud.bill_usd())
    assert len(board.entries) == 2
    assert cloud.bill_usd() > 0.40


def test_the_provider_is_told_how_much_there_is_money_for(clock: Clock, train: Train) -> None:
    """After the offer the price doubles: what $1 pays for no longer is not rented."""

    class Rising(Cloud):
        def launch(self, order: Any) -> Any:
            self.usd_per_h["a"] = 2 * CENT
            return super().launch(order)

    cloud = Rising(clock, {"a": CENT}, minimum_s=60.0)
    with pytest.raises(RunFailed, match=r"costs \$72/h now, more than the \$60/h"):
        train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=1.0)
    assert cloud.bill_usd() == 0
    cloud.usd_per_h["a"] = CENT
    assert train(cloud, ClusterRequest.exactly(1, "a"), "$1.30", takes_s=1.0).spent_usd == pytest.approx(1.20)


def test_what_reality_costs_beyond_the_budget_is_told(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT}, end_s=60.0)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$0.30", takes_s=100.0)
    assert board.over_usd == pytest.approx(cloud.bill_usd() - 0.30)
    assert board.over_usd > 0.2
    assert board.to_dict()["over_usd"] == board.over_usd


def test_machines_that_do_not_end_are_told_and_the_models_are_kept(
    clock: Clock, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prudent.cloud.clusters.rental._TRY_AGAIN_S", 0.0)
    cloud = Cloud(clock, {"a": CENT}, stubborn=True)
    with pytest.raises(RunFailed, match="does not answer"):
        train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=1.0)
    assert len(list((tmp_path / "out").glob("*-linear-regression-*"))) == 2


def test_by_the_deadline_the_machines_are_gone(clock: Clock, train: Train) -> None:
    cloud, began_s = Cloud(clock, {"a": CENT}, boot_s=10.0, end_s=4.0), clock.now_s
    board = train(cloud, ClusterRequest.exactly(1, "a"), "100 trials", takes_s=30.0, deadline="60 s")
    assert len(board.entries) == 1
    assert board.ended == "the deadline has come"
    assert 50 < clock.now_s - began_s <= 60


def test_without_a_budget_the_machines_are_paid_all_the_same(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT}, boot_s=30.0)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "2 trials", takes_s=10.0)
    assert board.spent_usd == pytest.approx(0.50, rel=1e-3)
    assert board.budget_usd is None
    assert sum(entry.cost_usd for entry in board.entries) == pytest.approx(0.20, rel=1e-3)


def test_what_ctrl_c_ended_on_rented_machines_was_paid_once(
    clock: Clock, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes 5 s into the second trial; the cloud's book says the same in both sessions."""
    cloud, listen = Cloud(clock, {"a": CENT}), TimedRun.next
    stop_s = clock.now_s + 15.0

    def next_or_stop(run: TimedRun, until_s: float) -> Any:
        heard = listen(run, until_s)
        if clock.now_s >= stop_s:
            raise KeyboardInterrupt
        return heard

    with monkeypatch.context() as interrupted:
        interrupted.setattr(TimedRun, "next", next_or_stop)
        first = train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=10.0)
    assert first.ended == INTERRUPTED
    assert len(first.entries) == 1
    assert first.interrupted_usd == pytest.approx(0.05, rel=0.05)
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=10.0, earlier_usd=cloud.bill_usd())
    assert len(board.entries) == 2
    assert board.interrupted_usd == pytest.approx(first.interrupted_usd)
    assert cloud.bill_usd() == pytest.approx(0.25, rel=0.05)


# The end of the search


def test_the_best_are_trained_on_all_rows_while_the_machines_are_there(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT})
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=10.0, refits=True)
    assert [entry.refitted for entry in board.entries] == [True, True]
    assert board.ended == "everything was tried"
    assert 0.40 <= cloud.bill_usd() <= 1.0  # two trials and two models on all rows
    assert board.unfinished == ""


def test_money_for_the_best_on_all_rows_is_kept_back(clock: Clock, train: Train) -> None:
    """The second trial never ends: it is cut while there is money for the first model on all rows."""
    cloud = Cloud(clock, {"a": CENT}, end_s=2.0)
    machine = ClusterRequest.exactly(1, "a")
    board = train(cloud, machine, "$1", takes_s=5.0, values=(0.0, 7.0), refits=True)
    assert [entry.refitted for entry in board.entries] == [True]
    assert [failure.why for failure in board.failures] == ["the budget could not pay for more"]
    assert 0.85 < cloud.bill_usd() <= 1.0
    assert (board.over_usd, board.unfinished) == (0, "")


def test_what_the_money_did_not_pay_for_is_told(clock: Clock, train: Train) -> None:
    """A model on all rows takes longer than money was kept for, and stays as it was judged."""
    cloud = Cloud(clock, {"a": CENT}, end_s=2.0)
    machine = ClusterRequest.exactly(1, "a")
    board = train(cloud, machine, "$1", takes_s=30.0, values=(0.0, 7.0), refits=True)
    assert [entry.refitted for entry in board.entries] == [False]
    assert board.notes == (
        "The best model was not trained on all rows, because the money left did not pay for it; raise the "
        "budget and continue with --resume.",
    )
    assert 0.85 < cloud.bill_usd() <= 1.0


def test_a_request_that_wants_no_more_than_its_trials_pays_for_no_more(clock: Clock, train: Train) -> None:
    cloud = Cloud(clock, {"a": CENT})
    board = train(cloud, ClusterRequest.exactly(1, "a"), "$1", takes_s=10.0, refits=True, refit=False)
    assert not any(entry.refitted for entry in board.entries)
    assert cloud.bill_usd() == pytest.approx(0.20, abs=0.01)
