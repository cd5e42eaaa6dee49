"""`prudent train` from the outside: the plan, the answer, the files, resuming, retraining."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.training.models.model import load, retraining_request
from prudent.training.request.request import TrainingRequest

from ..mail_server import Post, serving

Prudent = Callable[..., Any]
PROGRAM = [sys.executable, "-m", "prudent.cli.main"]


@pytest.fixture
def branin(tmp_path: Path) -> Callable[..., Path]:
    def write(**more: Any) -> Path:
        path = tmp_path / "branin.json"
        path.write_text(
            json.dumps(
                {"domain": "misc-functions", "parameterSearch": "random", "budget": "6 trials", **more}
            )
        )
        return path

    return write


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two clouds of points with names for classes."""
    rng = np.random.default_rng(1)
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "kind"])
        for kind, centre in (("early", -1.0), ("late", 1.0)):
            writer.writerows([*point, kind] for point in rng.normal(centre, 0.7, size=(80, 2)))
    return path


def test_the_answer_the_files_and_the_exit_code(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path
) -> None:
    done = prudent("train", branin(), "--out", tmp_path / "out")
    assert done.code == 0
    assert done.err == ""
    for words in (
        "#1 branin x1=",
        "best so far",
        "Best",
        "value",
        "6 models",
        "6 trials were made",
        "Report",
    ):
        assert words in done.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"leaderboard.json", "leaderboard.csv", "report.html", ".work"} < names
    assert len([name for name in names if "-branin-" in name]) == 6


def test_json_is_the_leaderboard_and_nothing_else(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path
) -> None:
    done = prudent("train", branin(), "--out", tmp_path / "out", "--json")
    assert len(done.json["entries"]) == 6
    assert done.json["entries"][0]["rank"] == 1
    assert done.json["report"].endswith("report.html")


def test_a_dry_run_trains_nothing(prudent: Prudent, branin: Callable[..., Path], tmp_path: Path) -> None:
    request = branin(machine="m5.xlarge")
    done = prudent("train", request, "--dry-run", "--out", tmp_path / "out")
    assert done.code == 0
    for words in (
        "misc-functions",
        "random",
        "6 trials",
        "$0.192 an hour",
        "no end of combinations",
        "x1: -5 to 10",
    ):
        assert words in done.out
    assert not (tmp_path / "out").exists()
    seen = prudent("train", request, "--dry-run", "--json").json
    assert seen["methods"][0]["algorithm"] == "branin"
    assert seen["usd_per_h"] == pytest.approx(0.192)


def test_a_dry_run_on_rented_machines_tells_what_all_of_them_cost(
    prudent: Prudent, rows: Path, tmp_path: Path
) -> None:
    request = tmp_path / "request.json"
    instances = [
        {"ec2Instance": "m5.4xlarge", "minInstances": 3},
        {"ec2Instance": "m5.large", "maxInstances": 1},
    ]
    resources = {"instances": instances, "minTotalInstances": 4, "maxTotalInstances": 4}
    asked = {"domain": "classification", "dataset": {"path": str(rows)}, "computationalResources": resources}
    request.write_text(json.dumps(asked))
    done = prudent("train", request, "--dry-run", "--engine", "spark")
    assert "$2.40 an hour" in done.out
    assert "3*m5.4xlarge, 1*m5.large" in done.out
    assert "50 at once" in done.out
    local = prudent("train", request, "--dry-run", "--engine", "spark", "--cluster", "3*m5.large")
    assert "$0.288 an hour" in local.out


def test_the_schema_is_printed(prudent: Prudent) -> None:
    assert prudent("train", "--schema").json["title"] == "TrainingRequest"


