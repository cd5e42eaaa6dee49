"""The comparison of training contenders: it is kept cell by cell, and goes on where it stopped."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def _cells() -> Any:
    spec = importlib.util.spec_from_file_location("training_cells", BENCHMARKS / "training_cells.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["training_cells"] = module
    spec.loader.exec_module(module)
    return module


cells = _cells()


def compare(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Two seeds of a small data set, with the random search alone, which takes two seconds for each."""
    asked = ["--who", "random-search", "--data", "sklearn:diabetes", "--seconds", "2", "--seeds", "2"]
    command = [sys.executable, str(BENCHMARKS / "training_quality.py"), *asked, "--keep", str(folder), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
def test_a_comparison_goes_on_where_it_stopped_and_tells_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    first = compare(folder, "--cells", "1")
    assert first.returncode == 0, first.stderr[-3000:]
    assert "## 2 seconds: 1 of 2 cells, 1 are missing" in first.stdout
    [file] = folder.iterdir()
    line = file.read_text()
    assert line.count("\n") == 1
    kept = json.loads(line)
    said = {name: kept[name] for name in ("seed", "seconds", "data", "who")}
    assert said == {"seed": 0, "seconds": 2.0, "data": "sklearn:diabetes", "who": "random-search"}
    assert kept["models"] >= 1
    assert kept["test"] < 1.0

    # It is not run again: what its file says is what the table has.
    file.write_text(json.dumps({**kept, "test": 0.125, "took_s": 1e6}) + "\n")
    again = compare(folder)
    assert again.returncode == 0, again.stderr[-3000:]
    assert len([*folder.iterdir()]) == 2
    assert json.loads(file.read_text())["test"] == 0.125
    assert "## 2 seconds: 2 of 2 cells, 0 are missing" in again.stdout
    assert "1000000.0 s at most" in again.stdout
    assert again.stdout.count("random-search on sklearn:diabetes") == 1
    assert "random-search on sklearn:diabetes, 2 s, seed 1" in again.stdout

    nothing = compare(folder, "--cells", "0")
    assert "random-search on" not in nothing.stdout
    assert "| sklearn:diabetes | 2 |" in nothing.stdout


def test_what_fails_is_told_and_is_not_kept(tmp_path: Path) -> None:
    found = compare(tmp_path, "--data", "sklearn:nothing", "--cells", "1")
    assert found.returncode == 1
    assert "random-search on sklearn:nothing, 2 s, seed 0: it failed" in found.stderr
    assert "0 of 2 cells, 2 are missing" in found.stdout
    assert [*tmp_path.iterdir()] == []


def test_every_prefix_is_balanced() -> None:
    who, data = ("prudent", "flaml", "random-search"), ("keel:german", "r:AER/CPS1988:wage", "sklearn:digits")
    contenders = {300.0: (*who, "best"), 30.0: who, 60.0: who}
    order = list(cells.in_order(3, contenders, data))
    assert len(order) == len({cell.file for cell in order}) == 3 * 3 * (3 + 3 + 4)
    assert [seed for seed, _ in itertools.groupby(order, lambda cell: cell.seed)] == [0, 1, 2]
    times = [found for found, _ in itertools.groupby(order, lambda cell: (cell.seed, cell.seconds))]
    assert times == [(seed, seconds) for seed in range(3) for seconds in (30.0, 60.0, 300.0)]
    groups = itertools.groupby(order, lambda cell: (cell.seed, cell.seconds, cell.data))
    found = {key: [cell.who for cell in group] for key, group in groups}
    assert [key[2] for key in found] == [*data] * 9
    assert all(sorted(each) == sorted(contenders[key[1]]) for key, each in found.items())
    leading = [each[0] for key, each in found.items() if key[1] == 30.0]
    assert {leading.count(each) for each in who} == {3}, "each is first as often"
