"""The training part of the demo: real models from a CSV file, a report, and rows that no model has seen."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("sklearn")
pytest.importorskip("onnxruntime")

from prudent.cli import demo as demo_module
from prudent.cli.demo import training
from prudent.cli.demo import tuning as tuning_part
from prudent.cli.demo.training import DATA_FILE, KEPT_OUT, TARGET, TrainingDemo, training_demo, tumours
from prudent.core.errors import BadInput, RunFailed
from prudent.core.space import Space
from prudent.training.leaderboard import TrainingTrialEnded
from prudent.training.search.search import INTERRUPTED
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.tune import tune

FEW = "8 trials"
"""As much on a busy machine as on an idle one."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingDemo, str, Path]:
    """A demo, what it said, and its folder, where an earlier one has left its models."""
    folder, said = tmp_path_factory.mktemp("demo") / "deep" / "training", io.StringIO()
    note = folder / "models" / ".work" / "request.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"request": {"dataset": {"path": f"elsewhere/{DATA_FILE}"}}}))
    (folder / "models" / "9-of-the-earlier-one").mkdir()
    return training_demo(Console(file=said, width=120), folder, seed=1, budget=FEW), said.getvalue(), folder


def test_models_are_ranked_by_what_they_are_worth(done: tuple[TrainingDemo, str, Path]) -> None:
    board = done[0].board
    assert len(board.entries) + len(board.failures) == 8
    assert len({entry.algorithm for entry in board.entries}) >= 3, "no algorithm was named"
    scores = [entry.score for entry in board.entries]
    assert scores == sorted(scores, reverse=True)
    assert board.best is not None
    assert board.best.metric == "mcc"
    assert board.best.score > 0.85


def test_the_best_predicts_rows_that_were_kept_out(done: tuple[TrainingDemo, str, Path]) -> None:
    demo, said, _ = done
    assert [found.truth for found in demo.predictions] == [row[TARGET] for row in tumours(1)[1]]
    assert sum(found.said == found.truth for found in demo.predictions) >= KEPT_OUT - 1
    for found in demo.predictions:
        assert found.probability is None or 0.5 <= found.probability <= 1
    assert f"{KEPT_OUT} tumours that no model has seen" in said


def test_it_says_the_best_so_far_the_ranking_and_where_things_are(
    done: tuple[TrainingDemo, str, Path],
) -> None:
    demo, said, folder = done
    best = demo.board.best
    assert best is not None
    bests = [line for line in said.splitlines() if line.startswith("  best after ")]
    assert 1 <= len(bests) <= len(demo.board.entries)
    leading = max(
        demo.board.entries, key=lambda entry: (entry.algorithm != "ensemble", entry.validation_score)
    )
    assert f"{leading.validation_score:.4f} by {leading.algorithm}" in bests[-1]
    assert f"  1  {best.algorithm}" in said
    assert "  6  " not in said, "five are enough"
    assert demo.report == folder / "models" / "report.html"
    assert not (folder / "models" / "9-of-the-earlier-one").exists()
    assert str(demo.report) in said
    assert best.algorithm in demo.report.read_text(encoding="utf-8")


def test_an_end_at_ctrl_c_and_one_without_a_model_are_told(done: tuple[TrainingDemo, str, Path]) -> None:
    demo = done[0]
    stopped = replace(demo, board=replace(demo.board, ended=INTERRUPTED))
    assert stopped.interrupted
    assert str(training._conclusion(stopped)[0]).startswith("Interrupted")
    [line] = training._conclusion(replace(demo, board=replace(demo.board, entries=())))
    assert str(line).startswith("No model: ")


def test_json_has_ranking_predictions_and_report(done: tuple[TrainingDemo, str, Path]) -> None:
    said = json.loads(json.dumps(done[0].to_dict(), allow_nan=False))
    assert said["entries"][0]["rank"] == 1
    assert len(said["predictions"]) == KEPT_OUT
    assert set(said["predictions"][0]) == {"truth", "said", "probability"}
    assert said["report"].endswith("report.html")