def test_options_change_the_request(prudent: Prudent, branin: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("--budget", "3 trials", "--search", "gp-ei", "--seed", 4, "--parallel", 1)
    assert len(prudent("train", branin(), "--out", out, "--json", *arguments).json["entries"]) == 3
    asked = json.loads((out / ".work" / "request.json").read_text())["request"]
    assert (asked["parameterSearch"], asked["seed"], asked["parallelism"]) == ("gp-ei", 4, 1)


def test_going_on_takes_what_is_there(prudent: Prudent, branin: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    prudent("train", branin(), "--out", out)
    again = prudent("train", branin(), "--out", out)
    assert again.code == 2
    assert "--resume" in again.err
    done = prudent("train", branin(), "--out", out, "--resume", "--budget", "8 trials")
    assert done.code == 0
    assert sum(line.startswith("#") for line in done.out.splitlines()) == 2
    assert "8 models" in done.out


def test_a_budget_that_was_passed_is_told(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path
) -> None:
    """Here because it is lowered below what was spent."""
    out, request = tmp_path / "out", branin(budget="40 trials", machine="p3.16xlarge", parallelism=1)
    spent_usd = prudent("train", request, "--out", out, "--json").json["spent_usd"]
    assert spent_usd > 1e-8
    low = ("--resume", "--budget", f"${spent_usd / 2:.12f}")
    done = prudent("train", request, "--out", out, *low)
    assert done.code == 3
    assert "more than the budget" in " ".join(done.out.split())
    answer = prudent("train", request, "--out", out, "--json", *low)
    assert answer.code == 3
    assert answer.json["over_usd"] == pytest.approx(spent_usd / 2, rel=1e-3)


def test_a_budget_below_the_first_minimum_is_refused_before_anything_is_rented(
    prudent: Prudent, rows: Path, tmp_path: Path, own_home: Path
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"domain": "classification", "dataset": {"path": "rows.csv"}}))
    out = tmp_path / "out"
    words = ("--engine", "spark", "--cluster", "4*m5.large", "--budget", "$0.005", "--out", out)
    done = prudent("train", request, *words)
    assert done.code == 2
    said = " ".join(done.err.split())
    assert "To rent 4*m5.large costs $0.0064 at least, and $0.005 of the budget of $0.005 are left" in said
    assert "raise the budget to $0.0064 or more" in said
    assert not out.exists()
    assert not list((own_home / "leases").glob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to train"),
        (("--data", "x.csv"), "--retrain"),
        (("--retrain", "m"), "--data"),
        (("no.json",), "check the path"),
    ],
)
def test_bad_arguments_are_one_sentence(prudent: Prudent, arguments: tuple[str, ...], words: str) -> None:
    done = prudent("train", *arguments)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize("there", [False, True])
def test_data_that_are_wrong_leave_nothing_behind(prudent: Prudent, tmp_path: Path, there: bool) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "models"
    request = tmp_path / "request.json"
    request.write_text(
        json.dumps(
            {
                "domain": "regression",
                "dataset": {"path": str(data), "target": "y"},
                "methods": [{"algorithm": "linear-regression"}],
                "budget": "1 trials",
            }
        )
    )
    data.write_text("x,y\n")
    if there:
        out.mkdir()
    refused = prudent("train", request, "--out", out)
    assert refused.code == 2
    assert "has no rows" in refused.err
    assert out.exists() == there
    assert not there or not list(out.iterdir())
    if not there:  # otherwise it is as it was
        data.write_text("x,y\n" + "".join(f"{n},{2 * n + n % 3}\n" for n in range(30)))
        assert prudent("train", request, "--out", out).code == 0


def test_every_error_of_a_request_is_told(prudent: Prudent, branin: Callable[..., Path]) -> None:
    done = prudent("train", branin(domain="misc-function", seed=-1, methods=[{"algorithm": "brainin"}]))
    assert done.code == 2
    for place in ("domain: ", "seed: ", "methods[0].algorithm: "):
        assert f"- {place}" in done.err
    assert 'Did you mean "branin"' in done.err


