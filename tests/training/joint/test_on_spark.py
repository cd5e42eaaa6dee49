"""A request that leaves its machines open, from the command line, on Spark clusters of two machine types."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prudent
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider

pytest.importorskip("pyspark")
PRICES = "name,vcpus,memory_gb,price_usd_per_h,minimum_s\nsmall,1,2,0.10,0\nlarge,2,2,0.15,0\n"
BUDGET_USD = 0.2
BEST = 4  # two questions tell the kinds apart, and trees take a few to find them


def asked(rows: Path, depths: list[int], shares: list[float]) -> dict[str, Any]:
    return {
        "domain": "binomial-classification",
        "dataset": {"path": str(rows), "target": "kind"},
        "methods": [
            {
                "algorithm": "decision-tree-classification",
                "hyperparameters": [{"param": "maxDepth", "values": depths}],
            }
        ],
        "machines": {"types": ["small", "large"], "count": [1]},
        "fractions": shares,
        "parameterSearch": "grid",
        "refit": False,  # so that entries tell the share of the rows that judged them
        "ensemble": False,
        "budget": f"${BUDGET_USD}",
    }


def train(folder: Path, home: Path) -> dict[str, Any]:
    """In a process of its own: Spark has one context in each."""
    ran = subprocess.run(
        [sys.executable, "-m", "prudent.cli.main", "train", "request.json", "--engine", "spark", "--json",
         "--where", "local:prices.csv", "--out", "out"],
        cwd=folder,
        env={**os.environ, "PRUDENT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.mark.soak  # `test_train.py` searches on real machines with a quicker engine
@pytest.mark.timeout(1600)
def test_machines_parameters_and_data_are_searched_together(tmp_path: Path) -> None:
    depths, shares = [1, BEST], [0.3, 1.0]
    rng = np.random.default_rng(1)
    points = rng.normal(size=(400, 2))
    kinds = np.where(points[:, 0] * points[:, 1] > 0, "same", "other")  # one question cannot tell them apart
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "kind"], *([*p, k] for p, k in zip(points, kinds, strict=True))]
        )
    (tmp_path / "prices.csv").write_text(PRICES)
    request = asked(tmp_path / "rows.csv", depths, shares)
    (tmp_path / "request.json").write_text(json.dumps(request))
    home = tmp_path / "home"
    board = train(tmp_path, home)

    entries = board["entries"]
    tried = {(e["machines"], e["hyperparameters"]["maxDepth"], e["fraction"]) for e in entries}
    assert tried == {(m, d, f) for m in ("1*small", "1*large") for d in depths for f in shares}
    scores = {
        (e["hyperparameters"]["maxDepth"], e["fraction"], round(e["validation_score"], 9)) for e in entries
    }
    assert len(scores) == len(depths) * len(shares)  # the same rows judge, wherever it was trained
    best = entries[0]
    assert best["hyperparameters"]["maxDepth"] == BEST
    assert board["recommended"]["machines"] in ("1*small", "1*large")
    assert board["ended"] == "everything was tried"

    register = LeaseRegister(home)
    leases = register.leases()
    assert [lease.order.type for lease in leases] in (
        ["small", "large"],
        ["large", "small"],
    )  # each rented once
    assert all(lease.released_s is not None for lease in leases)
    assert LocalProvider(home).list() == ()
    bill_usd = sum(lease.cost_usd(0.0) for lease in leases)
    assert 0 < board["spent_usd"] <= BUDGET_USD
    assert board["spent_usd"] == pytest.approx(bill_usd, abs=1e-6)

    folder = tmp_path / best["model_path"]
    assert json.loads((folder / "model.json").read_text())["machines"] == best["machines"]
    answers = prudent.load(folder).predict([{"a": 1.0, "b": 1.0}, {"a": -1.0, "b": 1.0}])
    assert list(answers) == ["same", "other"]
    with (tmp_path / "out" / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["machines"], float(row["fraction"])) for row in rows] == [
        (e["machines"], e["fraction"]) for e in entries
    ]
    assert "recommended machines" in (tmp_path / "out" / "report.html").read_text()

    # All was tried: to go on costs nothing, and needs no machine.
    place = f"local:{tmp_path / 'prices.csv'}"
    again = prudent.train(request, "spark", tmp_path / "out", where=place, home=home, resume=True)
    assert [entry.score for entry in again.entries] == [e["score"] for e in entries]
    assert again.spent_usd == board["spent_usd"]
    assert len(register.leases()) == len(leases)
