"""Trials of both engines on the same data, without the processes and threads around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prudent.training.data.reading import read_dataset
from prudent.training.data.splitting import hold_out
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.local import trial as local_trial
from prudent.training.engines.local.pool import WorkerSetup
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.local.worker import open_context
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark import trial as spark_trial
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.engines.spark.session import SparkTrainingSession
from prudent.training.request.request import TrainingRequest
from prudent.tuning.jobs.job import Run
from prudent.tuning.trial import Outcome, Progress


def opened(work: Path, path: Path, domain: str = "classification", **more: Any) -> SparkTrainingSession:
    """Spark with the data of a request in it; trials leave out its own form, which is slow to write.

    One part of the rows judges, and none are kept for a test, unless the request says more.
    """
    source = {"path": str(path), **more.pop("dataset", {})}
    usual = {"validation": {"holdout": 0.3}, "test": False}
    request = TrainingRequest.parse({"domain": domain, "dataset": source, **usual, **more})
    session = SparkEngine().open(request, work, 2)
    assert isinstance(session, SparkTrainingSession)
    session._context = replace(session._context, own_form=False)
    return session


def spec_for(folder: Path, algorithm: str, number: int = 1, **more: Any) -> TrialSpec:
    wanted = {"hyperparameters": {}, "transforms": {}, "fraction": 1.0, "seed": 7, **more}
    return TrialSpec(number=number, algorithm=algorithm, folder=folder / f"trial-{number}", **wanted)


def finish(run: Run) -> tuple[Outcome, list[Progress]]:
    seen: list[Progress] = []
    while not isinstance(event := run.next(800), Outcome):
        assert event is not None, "it hangs"
        seen.append(event)
    return event, seen


@dataclass(frozen=True, eq=False)
class Bench:
    """The same file opened by both engines."""

    file: Path
    spark: spark_trial.SparkTrialContext
    local: local_trial.SparkTrialContext
    description: Mapping[str, Any]

    def train(
        self, spec: TrialSpec, own_form: bool = False
    ) -> tuple[ModelFacts, ModelFacts, list[tuple[float, float]]]:
        """What Spark says, what the local engine says, and what Spark reported on the way.

        In the spec's folder are the forms of Spark's model; its own, which takes a second to write, if asked.
        """
        seen: list[tuple[float, float]] = []
        context = replace(self.spark, own_form=own_form, pmml=True)
        there = spark_trial.train(context, spec, lambda score, done: seen.append((score, done)))
        here = local_trial.train(
            self.local, replace(spec, folder=spec.folder / "local"), lambda score, done: None
        )
        return there, here, seen


def bench(work: Path, domain: str, file: Path) -> Bench:
    """Open a libsvm file by both engines; Spark's session must run."""
    session = opened(work, file, domain, dataset={"format": "libsvm"})
    request = TrainingRequest.parse({"domain": domain, "dataset": {"path": str(file), "format": "libsvm"}})
    dataset = read_dataset(file, "libsvm", domain=domain, cache=work / "cache")
    store = work / "store"
    SharedDataset.write(store, dataset, [hold_out(len(dataset), dataset.y, request.seed)])
    scorer = Scorer.of(domain, None, len(dataset.classes))
    setup = WorkerSetup(str(store), scorer, request.seed, 1, 500.0, dataset.target)
    return Bench(file, session._context, open_context(asdict(setup)), session.description)


def write_libsvm(file: Path, X: Any, y: Any) -> Path:
    """Rows as text; what is zero is left out."""
    lines = [
        " ".join([f"{label:g}", *(f"{place}:{value:.5g}" for place, value in enumerate(row, 1) if value)])
        for row, label in zip(np.asarray(X), np.asarray(y), strict=True)
    ]
    file.write_text("\n".join(lines) + "\n")
    return file