def test_what_is_ignored_is_told(prudent: Prudent, branin: Callable[..., Path], tmp_path: Path) -> None:
    done = prudent("train", branin(remark="x"), "--out", tmp_path / "out")
    assert done.code == 0
    assert '"remark" is unknown' in done.err


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_answers_with_what_is_there(branin: Callable[..., Path], tmp_path: Path) -> None:
    request, out = branin(budget="100000 trials"), tmp_path / "out"
    command = [*PROGRAM, "train", str(request), "--out", str(out)]
    environment = {**os.environ, "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 5:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            seen += line.startswith("#")
        process.send_signal(signal.SIGINT)
        try:
            said, _ = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "it was interrupted" in said
    board = json.loads((out / "leaderboard.json").read_text())
    assert len(board["entries"]) >= 5


@pytest.mark.usefixtures("only_loopback")
def test_real_data_are_trained_predicted_and_trained_again(
    prudent: Prudent, rows: Path, tmp_path: Path
) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("onnxruntime")
    request = tmp_path / "request.json"
    methods = [
        {
            "algorithm": "binomial-logistic-regression",
            "hyperparameters": [{"param": "regParam", "values": [0.0, 0.1]}],
        },
        {
            "algorithm": "decision-tree-classification",
            "hyperparameters": [{"param": "maxDepth", "values": [1, 3]}],
        },
    ]
    dataset = {"path": "rows.csv", "target": "kind"}
    asked = {"domain": "classification", "dataset": dataset, "methods": methods, "parameterSearch": "grid"}
    request.write_text(json.dumps(asked))
    done = prudent("train", request, "--out", tmp_path / "out", "--json", "--parallel", 2)
    assert done.code == 0, done.err
    board = done.json
    assert board["metric"] == "mcc"
    assert len(board["entries"]) == 4
    assert board["entries"][0]["score"] > 0.6
    best = board["entries"][0]["model_path"]
    told = prudent("predict", best, rows)
    labels = told.out.split()[1:]
    assert set(labels) == {"early", "late"}
    again = prudent("train", "--retrain", best, "--data", rows, "--out", tmp_path / "again", "--json")
    assert again.code == 0, again.err
    [entry] = again.json["entries"]
    assert entry["algorithm"] == board["entries"][0]["algorithm"]
    assert entry["score"] == pytest.approx(board["entries"][0]["score"])
    for name, value in board["entries"][0]["hyperparameters"].items():
        assert entry["hyperparameters"][name] == value


@pytest.fixture
def mixed_rows(tmp_path: Path) -> Path:
    """A slope that a line sees, and a box that a tree sees."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=(600, 4)).round(4)
    odds = values[:, 0] + values[:, 1] + 3.0 * ((np.abs(values[:, 2]) < 0.7) - 0.5) + 0.3 * values[:, 3]
    kinds = np.where(rng.random(600) < 1 / (1 + np.exp(-2 * odds)), "in", "out")
    path = tmp_path / "mixed.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["slope", "other", "box", "little", "kind"])
        writer.writerows([*row, kind] for row, kind in zip(values, kinds, strict=True))
    return path


def test_an_ensemble_is_a_model_like_any_other(prudent: Prudent, mixed_rows: Path, tmp_path: Path) -> None:
    request, out = tmp_path / "request.json", tmp_path / "out"
    methods = [
        {"algorithm": "binomial-logistic-regression", "hyperparameters": []},
        {
            "algorithm": "decision-tree-classification",
            "hyperparameters": [{"param": "maxDepth", "values": [4]}],
        },
    ]
    dataset = {"path": str(mixed_rows), "target": "kind"}
    asked = {"domain": "classification", "dataset": dataset, "methods": methods, "parameterSearch": "grid"}
    request.write_text(json.dumps(asked))
    done = prudent("train", request, "--out", out, "--json")
    assert done.code == 0, done.err
    entries = done.json["entries"]
    (ensemble,) = [entry for entry in entries if entry["algorithm"] == "ensemble"]
    members = {entry["trial"]: load(entry["model_path"]) for entry in entries if entry is not ensemble}
    assert {member["trial"] for member in ensemble["members"]} == set(members)
    # It says what its members say, asked one by one.
    rows = list(csv.DictReader(mixed_rows.read_text().splitlines()))
    expected = sum(
        member["weight"] * members[member["trial"]].predict_proba(rows) for member in ensemble["members"]
    )
    own = load(ensemble["model_path"])
    np.testing.assert_allclose(own.predict_proba(rows), expected, atol=1e-5)
    assert own.predict(rows).tolist() == [("in", "out")[place] for place in expected.argmax(axis=1)]
    insight = json.loads((Path(entries[0]["model_path"]) / "insight.json").read_text())
    assert {each["column"] for each in insight["importance"]["columns"][:3]} == {"slope", "other", "box"}
    again = TrainingRequest.parse(retraining_request(ensemble["model_path"], "more.csv"))
    assert [method.algorithm for method in again.methods] == [
        member["algorithm"] for member in ensemble["members"]
    ]
    assert again.methods[-1].hyperparameters


# Mail


@pytest.fixture
def mailing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """A mail server, and the variables by which a service would know it."""
    with serving(Post()) as (post, port):
        for name, said in {"HOST": "127.0.0.1", "PORT": port, "SECURITY": "none"}.items():
            monkeypatch.setenv(f"PRUDENT_SMTP_{name}", str(said))
        yield post


def test_the_ranking_is_mailed_to_who_asked_for_it(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path, mailing: Post
) -> None:
    done = prudent("train", branin(emailAddress="mia@example.org"), "--out", tmp_path / "out", "--json")
    assert (done.code, done.err) == (0, "prudent: the ranking was mailed to mia@example.org.\n")
    (letter,) = mailing.letters
    assert letter["To"] == "mia@example.org"
    assert "Misc-functions" in letter["Subject"]
    best = done.json["entries"][0]
    for kind in ("plain", "html"):
        body = letter.get_body((kind,))
        assert body is not None
        text = body.get_content().replace("\u200b", "")
        assert f"{best['value']:#.4g}" in text
        assert f"x1={best['hyperparameters']['x1']:.4g}"[:5] in text.replace(" ", "=")
        assert Path(best["model_path"]).resolve().as_uri() in text
    (ranking,) = letter.iter_attachments()
    assert ranking.get_filename() == "leaderboard.csv"
    assert len(list(csv.DictReader(ranking.get_content().splitlines()))) == 6


def test_where_no_mail_server_is_set_that_is_told(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path
) -> None:
    done = prudent("train", branin(emailAddress="mia@example.org"), "--out", tmp_path / "out")
    assert done.code == 0
    assert "no mail will go to mia@example.org" in done.err
    assert "PRUDENT_SMTP_HOST" in done.err


def test_a_mail_that_is_refused_does_not_cost_the_answer(
    prudent: Prudent, branin: Callable[..., Path], tmp_path: Path, mailing: Post
) -> None:
    mailing.answer = "451 Not now"
    done = prudent("train", branin(emailAddress="mia@example.org"), "--out", tmp_path / "out", "--json")
    assert done.code == 0
    assert len(done.json["entries"]) == 6
    assert "the mail to mia@example.org was not sent" in done.err
    assert mailing.letters == []
