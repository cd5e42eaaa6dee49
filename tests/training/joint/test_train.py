"""Requests that leave their machines open: what is refused, and what a study of one costs and keeps.

The machines are rented for real, under leases; to be quick, models are trained by the local engine beside
them. Spark itself is in test_joint_on_spark.py.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import RELEASE_S, Meter
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.errors import BadInput, RunFailed
from prudent.training.engines.engine import ReadableSession, TrainingSession
from prudent.training.engines.local.engine import LocalEngine, open_pool
from prudent.training.engines.local.pool import WorkerPool
from prudent.training.insight.insight import ModelInsight
from prudent.training.joint.cluster import ClusterHandle, ClusterSize, SharedCluster
from prudent.training.joint.job import JointJob
from prudent.training.joint.space import ALGORITHM
from prudent.training.joint.train import (
    joint_ending,
    joint_fractions,
    joint_goal,
    joint_space,
    joint_strategy,
    joint_study,
    train_jointly,
)
from prudent.training.leaderboard import (
    ENSEMBLE,
    Leaderboard,
    SpendingUpdated,
    TrainingEvent,
    TrainingTrialEnded,
)
from prudent.training.request.errors import BadRequest
from prudent.training.request.request import TrainingRequest
from prudent.training.request.resources import lease_run_name
from prudent.training.search.allocation import TIME_UP
from prudent.training.search.board import TrialBoard
from prudent.training.search.search import run_study
from prudent.training.search.stopping import SearchLimits, TrialTimes
from prudent.tuning.jobs.job import Job, RentingJob, SupervisingJob
from prudent.tuning.result import Result
from prudent.tuning.study.active_trials import FREE
from prudent.tuning.tune import summary

pytestmark = pytest.mark.timeout(300)
PRICES = "name,vcpus,memory_gb,price_usd_per_h,minimum_s\nsmall,1,1,0.36,0\nlarge,2,1,0.72,0\n"
OPEN: dict[str, Any] = {
    "domain": "binomial-classification",
    "dataset": {"path": "rows.csv", "target": "kind"},
    "methods": [
        {
            "algorithm": "binomial-logistic-regression",
            "hyperparameters": [{"param": "regParam", "values": [0.01, 0.1, 1.0]}],
        },
        {
            "algorithm": "decision-tree-classification",
            "hyperparameters": [{"param": "maxDepth", "values": [1, 3]}],
        },
    ],
    "machines": {"types": ["small", "large"], "count": 1},
    "fractions": [0.3, 1.0],
    "parameterSearch": "random",
    "budget": "$1",
}


def request(**more: Any) -> TrainingRequest:
    return TrainingRequest.parse({**OPEN, **more})


# What is refused


@pytest.mark.parametrize(
    ("more", "path", "words"),
    [
        ({"machines": {"type": ["small"]}}, "machines.types", "missing"),
        ({"machines": {"types": ["m5.large"], "cuont": [1]}}, "machines.cuont", 'mean "count"'),
        ({"machines": {"types": []}}, "machines.types", "empty"),
        ({"machines": {"types": ["a"], "count": [1, 0]}}, "machines.count[1]", "greater than or equal to 1"),
        ({"machines": {"types": ["a", "b", "a"]}}, "machines.types[2]", "twice"),
        ({"machine": "m5.large"}, "machine", "keep one of the two"),
        (
            {"computationalResources": {"instances": [{"ec2Instance": "m5.large"}]}},
            "computationalResources",
            "keep one",
        ),
        ({"parameterSearch": "frugal"}, "parameterSearch", "nephele"),
        ({"parallelism": 2}, "parallelism", "leave it out"),
        ({"fractions": [0.1, 0.5]}, "fractions", "add 1"),
        ({"fractions": [0.1, 2]}, "fractions[1]", "less than or equal to 1"),
        ({"fractions": [1], "parameterSearch": "fabulinus"}, "fractions", "below 1"),
        ({"goal": "minimise cots_usd"}, "goal", 'mean "cost_usd"'),
        ({"machines": None}, "fractions", "goes with machines"),
    ],
)
def test_errors_name_their_place(more: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        request(**more)
    assert words in {found.path: found.message for found in refused.value.errors}[path]


def test_what_cannot_be_is_told_before_anything_is_written(tmp_path: Path) -> None:
    def said(asked: TrainingRequest, engine: str = "spark", **more: Any) -> str:
        with pytest.raises(BadInput) as refused:
            train_jointly(asked, engine, tmp_path / "out", where="local", home=tmp_path, **more)
        assert not (tmp_path / "out").exists()
        return str(refused.value)

    types = {"types": ["m5.lage"]}
    assert "--engine spark" in said(request(), "local")
    assert "--cluster" in said(request(), cluster="2*m5.large")
    assert (
        'at budget: Machines that are left open cost money as they are tried; give an amount such as "$2".'
        in (said(request(budget="20 trials")))
    )
    poor = request(machines={"types": ["m5.xlarge", "m5.large"], "count": [3, 2]}, budget="$0.003")
    assert said(poor) == (
        "The cheapest of the machines cost $0.0032 at least, and the budget is $0.003; raise it, or name "
        "smaller types."
    )
    assert 'machines.types: Unknown machine type "m5.lage". Did you mean "m5.large"?' in (
        said(request(machines=types))
    )


def test_without_methods_only_those_are_tried_that_tell_any_number_of_classes_apart(
    tmp_path: Path,
) -> None:
    said = {**OPEN, "domain": "classification", "machines": {"types": ["m5.large"]}}
    del said["methods"]
    space = joint_space(TrainingRequest.parse(said), LocalProvider(tmp_path))
    names = set(space[ALGORITHM].values)
    assert {"multinomial-logistic-regression", "random-forest-classification"} <= names
    assert not {"binomial-logistic-regression", "linear-support-vector-machine"} & names


def test_a_search_has_shares_of_the_data_where_it_begins_on_parts() -> None:
    plain = {"parameterSearch": None, "fractions": None}
    asked = request(**plain)
    assert (joint_strategy(asked), joint_fractions(asked), joint_goal(asked)) == (
        "nephele",
        (0.1, 0.3, 1.0),
        "maximise score",
    )
    assert joint_fractions(request(fractions=None)) == (1.0,)
    assert joint_strategy(request(parameterSearch=None, fractions=[1])) == "lynceus"
    foretelling = request(parameterSearch="fabulinus", fractions=None)
    assert joint_goal(foretelling) == "maximise score at full data"
    assert joint_goal(request(goal="minimise cost_usd subject to score >= 0.9")).startswith("minimise cost")


def test_what_is_left_open_is_part_of_what_is_asked() -> None:
    assert request().fingerprint() != request(fractions=[0.5, 1]).fingerprint()
    assert request().fingerprint() == request(budget="$2").fingerprint()


# What a study does


@dataclass
class Rented:
    """Machines under a lease; `trouble` can be made."""

    rental: Rental
    trouble: str | None = None

    def abort(self) -> None:
        self.rental.release()


class Warm(LocalEngine):
    """The local engine on processes that are kept for all tests: loading libraries takes long."""

    def __init__(self, processes: WorkerPool) -> None:
        super().__init__()
        self._processes = processes

    def pool(self, parallelism: int, work: Path, algorithms: tuple[str, ...]) -> WorkerPool:
        return self._processes


@dataclass
class Bench:
    """A request with machines of this computer; trials may hang when their model is to be written."""

    folder: Path
    engine: LocalEngine
    hanging: bool = False
    ending_s: float = RELEASE_S
    begins_s: float = 0.0
    """How long it takes until a trial begins."""
    made: list[Rented] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    hook: Callable[[Rented], None] = lambda rented: None

    @property
    def provider(self) -> LocalProvider:
        return LocalProvider(self.folder / "home", self.folder / "prices.csv")

    @property
    def register(self) -> LeaseRegister:
        return LeaseRegister(self.folder / "home")

    def bill_usd(self) -> float:
        return sum(lease.cost_usd(math.inf) for lease in self.register.leases())

    def cluster_opener(
        self, asked: TrainingRequest, meter: Meter
    ) -> Callable[[ClusterSize, int], tuple[ClusterHandle, Callable[[], TrainingSession]]]:
        run = lease_run_name(self.folder / "out")

        def rent(kind: ClusterSize, number: int) -> tuple[ClusterHandle, Callable[[], TrainingSession]]:
            rented = Rented(
                Rental(
                    self.provider,
                    kind.type,
                    kind.count,
                    run=run,
                    register=self.register,
                    lease_s=60.0,
                )
            )
            self.made.append(rented)
            meter.add(rented.rental)

            def opened() -> TrainingSession:
                assert all(one.rental.lease.released_s is not None for one in self.made[:-1])
                rented.rental.launch().wait_ready()
                work = self.folder / f"work{number}"
                work.mkdir(exist_ok=True)
                session = _Closing(self.engine.open(asked, work, 1), rented, self)
                self.hook(rented)
                return session

            return rented, opened

        return rent

    def study(self, asked: TrainingRequest, left_s: float = math.inf, most: int | None = None) -> Result:
        space = joint_space(asked, self.provider)
        trials = self.folder / "trials"
        trials.mkdir(exist_ok=True)
        self.board = TrialBoard(space, trials, lambda: "mcc", lambda event: None)
        meter = Meter(asked.budget.usd, self.bill_usd(), self.ending_s)
        shared_cluster = SharedCluster(self.cluster_opener(asked, meter), meter)
        limits = SearchLimits(FREE, 1, asked.budget.usd, left_s, most)
        self.job = job = JointJob(asked, space, self.provider, shared_cluster, trials, TrialTimes(limits))
        assert isinstance(job, Job)
        assert isinstance(job, RentingJob)
        assert isinstance(job, SupervisingJob)
        study = joint_study(asked, job, self.folder / "study.jsonl")
        interrupted = run_study(job, study, self.board)
        result = summary(study, job.name, interrupted)
        self.ended = joint_ending(result, job)
        assert self.provider.list() == ()
        assert meter.spent_usd() == pytest.approx(self.bill_usd())
        return result


class _Closing:
    """The engine's session, with which its machines end."""

    def __init__(self, session: TrainingSession, rented: Rented, bench: Bench) -> None:
        self._session, self._rented, self._bench = session, rented, bench
        self.shape, self.description = session.shape, session.description
        assert isinstance(session, ReadableSession)
        self.test_rows, self.rows_of = session.test_rows, session.rows_of

    def start(self, spec: Any) -> Any:
        if self._rented.trouble:
            raise RunFailed(self._rented.trouble)
        time.sleep(self._bench.begins_s)
        self._bench.started.append(spec.number)
        if self._bench.hanging:
            spec.folder.mkdir()
            os.mkfifo(spec.folder / "model.onnx")
        return self._session.start(spec)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self._rented.abort()  # the processes stay


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    named = tuple(method["algorithm"] for method in OPEN["methods"])
    with open_pool(1, tmp_path_factory.mktemp("pool"), named) as pool:
        yield pool


