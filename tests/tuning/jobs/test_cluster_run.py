"""One run on rented machines, on machines that do as they are told: what is told of its end, and to whom."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.cloud.providers.channel import LOST
from prudent.cloud.providers.provider import TRANSIENT, LaunchFailed
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.tuning.jobs import cluster_run
from prudent.tuning.jobs.cluster_run import ClusterRun, ClusterTask
from prudent.tuning.jobs.run_output import TrialLog
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

PRICE = Price(3.6, "", "the test")


class Process:
    """A command over there: what it prints, and what is heard of its end each time somebody asks."""

    def __init__(self, out: str, err: str, codes: Sequence[int | None]) -> None:
        self.stdout, self.stderr = io.BytesIO(out.encode()), io.BytesIO(err.encode())
        self.codes, self.ended, self.over = list(codes), [], threading.Event()

    def wait(self, timeout_s: float) -> int | None:
        if self.codes:
            return self.codes.pop(0)
        return -15 if self.over.wait(min(timeout_s, 0.01)) else None

    def end(self, grace_s: float) -> None:
        self.ended.append(grace_s)
        self.over.set()


class Machines:
    """Clusters, one for each attempt; also their owner, their machines and the way to them.

    `codes` are of the first attempt, `later` of the others; `losses` is what their owner says when asked, and
    `wrong` what goes wrong each time something is done.
    """

    unassigned_usd = 0.25

    def __init__(self, out: str = "", err: str = "", codes: Sequence[int | None] = (0,), **more: Any) -> None:
        self.out, self.err, self.codes, self.later = out, err, codes, more.get("later", codes)
        self.wrong: dict[str, list[Exception]] = more.get("wrong", {})
        self.losses: list[str] = list(more.get("losses", ()))
        self.said: list[tuple[Any, ...]] = []
        self.processes: list[Process] = []
        self.taken: list[Any] = []
        self.in_hand: list[float] = []
        self.up = more.get("up", True)
        self.boots = threading.Event()
        self.boots.set()

    def take(self, type_name: str, count: int, run: str, price: Price) -> Any:
        rental = SimpleNamespace(
            lost=None,
            text="2*m",
            addresses=["10.0.0.1", "10.0.0.2"],
            channel=lambda index: Channel(self, index),
            preempted=lambda: self.losses.pop(0) if self.losses else None,
        )
        left = [0.5]
        held = SimpleNamespace(
            rental=rental,
            up=self.up,
            ordering=threading.Lock(),
            settle=lambda: left.pop() if left else 0.0,
        )
        self.taken.append((type_name, count, run, price))
        return held

    def boot(self, held: Any, stopped: threading.Event, in_hand: Callable[[], float]) -> None:
        self.in_hand.append(in_hand())
        assert self.boots.wait(60)
        self._do("boot")

    def _do(self, what: str, *more: Any) -> None:
        self.said.append((what, *more))
        if self.wrong.get(what):
            raise self.wrong[what].pop(0)

    def give_back(self, held: Any, broken: str = "") -> None:
        self.said.append(("given back", broken))

    def abandon(self, held: Any) -> None:
        self.said.append(("abandoned",))

    def lasts_s(self, held: Any, usd: float) -> float:
        return 1000.0 * usd

    def settle_unassigned(self, own_usd: float) -> float:
        return own_usd + 0.125

    def all_said(self, what: str) -> list[tuple[Any, ...]]:
        return [more for one, *more in self.said if one == what]


class Channel:
    def __init__(self, machines: Machines, index: int) -> None:
        self.machines, self.index = machines, index

    def run(self, command: str, timeout_s: float = 60.0) -> tuple[int, str, str]:
        if "/proc/" not in command:  # readings are asked for beside what the job does
            self.machines._do("run", self.index, command)
        return 127, "", ""

    def put(self, source: Path, folder: str, exclude: Sequence[str]) -> None:
        self.machines._do("put", self.index, source, folder, exclude)

    def get(self, path: str, here: Path) -> None:
        self.machines._do("get", self.index, path, here)

    def start(self, command: str, environment: dict[str, str], folder: str) -> Process:
        self.machines._do("start", self.index, command, environment, folder)
        of_first = self.index == 0
        process = Process(
            self.machines.out if of_first else "",
            self.machines.err if of_first else "",
            (self.machines.codes if len(self.machines.taken) == 1 else self.machines.later)
            if of_first
            else (),
        )
        self.machines.processes.append(process)
        return process


def begin(machines: Machines, **more: Any) -> ClusterRun:
    task: dict[str, Any] = {
        **{
            "number": 3,
            "command": "work",
            "worker": None,
            "environment": {"A": "b"},
            "type": "m",
            "count": 1,
        },
        **{"price": PRICE, "run": "study/3", "source": Path("src"), "exclude": ("x",), "fetch": ()},
        **{"results": None, "measures": ("accuracy",), "grace_s": 2.0, "timeout_s": None, **more},
    }
    logs = task.pop("logs", None) or (TrialLog(None), TrialLog(None))
    return ClusterRun(ClusterTask(**task), machines, logs)  # type: ignore[arg-type]


def ended(run: ClusterRun) -> Outcome:
    while not isinstance(event := run.next(60.0), Outcome):
        assert isinstance(event, Progress)
    run._thread.join(60)
    return event


REPORT = 'PRUDENT {"accuracy": 0.5}\n'


@pytest.mark.parametrize(
    ("out", "err", "code", "status", "why"),
    [
        (REPORT, "", 0, FINISHED, ""),
        (REPORT, "a warning", 0, FINISHED, ""),
        (REPORT + "said", "", 3, FAILED, "exit code 3: said"),
        (REPORT + "said", "cried", 3, FAILED, "exit code 3: cried"),
        ("said", "", 0, FAILED, "reported no accuracy"),
    ],
)
def test_its_end_is_told_with_its_last_words(out: str, err: str, code: int, status: str, why: str) -> None:
    machines = Machines(out, err, [None, code])
    run = begin(machines)
    outcome = ended(run)
    assert outcome.status == status
    assert outcome.why.startswith(why)
    assert bool(outcome.why) == bool(why)
    assert outcome.measures == ({"accuracy": 0.5} if REPORT in out else {})
    # What its machines cost, and what nobody was charged for.
    assert outcome.bill_usd == 0.625
    assert 0.0 <= outcome.overhead_s <= outcome.time_s
    assert machines.all_said("given back") == [[""]]
    assert machines.processes[0].ended == [0.0]
    assert machines.taken == [("m", 1, "study/3", PRICE)]


def test_its_files_are_brought_and_its_results_fetched(tmp_path: Path) -> None:
    machines = Machines(REPORT)
    outcome = ended(begin(machines, fetch=("it's", "b"), results=tmp_path))
    assert outcome.status == FINISHED
    assert machines.all_said("run") == [[0, "rm -rf -- job/'it'\"'\"'s'"], [0, "rm -rf -- job/b"]]
    assert machines.all_said("put") == [[0, Path("src"), "job", ("x",)]]
    there = tmp_path / "trial-0003"
    assert machines.all_said("get") == [[0, "job/it's", there / "it's"], [0, "job/b", there / "b"]]


@pytest.mark.parametrize("code", [0, 2])
def test_what_cannot_be_fetched_or_logged_is_told_and_changes_nothing(code: int, tmp_path: Path) -> None:
    machines = Machines(REPORT, codes=[code], wrong={"get": [OSError("gone")]})
    outcome = ended(begin(machines, fetch=("b",), results=tmp_path))
    problem = "its b could not be fetched: gone"
    assert outcome.why == (f"exit code 2: {REPORT.strip()}; {problem}" if code else problem)
    assert outcome.status == (FAILED if code else FINISHED)
    for which in (0, 1):
        logs = TrialLog(None), TrialLog(None)
        logs[which].problem = "its log is not whole"
        assert ended(begin(Machines(REPORT), logs=logs)).why == "its log is not whole"


def test_workers_know_their_place() -> None:
    machines = Machines(REPORT)
    assert ended(begin(machines, count=3, worker="help")).status == FINISHED
    started = {index: (command, environment) for index, command, environment, _ in machines.all_said("start")}
    shared = {"A": "b", "PRUDENT_MACHINES": "2*m", "PRUDENT_ADDRESSES": "10.0.0.1,10.0.0.2"}
    for index in range(3):
        command = "{ help\n} >> ../worker.log 2>&1" if index else "work"
        assert started[index] == (command, {**shared, "PRUDENT_COUNT": "3", "PRUDENT_INDEX": str(index)})
    assert [process.ended for process in machines.processes] == [[0.0]] * 3
    assert sorted(index for index, *_ in machines.all_said("put")) == [0, 1, 2]


def test_without_a_worker_only_the_first_machine_works() -> None:
    machines = Machines(REPORT)
    ended(begin(machines, count=3))
    assert [index for index, *_ in machines.all_said("start")] == [0]


@pytest.mark.parametrize(("times", "status"), [(2, FINISHED), (3, FAILED)])
def test_machines_lost_before_the_command_began_are_replaced_twice_and_paid_for(
    times: int, status: str
) -> None:
    machines = Machines(REPORT, losses=["spot"] * times, wrong={"put": [OSError("no answer")] * times})
    outcome = ended(begin(machines))
    assert outcome.status == status
    assert outcome.why == ("its machines were lost 3 times: spot" if status == FAILED else "")
    assert len(machines.taken) == cluster_run.LOSSES == 3
    assert outcome.bill_usd == 0.5 * 3 + 0.125
    assert machines.all_said("given back")[:2] == [["spot"], ["spot"]]


@pytest.mark.parametrize("said", [["spot"], []])
def test_a_connection_that_is_lost_is_no_end_of_the_command(said: list[str]) -> None:
    machines = Machines(REPORT, losses=said, codes=[None, LOST], later=[0])
    outcome = ended(begin(machines))
    assert (outcome.status, outcome.bill_usd) == (FINISHED, 1.125)
    why = "spot" if said else "the connection to the first machine was lost"
    assert machines.all_said("given back") == [[why], [""]]


@pytest.mark.parametrize(
    ("count", "code", "attempts", "status"), [(1, 1, 1, FAILED), (2, 1, 2, FINISHED), (2, 0, 1, FINISHED)]
)
def test_several_machines_of_which_one_is_lost_are_no_failure_of_the_command(
    count: int, code: int, attempts: int, status: str
) -> None:
    machines = Machines(REPORT, codes=[code], later=[0], losses=["spot"])
    assert ended(begin(machines, count=count)).status == status
    assert len(machines.taken) == attempts


def test_a_lease_that_was_lost_ends_the_attempt_without_asking() -> None:
    machines = Machines(REPORT, codes=[], later=[0])
    run = begin(machines)
    held = _held(run, machines)
    held.rental.lost = "the lease was lost"
    outcome = ended(run)
    assert (outcome.status, len(machines.taken)) == (FINISHED, 2)
    assert machines.all_said("given back") == [["the lease was lost"], [""]]


def _held(run: ClusterRun, machines: Machines) -> Any:
    """Its machines, once its command has begun."""
    run.lasts_s(math.inf)
    while not machines.processes:
        run._timeline.next(run.elapsed_s() + 0.001)
    return run._held


@pytest.mark.parametrize(
    ("error", "why", "started"),
    [
        (LaunchFailed("no machines", TRANSIENT), "could not start: no machines", False),
        (BadInput("wrong key"), "wrong key", False),
    ],
)
def test_what_cannot_be_booted_has_not_started(error: Exception, why: str, started: bool) -> None:
    machines = Machines(wrong={"boot": [error]}, up=False)
    outcome = ended(begin(machines))
    assert (outcome.status, outcome.why, outcome.started) == (FAILED, why, started)
    assert machines.all_said("given back") == [["it did not come up"]]
    assert outcome.overhead_s == outcome.time_s


def test_a_command_that_fails_to_start_over_there_is_told() -> None:
    machines = Machines(wrong={"start": [OSError("no shell")]})
    outcome = ended(begin(machines))
    assert (outcome.status, outcome.why, outcome.started) == (FAILED, "no shell", True)


@pytest.mark.parametrize(("why", "broken"), [(OUT_OF_MONEY, OUT_OF_MONEY), ("too slow", "")])
def test_a_cut_ends_the_command_and_keeps_the_machines_if_there_is_money(why: str, broken: str) -> None:
    machines = Machines(REPORT, codes=[])
    run = begin(machines)
    _held(run, machines)
    outcome = run.cut(7.0, why)
    run._thread.join(60)
    assert (outcome.status, outcome.time_s, outcome.why) == (CUT, 7.0, why)
    assert outcome.bill_usd == 0.625
    assert machines.processes[0].ended[0] == 2.0
    assert machines.all_said("given back") == [[broken]]


@pytest.mark.parametrize(
    ("why", "then"), [(OUT_OF_MONEY, ("given back", OUT_OF_MONEY)), ("x", ("abandoned",))]
)
def test_a_cut_while_it_boots_leaves_the_machines_to_the_next(why: str, then: tuple[str, ...]) -> None:
    machines = Machines(up=False)
    machines.boots.clear()
    run = begin(machines)
    while run._held is None:
        run._timeline.next(run.elapsed_s() + 0.001)
    outcome = run.cut(1.0, why)
    assert machines.said[-1] == then
    assert (outcome.bill_usd, outcome.overhead_s) == (0.625, 1.0)
    assert machines.processes == []
    machines.boots.set()
    run._thread.join(60)
    assert machines.processes == []


def test_money_is_what_is_left_of_it_after_losses_and_idle_machines() -> None:
    machines = Machines(REPORT, codes=[])
    machines.boots.clear()
    run = begin(machines)
    while run._held is None:
        run._timeline.next(run.elapsed_s() + 0.001)
    before_s = run.elapsed_s()
    found_s = run.lasts_s(1.25)
    assert 1000.0 <= found_s - before_s <= 1000.0 + run.elapsed_s() - before_s
    assert machines.in_hand == [-math.inf]  # until then nobody had said how much there is
    assert run.overhead_s > 0
    held, run._held = run._held, None
    assert run.lasts_s(0.25) == math.inf
    assert run.lasts_s(0.2) <= run.elapsed_s()
    run._held = held
    run.cut(1.0, "")
    machines.boots.set()
    run._thread.join(60)


def test_its_own_time_out_counts_from_the_command_on() -> None:
    machines = Machines(REPORT, codes=[])
    machines.boots.clear()
    run = begin(machines, timeout_s=0.05)
    assert run.due_s() == math.inf
    assert run.next(run.elapsed_s() + 0.01) is None
    machines.boots.set()
    outcome = ended(run)
    assert (outcome.status, outcome.why) == (FAILED, "took longer than its time-out of 0.05 s")
    assert outcome.time_s == pytest.approx(outcome.overhead_s + 0.05)
    assert run.due_s() == outcome.time_s
    assert begin(Machines(REPORT)).due_s() == math.inf
