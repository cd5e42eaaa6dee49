"""Who finds the better model in the same time: Prudent, FLAML, AutoGluon, or scikit-learn's random search.

python benchmarks/training_quality.py --prepare DIR            # AutoGluon's environment, mlbench's files
python benchmarks/training_quality.py --prepared DIR --keep CELLS [--seconds 30 60 300] [--seeds 5]
                                      [--data keel:german …] [--who prudent …] [--cells 20]

Each contender gets the same rows, two cores and so many seconds of wall time, and does with them what it does
when nobody tells it more than what to maximise: Matthews' correlation of classes, R² of numbers. 30 % of a
data set are put away before, and only the comparison sees them. AutoGluon runs with `medium_quality`, from
300 seconds on with `best_quality` too. Every contender runs in a process of its own, one after the other.

The whole takes days, so each run is kept in the folder CELLS once it has ended (training_cells.py), and a
comparison goes on where it stopped: `--cells 20` makes twenty more runs, `--cells 0` none. Then it prints
what is there so far, and how many cells are missing. What failed is told, and tried again the next time. Data
sets come in packages, see public_data.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from public_data import DATA, load
from sklearn_draws import draws
from training_cells import Cell, KeptCells, in_order

WHO = ("prudent", "flaml", "autogluon", "random-search")
BEST = "autogluon-best"
BEST_FROM_S = 300.0
_CORES = 2


@dataclass(frozen=True)
class Task:
    """What a contender is given: rows with their target, rows to predict, and a time."""

    train: pd.DataFrame
    target: pd.Series
    test: pd.DataFrame
    numbers: bool
    seconds: float
    seed: int
    prepared: Path

    def categories(self, part: pd.DataFrame) -> pd.DataFrame:
        """Texts as pandas' categories, as FLAML wants them."""
        known = {name: self.train[name].dropna().unique() for name in self.texts}
        return part.assign(**{name: pd.Categorical(part[name], known[name]) for name in self.texts})

    @property
    def texts(self) -> list[str]:
        return [name for name in self.train.columns if self.train[name].dtype == object]


def split(name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series, pd.Series, bool]:
    """Rows to train on and rows that only the comparison sees, with their targets."""
    from sklearn.model_selection import train_test_split

    X, y, numbers = load(name)
    strata = None if numbers or y.value_counts().min() < 2 else y
    return (*train_test_split(X, y, test_size=0.3, random_state=1000 + seed, stratify=strata), numbers)


def score(truth: Any, said: Any, numbers: bool) -> float:
    from sklearn import metrics

    return float(metrics.r2_score(truth, said) if numbers else metrics.matthews_corrcoef(truth, said))


# The contenders: each answers with its predictions and what its best model is


def prudent(task: Task) -> dict[str, Any]:
    from prudent.training.leaderboard import LeaderboardEntry, TrainingTrialEnded, TrainingTrialStarted
    from prudent.training.models.model import load as load_model
    from prudent.training.train import train

    began_s = time.monotonic()
    started: list[float] = []
    ended: list[float] = []

    def watch(event: object) -> None:
        if isinstance(event, TrainingTrialStarted):
            started.append(time.monotonic() - began_s)
        if isinstance(event, TrainingTrialEnded) and isinstance(event.result, LeaderboardEntry):
            ended.append(time.monotonic() - began_s)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        task.train.assign(target=task.target).to_parquet(path, index=False)
        request = {
            "domain": "regression" if task.numbers else "classification",
            "dataset": {"path": str(path), "target": "target"},
            "metric": "rmse" if task.numbers else "mcc",
            "budget": f"{task.seconds:g} s",
            "seed": task.seed,
        }
        board = train(request, "local", Path(folder, "models"), watch=watch)
        took_s = time.monotonic() - began_s
        best = board.entries[0]
        said = load_model(best.model_path).predict(task.test)
    return {
        "took_s": took_s, "said": list(said), "models": len(board.entries), "told": best.score,
        "first_model_s": ended[0] - started[0], "read_s": started[0],
        "best": f"{best.algorithm} {dict(best.hyperparameters)} {dict(best.transforms)}",
    }  # fmt: skip


def flaml(task: Task) -> dict[str, Any]:
    from flaml import AutoML

    def judge(X: Any, y: Any, estimator: Any, *more: Any, **named: Any) -> Any:
        loss = 1 - score(y, estimator.predict(X), False)
        return loss, {"loss": loss}

    automl = AutoML()
    began_s = time.monotonic()
    automl.fit(
        task.categories(task.train), task.target, task="regression" if task.numbers else "classification",
        metric="r2" if task.numbers else judge, time_budget=task.seconds, n_jobs=_CORES, seed=task.seed,
        verbose=0,
    )  # fmt: skip
    took_s = time.monotonic() - began_s
    return {
        "took_s": took_s, "said": np.asarray(automl.predict(task.categories(task.test))).tolist(),
        "models": len(automl.config_history), "best": f"{automl.best_estimator} {automl.best_config}",
    }  # fmt: skip


