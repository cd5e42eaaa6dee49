"""The search of a request, with an engine of the test's own that really fits: ridge regression in threads."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.engines.engine import DataShape, ModelFacts, TrainingSession, TrialSpec
from prudent.training.leaderboard import (
    Leaderboard,
    TrainingEvent,
    TrainingTrialEnded,
    TrainingTrialReported,
    TrainingTrialStarted,
)
from prudent.training.models.description import read_description, write_facts
from prudent.training.search.allocation import TIME_UP, TOO_LONG
from prudent.training.search.search import INTERRUPTED
from prudent.training.search.stopping import SAFE_SHARE, SLACK, TRIAL_SHARE
from prudent.training.train import train
from prudent.tuning.study.active_trials import SLICE_S as LONGEST_S
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

ROWS = 300
CLOCKED = ("training.search.stopping", "training.train", "tuning.study.active_trials", "tuning.study.runner")
"""The modules that go by a clock which a test can move."""


class RidgeRun:
    """One fit, in a thread; `regParam` 8 is refused."""

    def __init__(self, session: RidgeSession, spec: TrialSpec) -> None:
        self._spec, self._began_s = spec, time.monotonic()
        self.algorithm, self.penalty = spec.algorithm, float(spec.hyperparameters["regParam"])
        self._done: Future[Outcome] = session.pool.submit(self._fit, session)

    def _fit(self, session: RidgeSession) -> Outcome:
        penalty = self.penalty
        if penalty == 8.0:
            return Outcome(FAILED, self._age_s(), {}, "regParam 8 is refused")
        clock = time.perf_counter()
        rows = max(10, round(self._spec.fraction * len(session.x)))
        x, y = session.x[:rows], session.y[:rows]
        weights = np.linalg.solve(x.T @ x + rows * penalty * np.eye(x.shape[1]), x.T @ y)
        rmse = float(np.sqrt(np.mean((session.x_out @ weights - session.y_out) ** 2)))
        spent_s = time.perf_counter() - clock
        self._spec.folder.mkdir(parents=True)
        facts = ModelFacts(
            "rmse", rmse, -rmse, spent_s, 0.01, None, rows, len(session.y_out), {"numpy": np.__version__}
        )
        write_facts(self._spec.folder, facts)
        (self._spec.folder / "model.onnx").write_bytes(weights.astype(np.float32).tobytes())
        measures = {"score": -rmse, "value": rmse, "train_s": spent_s, "predict_ms": 0.01}
        return Outcome(FINISHED, self._age_s(), measures)

    def _age_s(self) -> float:
        return time.monotonic() - self._began_s

    def next(self, until_s: float) -> Progress | Outcome | None:
        try:
            return self._done.result(None if math.isinf(until_s) else max(until_s - self._age_s(), 0.0))
        except TimeoutError:
            return None

    def cut(self, at_s: float, why: str) -> Outcome:
        self._done.exception()
        shutil.rmtree(self._spec.folder, ignore_errors=True)
        return Outcome(CUT, at_s, {}, why)


class RidgeSession:
    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(threads)
        rng = np.random.default_rng(3)
        x = rng.normal(size=(2 * ROWS, 5))
        y = x @ np.array([3.0, -2.0, 0.5, 0.0, 1.0]) + rng.normal(size=2 * ROWS)
        self.x, self.x_out, self.y, self.y_out = x[:ROWS], x[ROWS:], y[:ROWS], y[ROWS:]
        self.started: list[TrialSpec] = []

    @property
    def shape(self) -> DataShape:
        return DataShape(ROWS, 5, 0, "ridge")

    @property
    def description(self) -> Mapping[str, Any]:
        columns = [{"name": f"x{i}", "kind": "numeric", "categories": []} for i in range(5)]
        return {"columns": columns, "classes": [], "target": "y", "fingerprint": "ridge"}

    def start(self, spec: TrialSpec) -> RidgeRun:
        self.started.append(spec)
        return RidgeRun(self, spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown()


class Ridge:
    """The engine; it remembers what it was asked to train."""

    name = "ridge"

    def __init__(self) -> None:
        self.sessions: list[RidgeSession] = []

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        assert request.dataset is not None
        assert work.is_dir()
        self.sessions.append(RidgeSession(parallelism))
        return self.sessions[-1]

    @property
    def trained(self) -> list[TrialSpec]:
        return [spec for session in self.sessions for spec in session.started]


class Clock:
    """Time that passes only while somebody waits for a trial."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class TimedRun:
    """A fit that takes its time by the clock; `regParam` 7 never ends, and 9 takes longer than others."""

    def __init__(self, engine: Timed, fit: RidgeRun) -> None:
        self._engine, self._fit, self._clock = engine, fit, engine.clock
        self.began_s, self.ended_s = self._clock.now_s, math.inf
        takes_s = 10 * engine.takes_s if fit.algorithm == engine.dear else engine.takes_s
        takes_s = engine.slow_s if fit.penalty == 9.0 else takes_s
        self._takes_s = math.inf if fit.penalty == 7.0 else takes_s

    def next(self, until_s: float) -> Progress | Outcome | None:
        heard_s = self.began_s + min(until_s, self._takes_s) + 1e-9  # never before, by rounding
        self._clock.now_s = max(self._clock.now_s, heard_s)
        if until_s < self._takes_s:
            return None
        self.ended_s = self.began_s + self._takes_s
        outcome = self._fit.next(math.inf)
        assert isinstance(outcome, Outcome)
        return replace(outcome, time_s=self._takes_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        self._clock.now_s += self._engine.ending_s
        self.ended_s = self._clock.now_s
        return self._fit.cut(at_s, why)


class Timed(Ridge):
    """The engine on a clock of the test's own; it knows how long each trial was under way.

    Trials of the `dear` algorithm take ten times as long. A trial that is cut needs `ending_s` to end.
    """

    def __init__(
        self, clock: Clock, takes_s: float, dear: str = "", slow_s: float = 0.0, ending_s: float = 0.0
    ) -> None:
        super().__init__()
        self.clock, self.takes_s, self.dear = clock, takes_s, dear
        self.slow_s, self.ending_s = slow_s or takes_s, ending_s
        self.runs: list[TimedRun] = []

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        session: Any = super().open(request, work, parallelism)
        start = session.start

        def begin(spec: TrialSpec) -> TimedRun:
            self.runs.append(TimedRun(self, start(spec)))
            return self.runs[-1]

        session.start = begin
        opened: TrainingSession = session
        return opened

    @property
    def under_way_s(self) -> float:
        return sum(run.ended_s - run.began_s for run in self.runs)

    @property
    def most_at_once(self) -> int:
        return max(
            sum(other.began_s <= run.began_s < other.ended_s for other in self.runs) for run in self.runs
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the search and the request go by."""
    made = Clock()
    for module in CLOCKED:
        monkeypatch.setattr(f"prudent.{module}.time", made)
    return made


def asked(values: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    method: dict[str, Any] = {"algorithm": "linear-regression"}
    looked = {"values": values} if values else {"range": [1e-4, 100], "scale": "log"}
    method["hyperparameters"] = [{"param": "regParam", **looked}]
    return {"domain": "regression", "dataset": {"path": "rows.csv"}, "methods": [method], **more}


def settings_of(board: Leaderboard) -> list[float]:
    return [float(entry.hyperparameters["regParam"]) for entry in board.entries]


# What comes out


def test_a_grid_tries_every_combination_and_ranks_them(tmp_path: Path) -> None:
    board = train(asked([0.0, 0.01, 1.0, 10.0], parameterSearch="grid"), Ridge(), tmp_path / "out")
    assert sorted(settings_of(board)) == [0.0, 0.01, 1.0, 10.0]
    scores = [entry.score for entry in board.entries]
    assert scores == sorted(scores, reverse=True)
    assert [entry.rank for entry in board.entries] == [1, 2, 3, 4]
    assert settings_of(board)[-1] == 10.0
    assert board.metric == "rmse"
    assert board.entries[0].value == -board.entries[0].score
    assert board.ended == "everything was tried"


def test_the_folder_holds_every_model_by_rank_algorithm_and_score(tmp_path: Path) -> None:
    out = tmp_path / "out"
    board = train(asked([0.0, 1.0], parameterSearch="grid"), Ridge(), out)
    for entry in board.entries:
        folder = Path(entry.model_path)
        assert folder.parent == out
        assert folder.name == f"{entry.rank}-linear-regression-{entry.score:.4f}"
        assert {path.name for path in folder.iterdir()} == {"model.onnx", "model.json", "facts.json"}
        known = read_description(folder)
        assert known.hyperparameters["regParam"] == entry.hyperparameters["regParam"]
        assert known.hyperparameters["maxIter"] == 100
        assert (known.score, known.trial, known.engine) == (entry.score, entry.trial, "ridge")
        assert known.request["path"] == "rows.csv"
    said = json.loads((out / "leaderboard.json").read_text())
    assert [row["score"] for row in said["entries"]] == [entry.score for entry in board.entries]
    lines = (out / "leaderboard.csv").read_text().splitlines()
    assert lines[0].startswith("rank,algorithm,score")
    assert len(lines) == 3


def test_a_failed_trial_is_told_and_the_request_goes_on(tmp_path: Path) -> None:
    board = train(asked([0.0, 8.0, 1.0], parameterSearch="grid"), Ridge(), tmp_path / "out")
    assert sorted(settings_of(board)) == [0.0, 1.0]
    [failure] = board.failures
    assert failure.why == "regParam 8 is refused"
    assert failure.hyperparameters == {"regParam": 8.0}


def test_a_method_that_only_fails_is_given_up(tmp_path: Path) -> None:
    request = asked(None, budget="500 trials", parameterSearch="random")
    request["methods"].append(
        {
            "algorithm": "generalized-linear-regression",
            "hyperparameters": [
                {"param": "regParam", "values": [8.0]},
                {"param": "tol", "range": [1e-6, 1]},
            ],
        }
    )
    board = train(request, Ridge(), tmp_path / "out")
    assert len(board.failures) < 40
    assert len(board.entries) + len(board.failures) == 500


def test_nothing_that_works_is_an_empty_leaderboard(tmp_path: Path) -> None:
    board = train(asked([8.0], parameterSearch="grid"), Ridge(), tmp_path / "out")
    assert board.entries == ()
    assert board.best is None
    assert len(board.failures) == 1


# Limits


def test_random_draws_a_third_of_a_finite_space_when_nothing_limits_it(tmp_path: Path) -> None:
    board = train(asked([i / 10 for i in range(12)], parameterSearch="random"), Ridge(), tmp_path / "out")
    assert len(board.entries) == 4
    assert len(set(settings_of(board))) == 4


@pytest.mark.parametrize("search", ["random", "bayesian-optimization", None, "lynceus"])
def test_a_number_of_trials_is_kept_exactly(tmp_path: Path, search: str | None) -> None:
    board = train(asked(None, parameterSearch=search, budget="7 trials"), Ridge(), tmp_path / "out")
    assert len(board.entries) == 7
    assert board.ended == "7 trials were made"


@pytest.mark.parametrize(("takes_s", "trials"), [(20.0, 6), (33.0, 4), (3600.0, 0)])
def test_money_is_never_overrun(tmp_path: Path, clock: Clock, takes_s: float, trials: int) -> None:
    """Two trials at once share $0.096 an hour: $0.002 are 150 s of one trial."""
    request = asked(None, parameterSearch="random", budget="$0.002", machine="m5.large", parallelism=2)
    engine, rate = Timed(clock, takes_s), 0.048 / 3600.0
    board = train(request, engine, tmp_path / "out")
    bill_usd = engine.under_way_s * rate
    assert 0.9 * 0.002 < bill_usd <= 0.002
    assert board.spent_usd == pytest.approx(bill_usd, rel=1e-6)
    assert board.over_usd == 0
    assert len(board.entries) == trials
    assert board.ended == "the budget of $0.002 is spent"


def test_what_a_trial_needs_to_end_is_paid_and_kept_back_from_then_on(tmp_path: Path, clock: Clock) -> None:
    """Each trial needs 5 s to end: the first time that passes the budget, and is told."""
    rate = 0.096 / 3600.0
    request = asked(None, parameterSearch="random", budget="$0.002", machine="m5.large", parallelism=1)
    engine = Timed(clock, 3600.0, ending_s=5.0)
    board = train(request, engine, tmp_path / "out")
    assert board.spent_usd == pytest.approx(engine.under_way_s * rate, rel=1e-6)
    assert board.over_usd == pytest.approx(board.spent_usd - 0.002)
    assert board.over_usd > 4 * rate


def test_time_is_kept_and_a_trial_that_hangs_is_cut(tmp_path: Path, clock: Clock) -> None:
    request = asked([7.0, 0.0, 0.1], parameterSearch="grid", budget="1 s", parallelism=2)
    began_s = clock.now_s
    board = train(request, Timed(clock, 0.1), tmp_path / "out")
    assert clock.now_s - began_s == pytest.approx(1.0, abs=LONGEST_S)
    assert sorted(settings_of(board)) == [0.0, 0.1]
    assert [failure.why for failure in board.failures] == ["the time was up"]


def test_no_trial_may_use_all_the_time_of_the_others(tmp_path: Path, clock: Clock) -> None:
    request = asked([7.0, 10.0, 11.0], parameterSearch="grid", budget="1 h", parallelism=1)
    engine, began_s = Timed(clock, 60.0), clock.now_s
    board = train(request, engine, tmp_path / "out")
    hung = max(engine.runs, key=lambda run: run.ended_s - run.began_s)
    left_s = began_s + 3600 - hung.began_s
    assert hung.ended_s - hung.began_s == pytest.approx(SAFE_SHARE * left_s, abs=LONGEST_S)
    assert [failure.why for failure in board.failures] == [TOO_LONG]
    assert sorted(settings_of(board)) == [10.0, 11.0]
    assert board.ended == "everything was tried, and the 16 min 00 s left are too short for what was cut"


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(("takes_s", "budget_s", "models"), [(8.9, 17.9, 2), (35.0, 55.0, 1)])
def test_a_trial_that_fits_in_the_time_that_is_left_gets_it(
    tmp_path: Path, clock: Clock, takes_s: float, budget_s: float, models: int, parallelism: int
) -> None:
    request = asked(
        [0.0, 0.1, 0.2], parameterSearch="grid", budget={"time": budget_s}, parallelism=parallelism
    )
    engine, began_s = Timed(clock, takes_s), clock.now_s
    board = train(request, engine, tmp_path / "out")
    assert len(board.entries) == min(models * parallelism, 3)
    assert clock.now_s - began_s <= budget_s + LONGEST_S
    assert "everything" not in board.ended or len(board.entries) == 3


def test_a_grid_comes_back_to_what_was_cut_while_time_lasts(tmp_path: Path, clock: Clock) -> None:
    """The trial with 9.0 takes half an hour: too long while others wait, not when they are done."""
    request = asked([0.0, 9.0, 10.0], parameterSearch="grid", budget="1 h", parallelism=1)
    engine, rate = Timed(clock, 60.0, slow_s=1750.0), 0.096 / 3600.0
    board = train(request, engine, tmp_path / "out")
    spans = [run.ended_s - run.began_s for run in engine.runs]
    assert spans == pytest.approx([60.0, SLACK * TRIAL_SHARE * 3540, 60.0, 1750.0], abs=LONGEST_S)
    assert sorted(settings_of(board)) == [0.0, 9.0, 10.0]
    assert board.failures == ()
    assert board.ended == "everything was tried"
    slow = next(entry for entry in board.entries if entry.hyperparameters["regParam"] == 9.0)
    assert slow.cost_usd == pytest.approx((spans[1] + spans[3]) * rate, rel=1e-6)
    assert board.spent_usd == pytest.approx(engine.under_way_s * rate, rel=1e-6)


def test_with_more_time_a_grid_comes_back_to_what_was_cut_before(tmp_path: Path, clock: Clock) -> None:
    request = asked([0.0, 9.0], parameterSearch="grid", budget="10 min", parallelism=1)
    engine = Timed(clock, 60.0, slow_s=1200.0)
    first = train(request, engine, tmp_path / "out")
    assert [failure.why for failure in first.failures] == [TIME_UP]
    board = train({**request, "budget": "40 min"}, engine, tmp_path / "out", resume=True)
    assert sorted(settings_of(board)) == [0.0, 9.0]
    assert board.failures == ()
    assert board.spent_usd == pytest.approx(engine.under_way_s * 0.096 / 3600.0, rel=1e-6)
    again = train({**request, "budget": "40 min"}, engine, tmp_path / "out", resume=True)
    assert [entry.to_dict() for entry in again.entries] == [entry.to_dict() for entry in board.entries]
    assert len(engine.runs) == 3
    assert again.spent_usd == pytest.approx(board.spent_usd)


def test_a_deadline_ends_it_too(tmp_path: Path, clock: Clock) -> None:
    request = asked(None, parameterSearch="random", budget="100000 trials", deadline="1 h", parallelism=1)
    board = train(request, Timed(clock, 100.0), tmp_path / "out")
    assert board.ended == "the deadline has come"
    assert 3000 < board.time_s <= 3600
    assert len(board.entries) == 35


def test_trials_run_side_by_side(tmp_path: Path, clock: Clock) -> None:
    for parallelism in (1, 4):
        engine = Timed(clock, 100.0)
        request = asked(None, parameterSearch="random", budget="12 trials", parallelism=parallelism)
        board = train(request, engine, tmp_path / str(parallelism))
        assert engine.most_at_once == parallelism
        assert board.time_s == pytest.approx(1200 / parallelism, rel=0.01)


# Same seed, same result


@pytest.mark.parametrize("search", ["random", None, "gp-ei"])
def test_the_same_seed_gives_the_same_models(tmp_path: Path, search: str | None) -> None:
    request = asked(None, parameterSearch=search, budget="8 trials", parallelism=1)
    once, again = (train(request, Ridge(), tmp_path / name) for name in ("a", "b"))
    assert [(e.trial, e.hyperparameters, e.score) for e in once.entries] == [
        (e.trial, e.hyperparameters, e.score) for e in again.entries
    ]
    other = train({**request, "seed": 1}, Ridge(), tmp_path / "c")
    assert settings_of(other) != settings_of(once)


# Interrupted and resumed


@pytest.mark.parametrize("search", ["random", None, "grid"])
def test_an_interrupted_request_answers_and_goes_on_without_paying_twice(
    tmp_path: Path, search: str | None
) -> None:
    values = [i / 20 for i in range(20)] if search == "grid" else None
    request = asked(values, parameterSearch=search, budget="12 trials", parallelism=2)
    whole = train(request, Ridge(), tmp_path / "whole")
    engine, ended = Ridge(), 0

    def stop(event: TrainingEvent) -> None:
        nonlocal ended
        ended += isinstance(event, TrainingTrialEnded)
        if isinstance(event, TrainingTrialEnded) and ended == 5:
            raise KeyboardInterrupt

    first = train(request, engine, tmp_path / "out", watch=stop)
    assert first.ended == INTERRUPTED
    assert len(first.entries) == 5
    assert Path(first.entries[0].model_path).is_dir()
    board = train(request, engine, tmp_path / "out", resume=True)
    assert len(board.entries) == 12
    finished = [spec.number for spec in engine.trained]
    assert len(finished) - len(set(finished)) <= 2  # only what was under way is begun again
    if search is not None:
        assert sorted(settings_of(board)) == sorted(settings_of(whole))
    assert sum(1 for path in (tmp_path / "out").iterdir() if path.is_dir()) == 13


def test_what_ctrl_c_ended_was_paid(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked([0.0, 1.0, 2.0], parameterSearch="grid", budget="$1", machine="m5.large", parallelism=1)
    engine, rate, began_s, listen = Timed(clock, 100.0), 0.096 / 3600.0, clock.now_s, TimedRun.next

    def next_or_stop(run: TimedRun, until_s: float) -> Progress | Outcome | None:
        heard = listen(run, until_s)
        if clock.now_s >= began_s + 250:
            raise KeyboardInterrupt
        return heard

    with monkeypatch.context() as interrupted:
        interrupted.setattr(TimedRun, "next", next_or_stop)
        first = train(request, engine, tmp_path / "out")
    assert first.ended == INTERRUPTED
    assert first.spent_usd == pytest.approx(engine.under_way_s * rate, rel=1e-6)
    assert first.interrupted_usd == pytest.approx(50 * rate, rel=1e-2)
    board = train(request, engine, tmp_path / "out", resume=True)
    assert sorted(settings_of(board)) == [0.0, 1.0, 2.0]
    assert board.spent_usd == pytest.approx(engine.under_way_s * rate, rel=1e-6)
    assert board.interrupted_usd == first.interrupted_usd
    assert board.to_dict()["interrupted_usd"] == first.interrupted_usd


class Endless(Ridge):
    """Trials that go on for ever; when the first one began is written down."""

    def __init__(self, note: Path) -> None:
        super().__init__()
        self._note = note

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        session: Any = super().open(request, work, parallelism)

        class Run:
            def __init__(self) -> None:
                self.began_s = time.monotonic()

            def next(self, until_s: float) -> None:
                time.sleep(max(until_s - (time.monotonic() - self.began_s), 0.0))

        def begin(spec: TrialSpec) -> Run:
            run = Run()
            self._note.write_text(str(run.began_s))
            return run

        session.start = begin
        opened: TrainingSession = session
        return opened


def latest_sign_s(journal: Path) -> float:
    """How long the first trial had lasted when it was last noted that it is alive."""
    lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
    facts = [json.loads(line) for line in lines if line.endswith("\n")]
    return max((fact["lasted_s"].get("1", 0.0) for fact in facts if fact["fact"] == "alive"), default=0.0)


def test_what_a_kill_ended_was_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning, which the trial noted itself, to the kill, but for what the last sign missed."""
    monkeypatch.setattr("prudent.tuning.study.settlement.HEARTBEAT_S", 0.02)
    request = asked([1.0], parameterSearch="grid", budget="$1", machine="m5.large", parallelism=1)
    out, rate = tmp_path / "out", 0.096 / 3600.0
    child = os.fork()
    if child == 0:  # pragma: no cover - the child is killed
        try:
            train(request, Endless(tmp_path / "began"), out)
        finally:
            os._exit(0)
    end_s = time.monotonic() + 60
    while latest_sign_s(out / ".work" / "study.jsonl") <= 0.2:
        assert time.monotonic() < end_s, "no sign of life"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    killed_s = time.monotonic()
    os.waitpid(child, 0)
    board = train(request, Ridge(), out, resume=True)
    lasted_s = killed_s - float((tmp_path / "began").read_text())
    assert 0.2 * rate < board.interrupted_usd <= lasted_s * rate
    assert board.spent_usd == pytest.approx(board.interrupted_usd + board.entries[0].cost_usd)


def test_a_killed_request_goes_on(tmp_path: Path) -> None:
    request = asked(None, parameterSearch="random", budget="12 trials", parallelism=1)
    ended = 0

    def die(event: TrainingEvent) -> None:
        nonlocal ended
        ended += isinstance(event, TrainingTrialEnded)
        if ended == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:  # pragma: no cover - the child is killed
        try:
            train(request, Ridge(), tmp_path / "out", watch=die)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    engine = Ridge()
    board = train(request, engine, tmp_path / "out", resume=True)
    assert len(board.entries) == 12
    assert len(engine.trained) == 12 - 5
    whole = train(request, Ridge(), tmp_path / "whole")
    assert sorted(settings_of(board)) == sorted(settings_of(whole))


def test_a_finished_request_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    request = asked(None, parameterSearch="random", budget="4 trials")
    first = train(request, Ridge(), tmp_path / "out")
    engine = Ridge()
    events: list[TrainingEvent] = []
    board = train(
        {**request, "budget": "6 trials"}, engine, tmp_path / "out", resume=True, watch=events.append
    )
    assert len(engine.trained) == 2
    assert set(settings_of(first)) < set(settings_of(board))
    assert sum(isinstance(event, TrainingTrialEnded) and event.earlier for event in events) == 4
    assert sum(isinstance(event, TrainingTrialStarted) for event in events) == 2


def test_an_output_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("x")
    with pytest.raises(BadInput, match="something else"):
        train(asked([1.0]), Ridge(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        train(asked([1.0]), Ridge(), tmp_path / "file")


def test_models_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    request = asked([1.0, 2.0], parameterSearch="grid")
    train(request, Ridge(), tmp_path / "out")
    with pytest.raises(BadInput, match="--resume"):
        train(request, Ridge(), tmp_path / "out")
    kept = tmp_path / "out" / ".work" / "request.json"
    said = kept.read_text()
    kept.write_text(json.dumps({**json.loads(said), "format": 1}))
    with pytest.raises(BadInput, match="in another form; name another folder"):
        train(request, Ridge(), tmp_path / "out", resume=True)
    kept.write_text(said)
    with pytest.raises(BadInput, match="another request"):
        train(asked([1.0, 3.0], parameterSearch="grid"), Ridge(), tmp_path / "out", resume=True)
    with pytest.raises(BadInput, match="Unknown engine"):
        train(request, "lokal", tmp_path / "new")


# Searches


@pytest.mark.parametrize("search", ["hyperband", "nephele", "bohb", "fabulinus"])
def test_searches_on_parts_of_the_data_end_with_models_on_all_of_it(tmp_path: Path, search: str) -> None:
    engine = Ridge()
    board = train(asked(None, parameterSearch=search, budget="16 trials"), engine, tmp_path / "out")
    shares = [spec.fraction for spec in engine.trained]
    assert min(shares) < 1.0
    assert 1.0 in shares
    assert len(board.entries) <= 16
    told = [entry.transforms["sample"]["fraction"] for entry in board.entries]
    assert sorted(told) == sorted(shares)


def test_the_search_by_default_beats_random_on_average(tmp_path: Path) -> None:
    def best(search: str | None, seed: int) -> float:
        request = {
            "domain": "misc-functions",
            "parameterSearch": search,
            "budget": "40 trials",
            "seed": seed,
            "parallelism": 1,
        }
        found = train(request, Ridge(), tmp_path / f"{search}-{seed}").best
        assert found is not None
        return found.score

    seeds = range(8)
    frugal = np.median([best(None, seed) for seed in seeds])
    random = np.median([best("random", seed) for seed in seeds])
    assert frugal > random


def test_methods_share_the_trials_and_the_cheaper_gets_more(tmp_path: Path, clock: Clock) -> None:
    request = asked(None, budget="40 trials", parallelism=1)
    cheap, dear = "linear-regression", "generalized-linear-regression"
    looked = {"param": "regParam", "range": [500, 5000], "scale": "log"}
    request["methods"].append({"algorithm": dear, "hyperparameters": [looked]})
    board = train(request, Timed(clock, 10.0, dear), tmp_path / "out")
    counts = {name: sum(entry.algorithm == name for entry in board.entries) for name in (cheap, dear)}
    assert 2 <= counts[dear] < 0.5 * counts[cheap]
    assert board.entries[0].algorithm == cheap
    numbers = [entry.trial for entry in board.entries]
    assert len(set(numbers)) == len(numbers)


def test_random_and_grid_take_turns(tmp_path: Path) -> None:
    request = asked(None, parameterSearch="random", budget="10 trials", parallelism=1)
    request["methods"].append({**request["methods"][0], "algorithm": "generalized-linear-regression"})
    board = train(request, Ridge(), tmp_path / "out")
    assert sum(entry.algorithm == "linear-regression" for entry in board.entries) == 5


def test_transforms_are_searched_with_the_rest(tmp_path: Path) -> None:
    request = asked([1.0], parameterSearch="grid")
    request["transforms"] = [
        {"name": "scale", "method": ["standard", "none"]},
        {"name": "pca", "k": {"range": [2, 3]}},
    ]
    engine = Ridge()
    train(request, engine, tmp_path / "out")
    seen = [(spec.transforms["scale"]["method"], spec.transforms["pca"]["k"]) for spec in engine.trained]
    assert sorted(seen) == [("none", 2), ("none", 3), ("standard", 2), ("standard", 3)]
    assert list(engine.trained[0].transforms) == ["scale", "pca"]


def test_late_trials_cost_no_more_than_early_ones(tmp_path: Path) -> None:
    """In calls, which no other work on this computer changes; memory grows by at most 4 kB a trial."""
    import tracemalloc

    ended = calls = 0
    called: dict[int, int] = {}
    taken: dict[int, int] = {}

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    def watch(event: TrainingEvent) -> None:
        nonlocal ended
        ended += isinstance(event, TrainingTrialEnded)
        if isinstance(event, TrainingTrialEnded) and ended in (80, 100, 580, 600):
            called[ended] = calls
            sys.setprofile(count if ended in (80, 580) else None)
        taken[ended] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        request = {"domain": "misc-functions", "parameterSearch": "random", "budget": "600 trials"}
        board = train({**request, "parallelism": 1}, Ridge(), tmp_path / "out", watch=watch)
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
    assert len(board.entries) == 600
    # Whatever a hundred trials take: a table of the interpreter's own may grow once meanwhile, by megabytes.
    assert median(taken[at + 100] - taken[at] for at in (160, 260, 360, 460)) / 100 < 4000
    assert called[600] - called[580] < 1.5 * (called[100] - called[80])


def test_what_did_best_on_a_part_of_the_data_is_trained_on_all_of_them_at_the_end(tmp_path: Path) -> None:
    grown = 0
    for seed in range(5):
        engine, out = Ridge(), tmp_path / str(seed)
        request = asked(None, parameterSearch="hyperband", budget="10 trials", parallelism=1, seed=seed)
        board = train(request, engine, out)
        assert len(engine.trained) <= 10
        order = [spec.number for spec in engine.trained]
        best = max(
            (entry for entry in board.entries if entry.trial in order[:8]), key=lambda entry: entry.score
        )
        if best.transforms["sample"]["fraction"] < 1.0:
            grown += 1
            assert engine.trained[8].fraction == 1.0
            assert engine.trained[8].hyperparameters["regParam"] == best.hyperparameters["regParam"]
        again = train({**request, "budget": "15 trials"}, engine, out, resume=True)
        assert {entry.trial for entry in board.entries} < {entry.trial for entry in again.entries}
        assert len({spec.number for spec in engine.trained}) == len(engine.trained)
    assert grown


# Trials that are not worth their end


class LearningRun(RidgeRun):
    """Tells how it does on more and more rows before it is done."""

    def __init__(self, session: RidgeSession, spec: TrialSpec) -> None:
        penalty, self._told = float(spec.hyperparameters["regParam"]), list[Progress]()
        for stage in range(1, 11):
            x, y = session.x[: 30 * stage], session.y[: 30 * stage]
            weights = np.linalg.solve(x.T @ x + len(x) * penalty * np.eye(x.shape[1]), x.T @ y)
            rmse = float(np.sqrt(np.mean((session.x_out @ weights - session.y_out) ** 2)))
            self._told.append(Progress(stage / 1000, {"score": -rmse}, stage / 10))
        super().__init__(session, spec)

    def next(self, until_s: float) -> Progress | Outcome | None:
        return self._told.pop(0) if self._told else super().next(until_s)


class Learning(Ridge):
    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        session: Any = super().open(request, work, parallelism)

        def begin(spec: TrialSpec) -> LearningRun:
            session.started.append(spec)
            return LearningRun(session, spec)

        session.start = begin
        opened: TrainingSession = session
        return opened


GOOD, POOR = [0.0, 0.001, 0.002, 0.003, 0.004, 0.005], [50.0, 80.0]


def test_a_trial_that_others_outdid_by_then_is_cut_and_stays_cut(tmp_path: Path) -> None:
    engine, out = Learning(), tmp_path / "out"
    request = asked([*GOOD, *POOR], parameterSearch="grid", parallelism=1, earlyStopping=True)
    board = train(request, engine, out)
    assert sorted(settings_of(board)) == GOOD
    assert [failure.why for failure in board.failures] == ["others did better by then"] * 2
    assert all(failure.cut for failure in board.failures)
    assert [failure.hyperparameters["regParam"] for failure in board.failures] == POOR
    again = train(request, engine, out, resume=True)
    assert len(engine.trained) == len(GOOD) + len(POOR)
    assert [failure.to_dict() for failure in again.failures] == [each.to_dict() for each in board.failures]


def test_of_trials_that_talk_each_has_its_turn(tmp_path: Path) -> None:
    """One that has a lot to say keeps nobody from being heard, and cut."""
    heard: list[int] = []

    def watch(event: TrainingEvent) -> None:
        if isinstance(event, TrainingTrialReported):
            heard.append(event.number)

    train(asked(GOOD[:3], parameterSearch="grid", parallelism=3), Learning(), tmp_path / "out", watch=watch)
    assert heard == [1, 2, 3] * 10


def test_the_first_trials_a_grid_and_whoever_does_not_want_it_are_never_cut(tmp_path: Path) -> None:
    wishes: list[tuple[list[float], dict[str, Any]]] = [
        ([*GOOD[:3], *POOR], {"parameterSearch": "grid", "earlyStopping": True}),
        ([*GOOD, *POOR], {"parameterSearch": "grid"}),
        ([*GOOD, *POOR], {"parameterSearch": "random", "earlyStopping": False, "budget": "8 trials"}),
    ]
    for number, (values, more) in enumerate(wishes):
        board = train(asked(values, parallelism=1, **more), Learning(), tmp_path / str(number))
        assert not board.failures
        assert len(board.entries) == len(values)


def test_a_run_that_was_killed_while_its_machines_booted_is_taken_up(tmp_path: Path) -> None:
    """It has left the logs of its cluster, and nothing else."""
    (tmp_path / "out" / "cluster").mkdir(parents=True)
    (tmp_path / "out" / "cluster" / "master.log").write_text("up")
    board = train(asked([0.0, 1.0], parameterSearch="grid"), Ridge(), tmp_path / "out", resume=True)
    assert len(board.entries) == 2
    assert (tmp_path / "out" / "cluster" / "master.log").exists()
