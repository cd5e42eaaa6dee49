"""Who finds the better model in the same time: Prudent, FLAML, AutoGluon, or scikit-learn's random search.

python benchmarks/training_quality.py --prepare DIR            # AutoGluon's environment, mlbench's files
python benchmarks/training_quality.py --prepared DIR --keep FILE [--seconds 30 60 300] [--seeds 5]
                                      [--data keel:german …] [--who prudent …] [--table]

Each contender gets the same rows, two cores and so many seconds of wall time, and does with them what it does
when nobody tells it more than what to maximise: Matthews' correlation of classes, R² of numbers. 30 % of a
data set are put away before, and only the comparison sees them. AutoGluon runs with `medium_quality`, from
300 seconds on with `best_quality` too. Every contender runs in a process of its own, one after the other; the
order changes with the seed. A finished run is kept in FILE, so that an interrupted comparison goes on where
it stopped. The data sets come in packages, see public_data.py.
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
from itertools import product
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from public_data import DATA, load
from sklearn_draws import draws

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
    """Draws of scikit-learn's models by five folds, until the time is up; the best is fitted on all rows."""
    began_s, best, models = time.monotonic(), (-math.inf, None), 0
    for pipeline in draws(task.numbers, task.train, task.texts, task.seed):
        left_s = task.seconds - (time.monotonic() - began_s)
        value = judged(task, pipeline, left_s)
        if value is None:
            break
        models += 1
        best = max(best, (value, pipeline), key=lambda pair: pair[0])
    found: Any = best[1]
    if found is None:
        raise SystemExit("No model was ready in time.")
    found.fit(task.train, task.target)
    took_s = time.monotonic() - began_s
    return {
        "took_s": took_s, "said": np.asarray(found.predict(task.test)).tolist(), "models": models,
        "best": str(found[-1]),
    }  # fmt: skip


def judged(task: Task, pipeline: Any, left_s: float) -> float | None:
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
        return here.recv() if here.poll(max(left_s, 0.0)) else None
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


def run(who: str, name: str, seed: int, seconds: float, prepared: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", who, name, str(seed), str(seconds), "--prepared", prepared]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:_CORES])
    threads = {f"{library}_NUM_THREADS": str(_CORES) for library in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        ["taskset", "-c", cores, *command], capture_output=True, text=True, check=False,
        env={**os.environ, **threads},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{who} failed on {name}, seed {seed}:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def mean_and_error(values: Any) -> str:
    values = list(values)
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {error:.4f}"


def table(kept: dict[str, Any], names: list[str], seeds: int, seconds: float, who: list[str]) -> None:
    """Test scores by data set with the gap to the best; their mean, and the mean rank, of all."""

    def scores(each: str, name: str) -> list[float | None]:
        return [kept.get(f"{each} {name} {seconds:g} {seed}", {}).get("test") for seed in range(seeds)]

    runs = {
        each: pd.DataFrame([scores(each, name) for name in names], index=names, dtype=float) for each in who
    }
    runs = {each: found for each, found in runs.items() if found.notna().any(axis=None)}
    if not runs:
        return
    # Seeds that all contenders have: else their means would be of different rows.
    common = np.logical_and.reduce([found.notna() for found in runs.values()])
    means = pd.DataFrame({each: found.where(common).mean(axis=1) for each, found in runs.items()}).dropna()
    if means.empty:
        return
    print(f"\n## {seconds:g} seconds\n\n| test | " + " | ".join(means) + " | prudent behind the best |")
    print("|---|" + "---|" * (len(means.columns) + 1))
    for name, row in means.iterrows():
        cells = [mean_and_error(runs[each].where(common).loc[name].dropna()) for each in means]
        behind = f"{row.max() - row['prudent']:.4f}" if "prudent" in row else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {behind} |")
    ranks = means.rank(axis=1, ascending=False)
    for title, of in (("mean score", means), ("mean rank", ranks)):
        print(f"| {title} | " + " | ".join(mean_and_error(of[each]) for each in means) + " | |")
    gaps = means.rsub(means.max(axis=1), axis=0)
    print("| mean gap | " + " | ".join(mean_and_error(gaps[each]) for each in means) + " | |")
    print(
        "| within 0.01 | "
        + " | ".join(f"{(gaps[each] <= 0.01).sum()} of {len(gaps)}" for each in means)
        + " | |"
    )
    for each in means.columns.drop("prudent", errors="ignore"):
        if "prudent" in means:
            print(f"  prudent - {each}: {mean_and_error(means['prudent'] - means[each])} over {len(means)}")
    own = [found for key, found in kept.items() if key.startswith("prudent ") and f" {seconds:g} " in key]
    for title, of in (
        ("first model after the data are read", "first_model_s"),
        ("data read after", "read_s"),
    ):
        times = [found[of] for found in own if of in found]
        if times:
            print(f"  {title}: median {np.median(times):.2f} s, at most {max(times):.2f} s")
    for each in means:
        times = [
            found["took_s"]
            for key, found in kept.items()
            if key.startswith(f"{each} ") and f" {seconds:g} " in key
        ]
        print(f"  {each} took {np.mean(times):.1f} s on average, {max(times):.1f} s at most")


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
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--table", action="store_true", help="print what FILE has, run nothing")
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
    kept: dict[str, Any] = {}
    if given.keep and given.keep.exists():
        kept = {line["key"]: line for line in map(json.loads, given.keep.read_text().splitlines())}
    if not (prepared / "autogluon").exists():
        print(f"{prepared} is not prepared: AutoGluon and the data sets of mlbench are left out.")
        given.who = [each for each in given.who if not each.startswith("autogluon")]
        given.data = [name for name in given.data if not name.startswith("mlbench:")]
    for seconds in given.seconds:
        best = [BEST] if "autogluon" in given.who and seconds >= BEST_FROM_S else []
        who = list(dict.fromkeys([*given.who, *best]))
        for seed in [] if given.table else range(given.seeds):
            turns = [*who[seed % len(who) :], *who[: seed % len(who)]]
            for name, each in product(given.data, turns):
                key = f"{each} {name} {seconds:g} {seed}"
                if key in kept:
                    continue
                kept[key] = found = {"key": key, **run(each, name, seed, seconds, prepared)}
                told = f"test {found['test']:.4f}, {found['models']} models, {found['took_s']:.0f} s"
                print(f"{key}: {told}, {found['best'][:100]}", flush=True)
                if given.keep:
                    with given.keep.open("a") as file:
                        file.write(json.dumps(found) + "\n")
        table(kept, given.data, given.seeds, seconds, who)


if __name__ == "__main__":
    main()