def autogluon(task: Task, presets: str = "medium_quality") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        task.train.assign(target=task.target).to_parquet(place / "train.parquet", index=False)
        task.test.to_parquet(place / "test.parquet", index=False)
        told = {"numbers": task.numbers, "seconds": task.seconds, "presets": presets}
        (place / "task.json").write_text(json.dumps(told))
        python = task.prepared / "autogluon" / "bin" / "python"
        script = Path(__file__).with_name("autogluon_contender.py")
        done = subprocess.run([python, script, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        answer: dict[str, Any] = json.loads((place / "answer.json").read_text())
        return answer


def random_search(task: Task) -> dict[str, Any]:
    """Draws of scikit-learn's models by five folds, until the time is up; the best is fitted on all rows.

    The first draw may take longer, so that there is an answer; `took_s` tells.
    """
    began_s, best, models = time.monotonic(), (-math.inf, None), 0
    for pipeline in draws(task.numbers, task.train, task.texts, task.seed):
        left_s = max(task.seconds - (time.monotonic() - began_s), 0.0) if models else None
        value = judged(task, pipeline, left_s)
        if value is None:
            break
        models += 1
        best = max(best, (value, pipeline), key=lambda pair: pair[0])
    found: Any = best[1]
    found.fit(task.train, task.target)
    took_s = time.monotonic() - began_s
    return {
        "took_s": took_s, "said": np.asarray(found.predict(task.test)).tolist(), "models": models,
        "best": str(found[-1]),
    }  # fmt: skip


def judged(task: Task, pipeline: Any, left_s: float | None) -> float | None:
    """The mean score of a pipeline over five folds, in a process that ends when the time is up."""
    here, there = Pipe(duplex=False)

    def judge() -> None:
        from joblib import parallel_config
        from sklearn.model_selection import cross_val_score

        scoring = "r2" if task.numbers else "matthews_corrcoef"
        with parallel_config("threading"):
            scores = cross_val_score(
                pipeline, task.train, task.target, cv=5, scoring=scoring, n_jobs=_CORES, error_score=-1
            )
        there.send(float(scores.mean()))

    child = get_context("fork").Process(target=judge, daemon=True)
    child.start()
    there.close()
    try:
        return here.recv() if here.poll(left_s) else None
    except EOFError:  # what a process died of is its own affair: the draw is lost
        return -1.0
    finally:
        child.kill()
        child.join()


CONTENDERS = {
    "prudent": prudent, "flaml": flaml, "autogluon": autogluon, "random-search": random_search,
    BEST: lambda task: autogluon(task, "best_quality"),
}  # fmt: skip


def one(who: str, name: str, seed: int, seconds: float, prepared: Path) -> dict[str, Any]:
    """One run, in a process of its own."""
    X, X_test, y, y_test, numbers = split(name, seed)
    task = Task(
        X.reset_index(drop=True), y.reset_index(drop=True), X_test.reset_index(drop=True), numbers, seconds,
        seed, prepared,
    )  # fmt: skip
    found = CONTENDERS[who](task)
    said = found.pop("said")
    said = [float(value) for value in said] if numbers else [str(value) for value in said]
    return {**found, "test": score(y_test, said, numbers)}


# The comparison


class ContenderFailedError(Exception):
    """What a contender said last."""


def run(cell: Cell, prepared: Path) -> dict[str, Any]:
    """What a contender found, with the load of the machine before it began."""
    one = [cell.who, cell.data, str(cell.seed), str(cell.seconds)]
    command = [sys.executable, __file__, "--one", *one, "--prepared", prepared]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:_CORES])
    each = 1 if cell.who == "random-search" else _CORES  # its folds share the cores already
    threads = {f"{library}_NUM_THREADS": str(each) for library in ("OMP", "OPENBLAS", "MKL")}
    load = round(os.getloadavg()[0], 1)
    done = subprocess.run(
        ["taskset", "-c", cores, *command], capture_output=True, text=True, check=False,
        env={**os.environ, **threads},
    )  # fmt: skip
    if done.returncode:
        raise ContenderFailedError(done.stderr[-3000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**answer, "load": load, "on": time.strftime("%Y-%m-%d")}


def fill(cells: list[Cell], kept: KeptCells, prepared: Path, most: int | None) -> int:
    """Run the cells that are missing, at most so many; answers how many of them failed."""
    missing, failed = [cell for cell in cells if kept[cell] is None], 0
    for cell in missing[:most]:
        try:
            found = run(cell, prepared)
        except ContenderFailedError as error:
            failed += 1
            print(f"{cell}: it failed, and is tried again the next time:\n{error}", file=sys.stderr)
            continue
        kept.keep(cell, found)
        told = f"test {found['test']:.4f}, {found['models']} models, {found['took_s']:.0f} s"
        print(f"{cell}: {told}, {found['best'][:100]}", flush=True)
    return failed


def mean_and_error(values: Any) -> str:
    values = list(values)
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {error:.4f}"


def table(kept: KeptCells, cells: list[Cell], seconds: float) -> None:
    """Test scores by data set with the gap to the best; their mean, and the mean rank, of all."""
    here = [cell for cell in cells if cell.seconds == seconds]
    ended = {cell: found for cell in here if (found := kept[cell]) is not None}
    lacking = len(here) - len(ended)
    print(f"\n## {seconds:g} seconds: {len(ended)} of {len(here)} cells, {lacking} are missing\n")
    if not ended:
        return
    tests = pd.Series({(cell.data, cell.seed, cell.who): found["test"] for cell, found in ended.items()})
    # What all contenders have: else their means would be of different rows.
    runs = tests.unstack().dropna()
    names = [name for name in dict.fromkeys(cell.data for cell in here) if name in runs.index]
    if names:
        by_data(runs, names)
    for title, of in (
        ("first model after the data are read", "first_model_s"),
        ("data read after", "read_s"),
    ):
        times = [found[of] for found in ended.values() if of in found]
        if times:
            print(f"  {title}: median {np.median(times):.2f} s, at most {max(times):.2f} s")
    for each in tests.unstack().columns:
        times = [found["took_s"] for cell, found in ended.items() if cell.who == each]
        print(f"  {each} took {np.mean(times):.1f} s on average, {max(times):.1f} s at most")
    loads = [found["load"] for found in ended.values()]
    print(f"  load of the machine before: median {np.median(loads):.1f}, {max(loads):.1f} at most")


def by_data(runs: pd.DataFrame, names: list[str]) -> None:
    """The rows of the table: `runs` has a column for each contender, and a row for each data set and seed."""
    means = pd.DataFrame({name: runs.loc[name].mean() for name in names}).T
    print("| test | seeds | " + " | ".join(means) + " | prudent behind the best |")
    print("|---|---|" + "---|" * (len(means.columns) + 1))
    for name, row in means.iterrows():
        cells = [mean_and_error(runs.loc[name][each]) for each in means]
        behind = f"{row.max() - row['prudent']:.4f}" if "prudent" in row else ""
        print(f"| {name} | {len(runs.loc[name])} | " + " | ".join(cells) + f" | {behind} |")
    ranks, gaps = means.rank(axis=1, ascending=False), means.rsub(means.max(axis=1), axis=0)
    for title, of in (("mean score", means), ("mean rank", ranks), ("mean gap", gaps)):
        print(f"| {title} | | " + " | ".join(mean_and_error(of[each]) for each in means) + " | |")
    near = [f"{(gaps[each] <= 0.01).sum()} of {len(gaps)}" for each in means]
    print("| within 0.01 | | " + " | ".join(near) + " | |\n")
    for each in means.columns.drop("prudent", errors="ignore"):
        if "prudent" in means:
            print(f"  prudent - {each}: {mean_and_error(means['prudent'] - means[each])} over {len(means)}")


def prepare(folder: Path) -> None:
    """AutoGluon in an environment of its own, for it wants other versions than we do; mlbench's files."""
    pip = [folder / "autogluon" / "bin" / "python", "-m", "pip", "install", "-q"]
    folder.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", folder / "autogluon"],
        [*pip, "torch==2.13.0"],
        [*pip, "autogluon.tabular[lightgbm,xgboost,catboost]", "pyarrow"],
        ["apt-get", "download", "r-cran-mlbench"],
    ):
        subprocess.run(command, check=True, cwd=folder)
    package = next(folder.glob("r-cran-mlbench_*.deb"))
    subprocess.run(["dpkg", "-x", package, folder / "mlbench"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepare", type=Path, metavar="DIR")
    parser.add_argument("--prepared", type=Path, metavar="DIR", default=Path("prepared"))
    parser.add_argument("--seconds", type=float, nargs="+", default=[30.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--who", nargs="+", default=list(WHO), choices=CONTENDERS)
    parser.add_argument("--keep", type=Path, metavar="CELLS", help="the folder of the runs that have ended")
    parser.add_argument("--cells", type=int, help="make at most so many more runs; all by default")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    prepared = (given.prepare or given.prepared).absolute()
    os.environ.setdefault("PRUDENT_MLBENCH", str(prepared / "mlbench"))
    if given.prepare:
        prepare(prepared)
        return
    if given.one:
        who, name, seed, seconds = given.one
        print(json.dumps(one(who, name, int(seed), float(seconds), prepared)))
        return
    if not (prepared / "autogluon").exists():
        print(f"{prepared} is not prepared: AutoGluon and the data sets of mlbench are left out.")
        given.who = [each for each in given.who if not each.startswith("autogluon")]
        given.data = [name for name in given.data if not name.startswith("mlbench:")]
    contenders = {}
    for seconds in given.seconds:
        best = [BEST] if "autogluon" in given.who and seconds >= BEST_FROM_S else []
        contenders[seconds] = list(dict.fromkeys([*given.who, *best]))
    cells, kept = list(in_order(given.seeds, contenders, given.data)), KeptCells(given.keep)
    failed = fill(cells, kept, prepared, given.cells)
    for seconds in sorted(contenders):
        table(kept, cells, seconds)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