@pytest.fixture
def bench(tmp_path: Path, processes: WorkerPool) -> Bench:
    rng = np.random.default_rng(1)
    lines = [
        f"{a:.4f},{b:.4f},{kind}"
        for kind, centre in (("early", -1.0), ("late", 1.0))
        for a, b in rng.normal(centre, 0.9, size=(100, 2))
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,kind", *lines]))
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "home").mkdir()
    return Bench(tmp_path, Warm(processes))


def asked_of(bench: Bench, **more: Any) -> TrainingRequest:
    return request(dataset={"path": str(bench.folder / "rows.csv"), "target": "kind"}, **more)


def test_all_is_searched_machines_are_kept_and_nothing_is_paid_twice(bench: Bench) -> None:
    asked = asked_of(bench)
    first = bench.study(asked, most=3)
    assert bench.started == [1, 2, 3]
    result = bench.study(asked, most=6)
    assert bench.started == list(range(1, 7))  # those of the session before were not run again
    kept = [trial.to_dict() for trial in result.trials[:3]]
    assert kept == [trial.to_dict() for trial in first.trials]
    wanted = [trial.configuration["machines"] for trial in result.trials]
    changes = 1 + sum(one != other for one, other in itertools.pairwise(wanted))
    assert len(bench.made) in (changes, changes + 1)  # a session begins with new ones
    assert {one["machines"] for one in map(dict, (t.configuration for t in result.trials))} == {
        "1*small",
        "1*large",
    }
    entries = bench.board.entries
    assert len(entries) == 6
    assert {entry.fraction for entry in entries} == {0.3, 1.0}
    assert len({(entry.algorithm, str(entry.hyperparameters)) for entry in entries}) > 2
    assert all((Path(entry.model_path) / "model.onnx").exists() for entry in entries)
    assert result.spent_usd == pytest.approx(bench.bill_usd(), abs=1e-5)
    assert bench.ended == "6 trials were made"


