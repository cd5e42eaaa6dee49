"""How the tests run, and what several of them need: measured runs, model folders, a home of their own."""

from __future__ import annotations

import csv
import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from prudent.cloud.clusters import spark_java
from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.models.description import MODEL_FILE, data_description, write_description, write_facts
from prudent.tuning.jobs.table import TableJob

from .browser import chrome
from .running.distribution import LongestFirst
from .running.doctests import Doctests
from .running.listening import Watch
from .running.quarantine import quarantined
from .running.summary import Summary

__all__ = ["chrome"]  # a fixture for all

# The same examples in every run: a failure by chance on someone else's change teaches nobody anything.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=300)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(
        spark_java.CLASS_ARCHIVE_SWITCH, "off"
    )  # to keep them takes longer than it would save here
    # Libraries write their logs to what was stderr when they were loaded; that may be closed by now.
    logging.raiseExceptions = False
    config.pluginmanager.register(Doctests(), "doctests with examples")
    if not hasattr(config, "workerinput"):  # the processes report to this one, which tells
        config.pluginmanager.register(Summary(config), "summary")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in quarantined():
            item.add_marker(pytest.mark.xfail(reason="quarantined", strict=False))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst:
    return LongestFirst(config, log)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's leases, runs and books are kept: not where its neighbours' or the user's are."""
    home = tmp_path_factory.getbasetemp() / "homes" / uuid.uuid4().hex[:12]
    monkeypatch.setenv("PRUDENT_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def _prompt_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of a service gives way to nobody: beside other tests it would hardly get on."""
    monkeypatch.setenv("PRUDENT_NICE", "0")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command that sets up logging for its process does not do so for the tests that follow."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(before):
        if not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)


@pytest.fixture
def only_loopback(own_home: Path) -> Iterator[Watch]:
    """Fails the test if any of its processes listens where other computers can reach it."""
    with Watch(own_home) as watch:
        yield watch
    assert not watch.beyond_loopback


def _write_runs(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """72 runs of a job that gets faster with workers up to a point, and what they showed on the way."""
    rng = np.random.default_rng(seed)
    runs, progress = folder / "runs.csv", folder / "progress.csv"
    with runs.open("w", newline="") as one, progress.open("w", newline="") as other:
        table, traces = csv.writer(one), csv.writer(other)
        table.writerow(["id", "vm", "workers", "rate", "time_s", "price_usd_per_h", "accuracy"])
        traces.writerow(["id", "elapsed_s", "accuracy"])
        number = 0
        for vm, speed, usd_per_h in (("small", 1.0, 0.05), ("medium", 1.9, 0.1), ("large", 3.5, 0.2)):
            for workers in (1, 2, 4, 8, 16, 32):
                for rate in (0.001, 0.01, 0.1, 1.0):
                    work = 900 * (1 + abs(np.log10(rate) + 2))
                    time_s = work / (speed * workers**0.7) + 3 * workers
                    time_s *= float(np.exp(rng.normal(0, 0.1)))
                    accuracy = 0.9 - 0.08 * abs(np.log10(rate) + 2)
                    table.writerow(
                        [number, vm, workers, rate, f"{time_s:.3f}", usd_per_h * workers, f"{accuracy:.4f}"]
                    )
                    for check in range(1, 6):
                        seen = accuracy * (1 - 0.5**check)
                        traces.writerow([number, f"{time_s * check / 6:.3f}", f"{seen:.4f}"])
                    number += 1
    return runs, progress


@pytest.fixture
def write_runs() -> Callable[..., tuple[Path, Path]]:
    """Writes `runs.csv` and `progress.csv` into a folder."""
    return _write_runs


@pytest.fixture
def table(tmp_path: Path) -> Callable[[], TableJob]:
    """Reads the same table anew each time, as another process would."""

    def read() -> TableJob:
        runs, progress = tmp_path / "runs.csv", tmp_path / "progress.csv"
        if not runs.exists():
            _write_runs(tmp_path)
        return TableJob.read_csv(
            runs, parameters=["vm", "workers", "rate"], measures=["accuracy"], progress=progress
        )

    return read


# Models of the shape that every engine exports, without training anything

COLUMNS = (Column("age"), Column("colour", CATEGORICAL, ("green", "red")), Column("weight"))
"""`x = age (40 if missing) + 100 * red + weight (0 if missing)` is what these models look at."""


def _graph(classes: int, threshold: float) -> Any:
    from onnx import TensorProto, helper
    from onnx import numpy_helper as numpy

    def constant(name: str, values: Any, kind: Any) -> Any:
        return numpy.from_array(np.array(values, kind), name)

    nodes = [
        helper.make_node("IsNaN", ["features"], ["missing"]),
        helper.make_node("Where", ["missing", "instead", "features"], ["filled"]),
        helper.make_node("MatMul", ["filled", "weights"], ["x"]),
    ]
    constants = [
        constant("instead", [40, 0, 0], np.float32),
        constant("weights", [[1], [100], [1]], np.float32),
        constant("threshold", [threshold], np.float32),
    ]
    kind = TensorProto.INT64 if classes else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("prediction", kind, [None])]
    if classes:
        constants += [constant("one", [1], np.float32), constant("axes", [1], np.int64)]
        nodes += [
            helper.make_node("Sub", ["x", "threshold"], ["above"]),
            helper.make_node("Sigmoid", ["above"], ["yes"]),
            helper.make_node("Sub", ["one", "yes"], ["no"]),
            helper.make_node("Concat", ["no", "yes"], ["probabilities"], axis=1),
            helper.make_node("ArgMax", ["probabilities"], ["prediction"], axis=1, keepdims=0),
        ]
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, classes]))
    else:
        constants.append(constant("axes", [1], np.int64))
        nodes.append(helper.make_node("Squeeze", ["x", "axes"], ["prediction"]))
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(COLUMNS)])
    graph = helper.make_graph(nodes, "model", [features], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model folder; with classes it says the second of them where x is above the threshold."""

    def make(
        classes: Sequence[Any] = ("no", "yes"), threshold: float = 100.0, name: str = "1-model", **facts: Any
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / MODEL_FILE).write_bytes(_graph(len(classes), threshold).SerializeToString())
        said = ModelFacts(
            **{
                "metric": "mcc" if classes else "rmse",
                "value": 0.9,
                "score": 0.9 if classes else -0.9,
                "train_s": 0.5,
                "predict_ms": 0.01,
                "export_difference": 0.0,
                "rows_trained": 70,
                "rows_validated": 30,
                "versions": {"prudent": "1"},
                **facts,
            }
        )
        write_facts(folder, said)
        algorithm = "binomial-logistic-regression" if classes else "linear-regression"
        write_description(
            folder,
            data={**data_description(COLUMNS, classes, "bought"), "fingerprint": "abc"},
            spec=TrialSpec(3, algorithm, {"regParam": 0.1}, {"scale": {}}, 1.0, 7, folder),
            facts=said,
            domain="classification" if classes else "regression",
            engine="local",
            request={"path": "people.csv"},
        )
        return folder

    return make


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """A shell starts what runs in the background deaf to Ctrl-C, and so is what these tests start then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
