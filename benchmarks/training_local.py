"""The local training engine: cold start, first model, parallel trials, overhead, memory, and a million rows.

python benchmarks/training_local.py [cold] [first] [parallel] [overhead] [request] [memory] [million]
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from prudent.training.data.dataset import Column, Dataset
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.local.engine import LocalEngine, LocalSession
from prudent.training.leaderboard import TrainingEvent, TrainingTrialEnded
from prudent.training.request.limits import ValidationMethod
from prudent.training.request.request import TrainingRequest
from prudent.training.search.methods import method_plans
from prudent.training.train import train
from prudent.tuning.trial import Outcome

MILLION_ROWS, MILLION_COLUMNS = 1_000_000, 50


def classes(rows: int, columns: int, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    y = (X @ rng.normal(size=columns) + rng.normal(size=rows) > 0).astype(np.int64)
    return Dataset(X, y, tuple(Column(f"f{n}") for n in range(columns)), ("no", "yes"), "y", "made")


@contextmanager
def session(dataset: Dataset, parallelism: int) -> Iterator[tuple[LocalSession, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        opened = LocalSession(
            dataset, "classification", None, ValidationMethod(), 1, place / "work", parallelism
        )
        with opened:
            yield opened, place


def outcome(run: Any) -> Outcome:
    while True:
        event = run.next(3600)
        if isinstance(event, Outcome):
            assert event.status == "finished", event.why
            return event


def train_all(
    opened: LocalSession, place: Path, trials: int, at_a_time: int, name: str, **chosen: Any
) -> float:
    """Wall seconds for so many trials, some at a time; their folders are removed as they end."""
    waiting, running = list(range(trials)), {}
    began_s = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < at_a_time:
            number = waiting.pop()
            spec = TrialSpec(number, name, chosen, {}, 1.0, number, place / f"t{number}")
            run = opened.start(spec)
            running[run] = spec
        for run in wait(list(running)):
            event = run.next(3600)
            if isinstance(event, Outcome):
                assert event.status == "finished", event.why
                for file in running.pop(run).folder.iterdir():
                    file.unlink()
    return time.perf_counter() - began_s


def cold() -> None:
    """The paper's example through the command line, everything from nothing."""
    import pyspark

    path = Path(pyspark.__file__).parent / "data/mllib/sample_linear_regression_data.txt"
    asked = {"maxIter": [5, 10, 15], "regParam": [0.1, 0.3, 0.5], "elasticNetParam": [0.2, 0.5, 0.8]}
    request = {
        "domain": "regression",
        "dataset": {"path": str(path), "format": "libsvm"},
        "methods": [
            {
                "algorithm": "linear-regression",
                "hyperparameters": [{"param": name, "values": values} for name, values in asked.items()],
            }
        ],
        "parameterSearch": "random",
        "budget": "4 trials",
    }
    spent = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "request.json"
            document.write_text(json.dumps(request))
            began_s = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                "prudent.cli.main",
                "train",
                str(document),
                "--out",
                f"{folder}/out",
            ]
            subprocess.run(command, check=True, capture_output=True)
            spent.append(time.perf_counter() - began_s)
    print(f"cold start, 4 trials, request to report: {min(spent):.2f} s (at most 8); all: {shown(spent)}")


def parallel() -> None:
    """The same trials one after the other with one core each, and two at a time. It needs idle cores."""
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    dataset = classes(20_000, 20)
    for name, chosen in (
        ("random-forest-classification", {"numTrees": 40, "maxDepth": 10}),
        ("gradient-boosted-tree-classification", {"maxIter": 60}),
        ("binomial-logistic-regression", {"maxIter": 100, "tol": 0.0}),
    ):
        took = {}
        with session(dataset, 2) as (opened, place):
            train_all(opened, place, 2, 2, name, **chosen)  # both workers are warm
            for at_a_time in (1, 2):
                took[at_a_time] = train_all(opened, place, 12, at_a_time, name, **chosen)
        gain = took[1] / took[2]
        print(f"{name}: 12 trials {took[1]:.2f} s one by one, {took[2]:.2f} s by two: {gain:.2f} x (1.7)")


def overhead() -> None:
    """What a trial costs beyond the fit itself, export and check included."""
    with session(classes(500, 10), 1) as (opened, place):
        train_all(opened, place, 5, 1, "binomial-logistic-regression")
        spent, fitting = [], []
        for number in range(200):
            began_s = time.perf_counter()
            spec = TrialSpec(
                number, "binomial-logistic-regression", {}, {}, 1.0, number, place / f"o{number}"
            )
            measured = outcome(opened.start(spec)).measures
            spent.append(time.perf_counter() - began_s)
            fitting.append(measured["train_s"])
    beyond_ms = 1000 * (np.array(spent) - np.array(fitting))
    print(
        f"overhead of a trial: median {np.median(beyond_ms):.1f} ms (30), "
        f"95 % within {np.quantile(beyond_ms, 0.95):.1f} ms"
    )