def test_the_data_are_all_rows_but_those_kept_out(done: tuple[TrainingDemo, str, Path]) -> None:
    with (done[2] / DATA_FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 569 - KEPT_OUT
    assert {row[TARGET] for row in rows} == {"benign", "malignant"}
    written = {tuple(row.values()) for row in rows}
    assert not written & {tuple(str(value) for value in row.values()) for row in tumours(1)[1]}


def test_another_seed_keeps_out_other_rows() -> None:
    assert tumours(1)[1] == tumours(1)[1]
    assert tumours(1)[1] != tumours(2)[1]


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "models" / "theirs.txt"
    theirs.parent.mkdir()
    theirs.write_text("years of work")
    with pytest.raises(BadInput, match="holds something else"):
        training_demo(None, tmp_path, budget="1 trials")
    theirs.unlink()
    note = tmp_path / "models" / ".work" / "request.json"
    note.parent.mkdir()
    note.write_text(json.dumps({"request": {"dataset": {"path": "theirs.csv"}}}))
    with pytest.raises(BadInput, match="holds the models of a request already"):
        training_demo(None, tmp_path, budget="1 trials")
    assert note.exists()


@pytest.mark.soak  # `prudent train` ends at Ctrl-C with what is known in test_train.py
def test_ctrl_c_ends_it_with_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    silent = training._view

    def impatient(asked: Any, console: Console | None) -> Any:
        view = silent(asked, console)
        monkeypatch.setattr(
            view, "watch", lambda event: isinstance(event, TrainingTrialEnded) and _interrupt()
        )
        return view

    monkeypatch.setattr(training, "_view", impatient)
    try:
        demo = training_demo(None, tmp_path, budget="500 trials")
    finally:
        signal.signal(signal.SIGINT, before)
    assert demo.interrupted
    assert 1 <= len(demo.board.entries) < 100
    assert len(demo.predictions) == KEPT_OUT


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_without_its_packages_the_rest_of_the_demo_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_module, "find_spec", lambda name: None)
    assert demo_module._training_part(None, tmp_path, 0) is None
    assert 'pip install "prudent[demo]"' in capsys.readouterr().err


def test_a_training_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> TrainingDemo:
        raise RunFailed("The disk is full; make room.")

    monkeypatch.setattr(training, "training_demo", fail)
    assert demo_module._training_part(None, tmp_path, 0) is None
    assert capsys.readouterr().err == "prudent: The disk is full; make room.\n"


def test_the_command_trains_after_it_has_tuned(
    prudent: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    done: tuple[TrainingDemo, str, Path],
) -> None:
    """Tuning and training are other tests'; a job of two configurations and their models stand for them."""
    job = FunctionJob(
        lambda x: {"accuracy": x}, Space.parse({"x": [0.1, 0.9]}), measures=["accuracy"], price=0.1
    )
    tuned = tune(job, "maximise accuracy", budget_usd=1.0, strategy="grid")
    monkeypatch.setattr(tuning_part, "tuning_demo", lambda *_: ([tuned], None))
    folders: list[Path] = []
    answers = [done[0], replace(done[0], board=replace(done[0].board, entries=()))]

    def trained(console: Console | None, folder: Path, *_: object) -> TrainingDemo:
        folders.append(folder)
        return answers.pop(0)

    monkeypatch.setattr(training, "training_demo", trained)
    said = prudent("demo", "--json", "--folder", tmp_path / "out")
    assert said.code == 0
    assert len(said.json["training"]["predictions"]) == KEPT_OUT
    assert folders == [tmp_path / "out" / "training"]
    assert said.json["grid"]["best"]["configuration"] == {"x": 0.9}
    none = prudent("demo", "--no-workflow", "--no-service", "--folder", tmp_path / "out")
    assert none.code == 1, "no model is not what was asked for"