def test_the_budget_holds_for_all_that_machines_cost(bench: Bench) -> None:
    """The trial never ends, and the machine costs $0.0002 a second until it is given back.

    More is kept back for that than the busiest of computers needs.
    """
    closing_s = bench.ending_s = 120.0
    bench.begins_s = 0.5
    budget_usd = (closing_s + 2.0) * 0.72 / 3600
    bench.hanging = True
    result = bench.study(asked_of(bench, machines={"types": ["large"]}, budget={"usd": budget_usd}))
    bill_usd = bench.bill_usd()
    assert 1.0 * 0.72 / 3600 <= bill_usd <= budget_usd  # it was used, for as long as somebody looked
    assert result.spent_usd == pytest.approx(bill_usd, abs=1e-5)
    assert {trial.status for trial in result.trials} == {"cut"}
    assert "is spent" in bench.ended


Train = Callable[..., Leaderboard]


@pytest.fixture
def train(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Train:
    """`train_jointly` with the local engine on the machines that it rents."""

    def on_machines(request: TrainingRequest, *said: Any) -> Any:
        *_, meter, _, told = said
        rent = bench.cluster_opener(request, meter)

        def cluster_opener(
            kind: ClusterSize, number: int
        ) -> tuple[ClusterHandle, Callable[[], TrainingSession]]:
            cluster, begin = rent(kind, number)

            def opened() -> TrainingSession:
                session = begin()
                told(session)
                return session

            return cluster, opened

        return cluster_opener

    monkeypatch.setattr("prudent.training.joint.train.SparkClusterOpener", on_machines)

    def run(asked: TrainingRequest, **more: Any) -> Leaderboard:
        place = f"local:{bench.folder / 'prices.csv'}"
        home = bench.folder / "home"
        board = train_jointly(asked, "spark", bench.folder / "out", where=place, home=home, **more)
        assert bench.provider.list() == ()
        assert board.spent_usd == pytest.approx(bench.bill_usd(), abs=1e-9)
        return board

    return run


def test_the_leaderboard_of_a_request_tells_what_its_machines_cost(bench: Bench, train: Train) -> None:
    events: list[TrainingEvent] = []
    board = train(asked_of(bench, budget={"usd": 1.0, "trials": 2}), watch=events.append)
    assert len([entry for entry in board.entries if entry.algorithm != ENSEMBLE]) == 2
    assert all((Path(entry.model_path) / "model.json").exists() for entry in board.entries)
    assert (board.budget_usd, board.over_usd) == (1.0, 0.0)
    assert [event for event in events if isinstance(event, SpendingUpdated)][-1].total_usd == pytest.approx(
        board.spent_usd
    )


def test_it_ends_as_any_other_request_on_the_machines_that_are_there(bench: Bench, train: Train) -> None:
    asked = asked_of(bench, budget={"usd": 1.0, "trials": 4}, test=0.2, machines={"types": ["small"]})
    board = train(asked)
    best = board.entries[0]
    single = [entry for entry in board.entries if entry.algorithm != ENSEMBLE]
    assert all(entry.refitted and entry.rows_trained == 200 for entry in single)
    assert all(entry.fraction == 1.0 for entry in single)  # a share judged them, all rows trained them
    assert bench.started == [1, 2, 3, 4, *bench.started[4:]]
    assert sorted(bench.started[4:]) == [1, 2, 3, 4]
    assert all(entry.test_score is not None and entry.interval is not None for entry in single)
    assert best.interval is not None
    assert best.interval[0] <= best.score <= best.interval[1]
    found = ModelInsight.read(Path(best.model_path))
    assert found is not None
    assert found.importance is not None
    assert (board.guess, board.unfinished) == (0.0, "")
    assert board.ended == "4 trials were made"

    # To go on needs no machines, and answers the same.
    leases = len(bench.register.leases())
    again = train(asked, resume=True)
    assert len(bench.register.leases()) == leases
    told = [(entry.algorithm, entry.score, entry.interval, entry.refitted) for entry in board.entries]
    assert [(one.algorithm, one.score, one.interval, one.refitted) for one in again.entries] == told
    assert (again.warnings, again.tied, again.unfinished) == (board.warnings, board.tied, "")


def test_what_two_types_of_machines_gave_is_trained_on_all_rows_once(bench: Bench, train: Train) -> None:
    only = [{"algorithm": "binomial-logistic-regression", "hyperparameters": []}]
    board = train(asked_of(bench, methods=only, fractions=[1.0], parameterSearch="grid"))
    assert [entry.machines for entry in board.entries] == ["1*small", "1*large"]
    assert [entry.refitted for entry in board.entries] == [True, False]
    assert bench.started == [1, 2, board.entries[0].trial]


def test_without_machines_at_the_end_that_is_told(bench: Bench, train: Train) -> None:
    """The only machine is lost when the models have been trained: they are ranked all the same."""
    asked = asked_of(bench, budget={"usd": 1.0, "trials": 2}, machines={"types": ["small"]})

    def lose(event: TrainingEvent) -> None:
        if isinstance(event, TrainingTrialEnded) and event.result.trial == 2:
            bench.made[-1].trouble = "The machine was taken back"

    board = train(asked, watch=lose)
    assert [entry.refitted for entry in board.entries] == [False, False]
    assert board.notes[-1] == (
        "The best model was not looked at closer or trained on all rows, because no machines were left at "
        "the end of the search; raise the budget and continue with --resume."
    )


def test_money_for_the_end_is_kept_back(bench: Bench) -> None:
    """From the first model on a share of the budget is nobody's but the end's, and it is given out there."""
    bench.study(asked_of(bench), most=1)
    job, study = bench.job, bench.job.study
    assert study is not None
    assert job.keeps_money
    assert 0 < study.ledger.reserved_usd <= 0.2
    job.free_kept()
    assert study.ledger.reserved_usd == 0
    assert not job.keeps_money


def test_a_trial_whose_machines_are_lost_begins_again_on_others(bench: Bench) -> None:
    def lose(rented: Rented) -> None:
        if len(bench.made) == 1:
            rented.trouble = "The machine was taken back"

    bench.hook = lose
    result = bench.study(asked_of(bench), most=1)
    assert [trial.status for trial in result.trials] == ["finished"]
    assert len(bench.made) == 2
    assert result.spent_usd == pytest.approx(bench.bill_usd(), abs=1e-5)  # also the lost one's


def test_when_the_time_is_up_the_trial_is_cut_and_none_follows(bench: Bench) -> None:
    bench.hanging = True
    result = bench.study(asked_of(bench), left_s=0.5)
    assert [trial.why for trial in result.trials] == [TIME_UP]
    assert bench.ended == "the 500 ms are over"
    assert [failure.cut for failure in bench.board.failures] == [True]


def test_wrong_data_end_the_request_and_not_ten_trials(bench: Bench) -> None:
    bench.engine = LocalEngine()
    asked = request(dataset={"path": str(bench.folder / "rows.csv"), "target": "kidn"})
    with pytest.raises(BadInput, match='"kind"'):
        bench.study(asked)
    assert len(bench.made) == 1
    facts = [json.loads(line)["fact"] for line in (bench.folder / "study.jsonl").read_text().splitlines()]
    assert "told" not in facts