def request(trials: int = 10_000) -> None:
    """What the study of a request costs beside its trials: each is one value of a function.

    Seconds of this process's processor, and its memory, for every thousand trials in one request.
    """
    marks = [(0.0, 0.0)]

    def watch(event: TrainingEvent) -> None:
        nonlocal ended
        ended += isinstance(event, TrainingTrialEnded)
        if isinstance(event, TrainingTrialEnded) and ended % (trials // 10) == 0:
            marks.append((time.process_time(), family_mb()))

    for budget in (f"{trials} trials", {"trials": trials, "usd": 100}):
        ended, marks[:] = 0, [(time.process_time(), family_mb())]
        asked = {"domain": "misc-functions", "parameterSearch": "random", "budget": budget, "parallelism": 2}
        began_s = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            train(asked, out=f"{folder}/out", watch=watch)
        took_ms = 1000 * (time.perf_counter() - began_s) / trials
        each_ms = [1e4 * (after[0] - before[0]) / trials for before, after in itertools.pairwise(marks)]
        print(
            f"{trials} trials in one request ({budget}): {took_ms:.1f} ms each (10); by tenths "
            f"{', '.join(f'{ms:.1f}' for ms in each_ms)} ms of the processor; "
            f"memory {', '.join(f'{mb:.0f}' for _, mb in marks)} MB (flat)"
        )


def memory(trials: int = 10_000) -> None:
    """Resident memory of the caller and of a worker over many trials."""
    with session(classes(200, 5), 2) as (opened, place):
        train_all(opened, place, 200, 2, "decision-tree-classification")
        seen = [family_mb()]
        for _ in range(5):
            train_all(opened, place, trials // 5, 2, "decision-tree-classification")
            seen.append(family_mb())
    print(f"memory over {trials} trials, MB of all processes: {', '.join(f'{mb:.0f}' for mb in seen)} (flat)")


def million() -> None:
    """A million rows of 50 features as CSV, read and learnt: boosting within 15 s and 2 GiB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.csv"
        write_csv(path)
        print(f"made {path.stat().st_size / 1e6:.0f} MB of CSV")
        request = TrainingRequest.parse(
            {"domain": "classification", "dataset": {"path": str(path), "target": "y"}, "seed": 1}
        )
        began_s, before_s = time.perf_counter(), processor_s()
        print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
        with Peak() as peak, LocalEngine(memory_mb=3000).open(request, Path(folder) / "work", 1) as opened:
            took_s, used_s = time.perf_counter() - began_s, processor_s() - peak.own_s - before_s
            print(f"read in {took_s:.1f} s ({used_s:.1f} s of processors), peak {peak.mb:.0f} MB")
            for number, (name, chosen) in enumerate(
                [
                    ("binomial-logistic-regression", {}),
                    ("gradient-boosted-tree-classification", {"maxIter": 50}),
                    ("lightgbm-classification", {}),
                    ("xgboost-classification", {}),
                ]
            ):
                peak.mb = 0.0
                began_s, before_s = time.perf_counter(), processor_s() - peak.own_s
                spec = TrialSpec(number, name, chosen, {}, 1.0, 1, Path(folder) / f"t{number}")
                value = outcome(opened.start(spec)).measures["value"]
                took_s = time.perf_counter() - began_s
                used_s = processor_s() - peak.own_s - before_s
                print(
                    f"{name}: mcc {value:.3f} in {took_s:.1f} s (15; {used_s:.1f} s of processors), "
                    f"peak {peak.mb:.0f} MB (2048), load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


def first() -> None:
    """Seconds from the data being read to the first model of a request that names no methods."""
    for rows, columns in ((500, 10), (20_000, 20), (200_000, 50)):
        dataset = classes(rows, columns)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.csv"
            np.savetxt(
                path,
                np.column_stack([dataset.X, dataset.y]),
                delimiter=",",
                fmt="%.5g",
                header=",".join([*(column.name for column in dataset.columns), "y"]),
                comments="",
            )
            request = TrainingRequest.parse({"domain": "classification", "dataset": {"path": str(path)}})
            with LocalEngine().open(request, Path(folder) / "work", 2) as opened:
                began_s, before_s = time.perf_counter(), processor_s()
                plan = method_plans(request, opened.shape)[0]
                chosen, transforms, share = plan.split(plan.cheap)
                place = Path(folder) / "first"
                outcome(opened.start(TrialSpec(0, plan.algorithm.name, chosen, transforms, share, 1, place)))
                took_s, used_s = time.perf_counter() - began_s, processor_s() - before_s
        print(
            f"{rows} rows x {columns}: first model {took_s:.1f} s after the data were read (2); "
            f"{used_s:.1f} s of processors, load {os.getloadavg()[0]:.1f}"
        )


def write_csv(path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=MILLION_COLUMNS)
    with path.open("w") as file:
        file.write(",".join([*(f"f{n}" for n in range(MILLION_COLUMNS)), "y"]) + "\n")
        for _ in range(20):
            X = rng.normal(size=(MILLION_ROWS // 20, MILLION_COLUMNS)).round(3)
            y = X @ weights + 3 * rng.normal(size=len(X)) > 0
            np.savetxt(file, np.column_stack([X, y]), delimiter=",", fmt="%.4g")


class Peak:
    """The largest proportional memory of this process and its descendants, looked at ten times a second.

    `own_s` is what looking has taken of a processor.
    """

    def __enter__(self) -> Peak:
        import threading

        self.mb = self.own_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.mb = max(self.mb, family_mb(anonymous=True))
            self.own_s = time.thread_time()


def family_mb(anonymous: bool = False) -> float:
    """Memory of this process and its descendants; pages that they share are divided among them.

    `anonymous` leaves out pages of files, which the system takes back when it needs the room.
    """
    total = 0
    for process in descendants(os.getpid()):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name == ("Pss_Anon" if anonymous else "Pss"):
                total += int(rest.split()[0])
    return total / 1024


def processor_s() -> float:
    """Seconds that processors have worked for this process and its descendants, however busy they are."""
    total = 0
    for process in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(ticks) for ticks in fields[11:15])  # its own, and of children that have ended
    return total / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> list[int]:
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def shown(seconds: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds)


def main() -> None:
    parts = {
        "cold": cold,
        "first": first,
        "parallel": parallel,
        "overhead": overhead,
        "request": request,
        "memory": memory,
        "million": million,
    }
    for name in sys.argv[1:] or parts:
        parts[name]()
    largest_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"this process used {largest_mb:.0f} MB at most")


if __name__ == "__main__":
    main()
