"""Requests as the paper's authors wrote them are answered by the local engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import StandardScaler

import prudent
from prudent.training.algorithms.registry import algorithms
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.local.engine import LocalEngine
from prudent.training.engines.model_files import PMML
from prudent.training.models.description import read_facts
from prudent.training.request.request import TrainingRequest
from prudent.training.train import train

from ..documents import NAMES, laid_out

PAPER_KEYS = {"domain", "dataset", "methods", "parameterSearch", "computationalResources", "emailAddress"}
TRIALS = {
    "linear-regression": 4,
    "random-forest-regression": 4,
    "binomial-logistic-regression": 4,
    "multinomial-logistic-regression": 4,
    "branin": 6,
    "three-regressions": 4,
    "two-clusterings": 5,
    "multilayer-perceptron-classifier": 2,
}
"""As many models as a document asks for; two where nothing is said here."""

NOT_IN_PMML = ("ensemble",)


@dataclass
class Lent:
    """Processes that others go on using."""

    pool: object

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def close(self):
        pass


@pytest.fixture
def engine(pool):
    class Shared(LocalEngine):
        def pool(self, parallelism, work, algorithms):
            return Lent(pool)

    return Shared()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return laid_out(tmp_path_factory.mktemp("documents"))


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


def single_models(board):
    """What the document asked for; an ensemble of them may stand beside."""
    return [entry for entry in board.entries if entry.algorithm != "ensemble"]


def test_there_is_a_document_for_every_algorithm_of_the_paper(folder):
    named = {method["algorithm"] for name in NAMES for method in read(folder, name)["methods"]}
    assert len(named) == 16
    assert named <= set(algorithms())


@pytest.mark.parametrize("name", NAMES)
def test_a_document_of_the_paper_is_answered(engine, folder, tmp_path, name):
    document = folder / f"{name}.json"
    said = read(folder, name)
    assert set(said) <= PAPER_KEYS
    request = TrainingRequest.parse(document)
    assert request.notes == ()
    assert request.email_address == "mia@example.org"
    board = train(document, engine, tmp_path / "out")
    assert not board.failures
    assert len(single_models(board)) == TRIALS.get(name, 2)
    assert np.isfinite([entry.score for entry in board.entries]).all()
    if said["domain"] == "misc-functions":
        return
    for entry in board.entries:
        folder = Path(entry.model_path)
        notes = read_facts(folder).notes
        written = (folder / PMML).exists()
        assert [note.startswith("No PMML: ") for note in notes] == ([] if written else [True])
        assert written == (entry.algorithm not in NOT_IN_PMML)
    model = prudent.load(board.entries[0].model_path)
    rows = [dict.fromkeys((column.name for column in model.description.columns), 0.5)] * 2
    assert len(model.predict(rows)) == 2


def test_six_rows_are_clustered_and_judged_as_a_whole(engine, folder, tmp_path):
    board = train(folder / "two-clusterings.json", engine, tmp_path / "out")
    X = np.array(
        [
            [float(v.split(":")[1]) for v in line.split()[1:]]
            for line in (folder / "shops.libsvm").read_text().splitlines()
        ]
    )
    best = board.entries[0]
    assert best.hyperparameters["k"] == 2
    # Another library's silhouette of what the delivered model says of all six.
    clusters = prudent.load(best.model_path).predict(X.tolist())
    expected = silhouette_score(StandardScaler().fit_transform(X), clusters, metric="sqeuclidean")
    assert best.score == pytest.approx(expected, abs=1e-6)


def test_a_seed_among_the_hyperparameters_is_the_trials_own(engine, folder, tmp_path):
    said = read(folder, "random-forest-regression")
    values = [{"param": "numTrees", "values": [3]}, {"param": "seed", "values": [7, "8", -(2**40)]}]
    said["methods"] = [{"algorithm": "random-forest-regression", "hyperparameters": values}]
    said["dataset"]["path"] = str(folder / said["dataset"]["path"])
    board = train({**said, "parameterSearch": "grid"}, engine, tmp_path / "out")
    scores = {entry.hyperparameters["seed"]: entry.validation_score for entry in single_models(board)}
    assert set(scores) == {7, 8, -(2**40)}
    assert len(set(scores.values())) == 3


def test_the_trials_own_seed_comes_before_the_requests():
    def fit_seed(seed, own):
        return TrialSpec(1, "k-means", {"seed": own}, {}, 1.0, seed, Path()).fit_seed

    assert fit_seed(1, 7) == fit_seed(2, 7) == 7
    assert fit_seed(1, None) != fit_seed(2, None)
    assert 0 <= fit_seed(1, -(2**40)) == fit_seed(2, -(2**40)) < 2**31
