"""Small data sets, and trials on them with and without workers. Functions are handed out as fixtures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from prudent.training.algorithms.algorithm import domain as domain_of
from prudent.training.algorithms.registry import algorithm, algorithms
from prudent.training.data.dataset import Column, Dataset
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.fit_task import FitTask, PreparedRows
from prudent.training.engines.local.engine import LocalSession, open_pool
from prudent.training.engines.local.learners.registry import fit_function
from prudent.training.engines.local.run import LocalRun
from prudent.training.engines.scoring import Scorer
from prudent.training.request.limits import ValidationMethod
from prudent.tuning.trial import Outcome


def _data_for(domain: str, classes: int = 3, rows: int = 400, columns: int = 6, seed: int = 0) -> Dataset:
    """Rows that the domain's algorithms can learn something from, with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    names = tuple(Column(f"f{number}") for number in range(columns))
    if domain == "clustering":
        X += 6.0 * rng.integers(0, 3, size=rows)[:, None].astype(np.float32)
        return Dataset(X, None, names, (), None, "clusters")
    weights = rng.normal(size=(columns, classes))
    if domain == "regression":
        y = X @ weights[:, 0] + 3.0 + 0.1 * rng.normal(size=rows)
        return Dataset(X, y.astype(np.float64), names, (), "y", "regression")
    y = (X @ weights + 0.3 * rng.normal(size=(rows, classes))).argmax(axis=1)
    return Dataset(X, y, names, tuple("abcdefgh"[:classes]), "y", "classes")


def _fit_task_of(dataset: Dataset, domain: str, share: float = 0.7, seed: int = 5, **more) -> FitTask:
    """The first rows to learn from, the others held out."""
    cut = round(share * len(dataset))
    known = domain_of(domain)
    classes = len(dataset.classes)
    scorer = Scorer(known.task, known.metric_for(classes), classes)
    y = dataset.y
    first = PreparedRows(np.array(dataset.X[:cut]), None if y is None else y[:cut])
    others = PreparedRows(np.array(dataset.X[cut:]), None if y is None else y[cut:])
    return FitTask(first, others, scorer, seed, **more)


def _fit(name: str, fit_task: FitTask, **hyperparameters):
    """A model, built in this process."""
    # As in a worker: several threads that wait for each other on a busy machine are slower than one.
    with threadpool_limits(1):
        return fit_function(name)(fit_task, algorithm(name).complete(hyperparameters))


def _score(model, fit_task: FitTask) -> float:
    return fit_task.scorer.score(fit_task.watched.y, model.predict(fit_task.watched.X), fit_task.watched.X)


def _finish(run, until_s: float = 60.0) -> tuple[Outcome, list]:
    """A run to its end, with the progress that it told."""
    told = []
    while True:
        event = run.next(until_s)
        assert event is not None, f"nothing was heard for {until_s} s"
        if isinstance(event, Outcome):
            return event, told
        told.append(event)


def _facts_of(folder: Path) -> dict:
    return json.loads((folder / "facts.json").read_text())


class Bench:
    """A session with trials numbered by themselves."""

    def __init__(self, session: LocalSession, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.number = 0
        self.runs: list[LocalRun] = []

    def start(
        self,
        name: str,
        limit_s=None,
        fraction=1.0,
        seed=3,
        transforms=None,
        refit=None,
        bar=(),
        **hyperparameters,
    ):
        self.number += 1
        place = self.folder / f"trial-{self.number}"
        spec = TrialSpec(
            self.number,
            name,
            hyperparameters,
            transforms or {},
            fraction,
            seed,
            place,
            limit_s=limit_s,
            refit=refit is not None,
            iterations=refit,
            bar=bar,
        )
        self.runs.append(self.session.start(spec))
        return self.runs[-1], place

    def hang(self, name: str, **settings):
        """A trial that fits, and then never ends: somebody must read its model before it can be written."""
        place = self.folder / f"trial-{self.number + 1}"
        place.mkdir(parents=True)
        os.mkfifo(place / "model.onnx")
        return self.start(name, **settings)

    def train(self, name: str, **settings) -> tuple[Outcome, Path]:
        run, place = self.start(name, **settings)
        outcome, _ = _finish(run)
        return outcome, place


@pytest.fixture(scope="session")
def pool(tmp_path_factory):
    """One process for all these tests to fork workers from, with all libraries loaded: that takes long."""
    names = tuple(name for name in algorithms() if name != "branin")
    with open_pool(2, tmp_path_factory.mktemp("pool"), names) as started:
        yield started


@pytest.fixture
def bench(tmp_path, pool):
    """Opens sessions that share the pool; what they run is ended after the test."""
    opened: list[Bench] = []

    def open_one(dataset, domain, metric=None, validation=None, seed=1, **more):
        number = len(opened)
        work, out = tmp_path / f"work-{number}", tmp_path / f"out-{number}"
        more = {"parallelism": 2, "pool": pool, **more}
        validation = validation or ValidationMethod(holdout=0.3)
        session = LocalSession(dataset, domain, metric, validation, seed, work, **more)
        opened.append(Bench(session, out))
        return opened[-1]

    yield open_one
    for one in opened:
        for run in one.runs:
            run.cut(0.0, "the test is over")
        if one.session._pool is not pool:
            one.session.close()


def _handed_out(function):
    @pytest.fixture(name=function.__name__.lstrip("_"), scope="session")
    def hand_out():
        return function

    return hand_out


data_for = _handed_out(_data_for)
fit_task_of = _handed_out(_fit_task_of)
fit = _handed_out(_fit)
score = _handed_out(_score)
finish = _handed_out(_finish)
facts_of = _handed_out(_facts_of)
