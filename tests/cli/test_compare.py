"""`prudent compare` from the outside, and `prudent schedule --scheduler all`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prudent as product
from prudent.workflows import Plan

Prudent = Callable[..., Any]
GOAL = "minimise cost_usd subject to time_s <= 5 min and accuracy >= 0.8"


@pytest.fixture
def runs(tmp_path: Path, write_runs: Callable[..., tuple[Path, Path]]) -> Path:
    return write_runs(tmp_path)[0]


def compared(prudent: Prudent, runs: Path, *more: object) -> Any:
    said = ("--parameters", "vm,workers,rate", "--goal", GOAL, "--budget", "4 avg", "--seeds", 2)
    return prudent("compare", runs, *said, *more)


def test_a_row_for_each_strategy_and_a_page(prudent: Prudent, runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "compared.html"
    done = compared(prudent, runs, "--strategies", "random,gp-eic", "--report", page)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("runs.csv")
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert {"random", "gp-eic", "Optimum"} <= set(rows)
    assert "compared.html" in rows["Report"]
    written = page.read_text()
    assert "CNO" in written
    assert "gp-eic" in written


def test_json_has_every_replay(prudent: Prudent, runs: Path) -> None:
    said = compared(prudent, runs, "--strategies", "random", "--seed", 3, "--early", "--json").json
    assert [score["strategy"] for score in said["strategies"]] == ["random"]
    assert [replay["seed"] for replay in said["replays"]["random"]] == [3, 4]
    assert said["early_stop"]
    assert said["report"] is None


def test_a_missing_column_is_told(prudent: Prudent, runs: Path) -> None:
    done = compared(prudent, runs, "--price", "usd")
    assert done.code == 2
    assert 'column of runs.csv "usd"' in done.err
    assert compared(prudent, runs, "--strategies", "random,,grid").code == 2


def test_all_schedulers_make_a_plan_and_the_fastest_is_kept(prudent: Prudent, tmp_path: Path) -> None:
    path, plan = tmp_path / "montage.json", tmp_path / "plan.json"
    assert prudent("workflow", "generate", "montage", 20, path, "--seed", 3).code == 0
    quick = ("--option", "evaluations=2000", "--episodes", 5)
    done = prudent(
        "schedule", path, "--fleet", "2*m3.medium,m3.2xlarge", "--scheduler", "all", *quick,
        "--plan", plan, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = done.json["comparison"]
    assert {row["scheduler"] for row in rows} == set(product.schedulers())
    assert done.json["makespan_s"] == min(row["makespan_s"] for row in rows)
    assert Plan.load(plan).scheduler == done.json["scheduler"] == rows[0]["scheduler"]
    cheap = prudent(
        "schedule", path, "--fleet", "2*m3.medium,m3.2xlarge", "--scheduler", "all", *quick,
        "--objective", "cost", "--plan", plan, "--json",
    )  # fmt: skip
    assert cheap.json["cost_usd"] == min(row["cost_usd"] for row in cheap.json["comparison"])
    wrong = prudent("schedule", path, "--fleet", "m3.medium", "--scheduler", "all", "--option", "speed=1")
    assert wrong.code == 2
    assert json.dumps(wrong.err).count("speed") == 1
