"""Requests as the paper's authors wrote them are answered on Spark: those that go another way than others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prudent.training.engines.model_files import PMML
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.train import train

from ..documents import laid_out

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(tmp_path_factory.mktemp("documents"))


def test_six_rows_are_clustered_by_spark_and_judged_as_a_whole(
    spark: Any, folder: Path, tmp_path: Path
) -> None:
    board = train(folder / "two-clusterings.json", SparkEngine(), tmp_path / "out")
    assert not board.failures
    assert len(board.entries) == 5
    best = {entry.algorithm: entry for entry in reversed(board.entries)}
    for name in ("k-means", "gaussian-mixture-model"):
        # As scikit-learn's silhouette of the two obvious clusters, on standardised features.
        assert best[name].score == pytest.approx(0.9997, abs=1e-4)
    assert best["k-means"].hyperparameters["k"] == 2


@pytest.mark.parametrize("name", ["decision-tree-classification", "branin"])
def test_a_document_of_the_paper_is_answered_on_spark(
    spark: Any, folder: Path, tmp_path: Path, name: str
) -> None:
    board = train(folder / f"{name}.json", SparkEngine(), tmp_path / "out")
    assert not board.failures
    models = [entry for entry in board.entries if entry.algorithm != "ensemble"]
    assert {entry.algorithm for entry in models} == {name}
    seeds = {entry.hyperparameters.get("seed") for entry in models}
    assert seeds == ({None} if name == "branin" else {8})
    documents = [(Path(entry.model_path) / PMML).exists() for entry in models]
    assert documents == [name != "branin"] * len(models)
