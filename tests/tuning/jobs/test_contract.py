"""What every job promises a study; each implementation runs the whole of it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.jobs.command import CommandJob
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.job import Job, Run
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.trial import CUT, FINISHED, Outcome, Progress

Follow = Callable[..., tuple[list[Progress], Outcome]]

SPACE = Space.parse({"depth": [1, 2, 4], "share": [0.5, 1.0]})
CHOSEN = {"depth": 2, "share": 0.5}
RUN_S = 0.3
STEP_S = 0.1


def _table(folder: Path, price: float = 3.6) -> TableJob:
    rows, checks = ["id,depth,share,time_s,price,error"], ["id,elapsed_s,error,progress"]
    for number, point in enumerate(SPACE.configurations()):
        error = 1 / point["depth"]
        rows.append(f"{number},{point['depth']},{point['share']},{RUN_S},{price},{error}")
        checks += [f"{number},{STEP_S * step},{error + 2 - step},{step / 3}" for step in (1, 2)]
    (folder / "runs.csv").write_text("\n".join(rows))
    (folder / "checks.csv").write_text("\n".join(checks))
    return TableJob.read_csv(
        folder / "runs.csv",
        parameters=["depth"],
        price="price",
        measures=["error"],
        fraction="share",
        progress=folder / "checks.csv",
    )


HELD = {"depth": 4, "share": 0.5}
"""A live run of this shows its first report and then waits until a file "go" is there."""


def _working(folder: Path, depth: int, share: float) -> Iterator[dict[str, float]]:
    for step in (1, 2):
        time.sleep(STEP_S)
        yield {"error": 1 / depth + 2 - step, "progress": step / 3}
        while depth == 4 and not (folder / "go").exists():
            time.sleep(0.01)
    time.sleep(STEP_S)
    yield {"error": 1 / depth}


def _simulated(configuration: dict[str, Any]) -> Iterator[dict[str, float]]:
    error = 1 / configuration["depth"]
    for step in (1, 2):
        yield {"error": error + 2 - step, "progress": step / 3, "elapsed_s": STEP_S * step}
    return {"error": error, "time_s": RUN_S}


def _function(folder: Path, price: float = 3.6) -> FunctionJob:
    work = partial(_working, folder)
    return FunctionJob(work, SPACE, ["error"], price, fraction="share", grace_s=0.05)


def _virtual(folder: Path, price: float = 3.6) -> FunctionJob:
    return FunctionJob(_simulated, SPACE, ["error"], price, fraction="share", virtual=True)


_SCRIPT = """
import json, os, sys, time
error = 1 / int(sys.argv[1])
for step in (1, 2):
    time.sleep(0.1)
    print("PRUDENT", json.dumps({"error": error + 2 - step, "progress": step / 3}))
    while sys.argv[1] == "4" and not os.path.exists("go"):
        time.sleep(0.01)
time.sleep(0.1)
print("PRUDENT", json.dumps({"error": error}))
"""


def _command(folder: Path, price: float = 3.6) -> CommandJob:
    script = folder / "work.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-S", str(script), "{depth}"]
    return CommandJob(
        command, SPACE, ["error"], price, fraction="share", logs=folder / "logs", directory=folder
    )


MAKERS: dict[str, Callable[..., Job]] = {
    "table": _table,
    "function": _function,
    "virtual": _virtual,
    "command": _command,
}


@dataclass
class Case:
    make: Callable[..., Job]
    folder: Path

    @property
    def job(self) -> Job:
        return self.make(self.folder)

    def start(self, chosen: dict[str, Any] = CHOSEN) -> Run:
        return self.job.start(dict(chosen), 1)


@pytest.fixture(params=MAKERS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(MAKERS[request.param], tmp_path)


def test_it_has_the_shape_of_a_job(case: Case, follow: Follow) -> None:
    job = case.job
    assert isinstance(job, Job)
    assert job.name
    assert job.measures == ("error",)
    assert job.fraction == "share"
    assert isinstance(job.virtual, bool)
    run = job.start(dict(CHOSEN), 1)
    assert isinstance(run, Run)
    follow(run)


def test_a_run_ends_with_every_measure(case: Case, follow: Follow) -> None:
    _, outcome = follow(case.start())
    assert outcome.status == FINISHED
    assert outcome.started
    assert outcome.measures == {"error": pytest.approx(0.5)}
    assert outcome.time_s == pytest.approx(RUN_S) if case.job.virtual else outcome.time_s >= RUN_S


def test_progress_comes_in_order_and_before_the_end(case: Case, follow: Follow) -> None:
    shown, outcome = follow(case.start())
    times = [progress.elapsed_s for progress in shown]
    assert times == sorted(times)
    assert times[-1] <= outcome.time_s
    assert [progress.measures["error"] for progress in shown[:2]] == [1.5, 0.5]
    assert [progress.done for progress in shown[:2]] == [pytest.approx(1 / 3), pytest.approx(2 / 3)]


def test_nothing_happens_before_it_does(case: Case) -> None:
    job, began_s = case.job, time.monotonic()
    run = job.start(dict(CHOSEN), 1)
    assert run.next(STEP_S / 2) is None
    assert job.virtual or time.monotonic() - began_s >= STEP_S / 2
    run.cut(STEP_S / 2, "seen enough")


def test_an_answer_never_lies_after_the_moment_asked_for(case: Case) -> None:
    run, until_s = case.start(), 0.0
    while not isinstance(event := run.next(until_s), Outcome):
        if event is None:
            until_s += 0.1
            assert until_s < 120
        else:
            assert event.elapsed_s <= until_s
    assert event.time_s <= until_s


def test_a_cut_run_keeps_what_it_showed_until_then(case: Case) -> None:
    run = case.start(HELD)
    first = run.next(120.0)
    assert isinstance(first, Progress)
    outcome = run.cut(first.elapsed_s, "too dear")
    (case.folder / "go").touch()
    assert outcome == Outcome(CUT, first.elapsed_s, {"error": 1.25}, "too dear")


def test_a_cut_before_anything_was_shown_has_no_measures(case: Case) -> None:
    assert case.start().cut(0.0, "not wanted") == Outcome(CUT, 0.0, {}, "not wanted")


def test_prices_are_known_before_a_run_and_stay(case: Case) -> None:
    price = case.job.price(dict(CHOSEN))
    assert isinstance(price, Price)
    assert price.usd_per_h == 3.6
    assert price == case.job.price({"depth": "2", "share": 0.5})
    assert price.source


@pytest.mark.parametrize("wrong", [{"depht": 2, "share": 1.0}, {"depth": 3, "share": 1.0}, {"depth": 2}])
def test_a_wrong_configuration_is_refused(case: Case, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"depth|share"):
        case.job.price(wrong)
    with pytest.raises(BadInput, match=r"depth|share"):
        case.job.start(wrong, 1)


def test_every_configuration_of_the_space_can_be_priced(case: Case) -> None:
    job = case.job
    prices = [job.price(configuration).usd_per_h for configuration in job.space.configurations()]
    assert len(prices) == 6
    assert all(math.isfinite(price) for price in prices)


def test_the_fingerprint_tells_jobs_apart_and_only_these(case: Case) -> None:
    assert case.job.fingerprint() == case.job.fingerprint()
    assert case.job.fingerprint() != case.make(case.folder, price=7.2).fingerprint()


def test_no_two_kinds_of_job_share_a_fingerprint(tmp_path: Path) -> None:
    assert len({make(tmp_path).fingerprint() for make in MAKERS.values()}) == len(MAKERS)
