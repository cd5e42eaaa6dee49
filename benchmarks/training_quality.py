"""Which search finds the better model in the same time: Prudent, FLAML, or scikit-learn's random search.

python benchmarks/training_quality.py [--seconds 60] [--seeds 5] [--data cancer digits …] [--who prudent …]
                                      [--keep FILE] [--table]

Each contender has the same algorithms, the same wall seconds, two cores and the same rows: 30 % of a data set
are put away for the test, 30 % of the rest judge while it searches. Models are compared as they were trained,
on the training rows alone. Every contender runs in a process of its own, one after the other; the order
changes with the seed. A finished run is kept in FILE, so an interrupted comparison goes on where it stopped.
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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.splitting import hold_out

DATA = ("cancer", "wine", "digits", "diabetes", "made-classes", "made-numbers")
WHO = ("prudent", "flaml", "random-search")
ROWS = 100_000


def load(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and target; integers are classes."""
    from sklearn import datasets

    if name == "made-classes":
        X, y = datasets.make_classification(
            ROWS, 30, n_informative=12, n_redundant=6, n_classes=3, n_clusters_per_class=3, flip_y=0.05,
            class_sep=0.8, random_state=11,
        )  # fmt: skip
    elif name == "made-numbers":
        X, y = datasets.make_friedman1(ROWS, 20, noise=1.0, random_state=11)
    else:
        reader = {"cancer": "breast_cancer"}.get(name, name)
        X, y = getattr(datasets, f"load_{reader}")(return_X_y=True)
    classes = name not in ("diabetes", "made-numbers")
    return X.astype(np.float32), y.astype(np.int64) if classes else y.astype(float)


def parts(name: str, seed: int) -> dict[str, NDArray[Any]]:
    """The rows that train, that judge the search, and that only the comparison sees."""
    X, y = load(name)
    outer = hold_out(len(y), y, 1000 + seed)
    known_X, known_y = X[outer.train], y[outer.train]
    inner = hold_out(len(known_y), known_y, seed)
    return {
        "X": known_X[inner.train], "y": known_y[inner.train],
        "X_judge": known_X[inner.validation], "y_judge": known_y[inner.validation],
        "X_test": X[outer.validation], "y_test": y[outer.validation],
        "X_known": known_X, "y_known": known_y,
    }  # fmt: skip


def score(truth: NDArray[Any], said: NDArray[Any]) -> float:
    """MCC of two classes, weighted F1 of more, R2 of numbers."""
    from sklearn import metrics

    if truth.dtype.kind == "f":
        return float(metrics.r2_score(truth, said))
    if len(np.unique(truth)) == 2:
        return float(metrics.matthews_corrcoef(truth, said))
    return float(metrics.f1_score(truth, said, average="weighted"))


# One contender each: a list of (second, score) as the best grew, and the best model's score on the test rows.


def prudent(name: str, seed: int, seconds: float) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import prudent as product
    from prudent.training.leaderboard import TrainingTrialEnded
    from prudent.training.train import train

    data = parts(name, seed)
    columns = {f"f{n}": data["X_known"][:, n] for n in range(data["X_known"].shape[1])}
    curve: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        pq.write_table(pa.table({**columns, "target": data["y_known"]}), path)
        numbers = data["y_known"].dtype.kind == "f"
        request = {
            "domain": "regression" if numbers else "classification",
            "dataset": {"path": str(path), "target": "target"},
            "budget": f"{seconds:g} s",
            "seed": seed,
        }
        spread = float(np.var(data["y_judge"])) if numbers else 0.0
        began_s = time.monotonic()

        def watch(event: object) -> None:
            if isinstance(event, TrainingTrialEnded) and hasattr(event.result, "score"):
                value = 1 - event.result.value**2 / spread if numbers else event.result.score
                curve.append((time.monotonic() - began_s, value))

        board = train(request, "local", Path(folder, "models"), watch=watch)
        took_s = time.monotonic() - began_s
        model = product.load(board.entries[0].model_path)
        rows = [dict(zip(columns, map(float, row), strict=True)) for row in data["X_test"]]
        said = np.array(model.predict(rows))
        said = said.astype(data["y_test"].dtype)
        best = board.entries[0]
        return {
            "curve": curve, "test": score(data["y_test"], said), "took_s": took_s, "trials": len(curve),
            "best": f"{best.algorithm} {dict(best.hyperparameters)} {dict(best.transforms)}",
        }  # fmt: skip


def flaml(name: str, seed: int, seconds: float) -> dict[str, Any]:
    from flaml import AutoML
    from flaml.automl.model import SKLearnEstimator
    from flaml.tune import lograndint, loguniform
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    data = parts(name, seed)
    numbers = data["y"].dtype.kind == "f"

    class Tree(SKLearnEstimator):
        def __init__(self, task: Any = "binary", **config: Any) -> None:
            super().__init__(task, **config)
            self.params.pop("n_jobs", None)
            self.estimator_class = DecisionTreeRegressor if numbers else DecisionTreeClassifier

        @classmethod
        def search_space(cls, data_size: Any, task: Any, **more: Any) -> dict[str, Any]:
            return {
                "max_depth": {"domain": lograndint(1, 21), "init_value": 5},
                "min_samples_leaf": {"domain": lograndint(1, 65), "init_value": 16},
            }

    class Bayes(SKLearnEstimator):
        def __init__(self, task: Any = "binary", **config: Any) -> None:
            super().__init__(task, **config)
            self.params.pop("n_jobs", None)
            self.estimator_class = GaussianNB

        @classmethod
        def search_space(cls, data_size: Any, task: Any, **more: Any) -> dict[str, Any]:
            return {"var_smoothing": {"domain": loguniform(1e-12, 1e-2), "init_value": 1e-9}}

    class Vectors(SKLearnEstimator):
        def __init__(self, task: Any = "binary", **config: Any) -> None:
            super().__init__(task, **config)
            self.params.pop("n_jobs", None)
            self.estimator_class = LinearSVC

        @classmethod
        def search_space(cls, data_size: Any, task: Any, **more: Any) -> dict[str, Any]:
            return {"C": {"domain": loguniform(0.01, 1000.0), "init_value": 1.0}}

    curve: list[tuple[float, float]] = []
    automl = AutoML()
    automl.add_learner("tree", Tree)
    automl.add_learner("bayes", Bayes)
    automl.add_learner("vectors", Vectors)
    own = ["tree", "rf", "histgb"] + (["enet"] if numbers else ["lrl1", "lrl2", "bayes"])
    if not numbers and len(np.unique(data["y"])) == 2:
        own.append("vectors")
    began_s = time.monotonic()

    def judge(X: Any, y: Any, estimator: Any, labels: Any, *more: Any, **named: Any) -> Any:
        value = score(np.asarray(y), np.asarray(estimator.predict(X)))
        curve.append((time.monotonic() - began_s, value))
        return 1 - value, {"score": value}

    automl.fit(
        data["X"], data["y"], X_val=data["X_judge"], y_val=data["y_judge"], eval_method="holdout",
        task="regression" if numbers else "classification", metric=judge, time_budget=seconds,
        estimator_list=own, n_jobs=2, seed=seed, retrain_full=False, verbose=0,
    )  # fmt: skip
    took_s = time.monotonic() - began_s
    said = np.asarray(automl.predict(data["X_test"])).astype(data["y_test"].dtype)
    return {
        "curve": curve, "test": score(data["y_test"], said), "took_s": took_s, "trials": len(curve),
        "best": f"{automl.best_estimator} {automl.best_config}",
    }  # fmt: skip


def random_search(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """Runs until it is stopped from outside; its scorer writes a line for each model."""
    with tempfile.TemporaryDirectory() as folder:
        log, env = Path(folder, "scores"), {**os.environ, "OMP_NUM_THREADS": "1"}
        log.touch()
        began_s = time.time()
        child = subprocess.Popen(
            [sys.executable, __file__, "--draw", name, str(seed), str(log)], env=env, start_new_session=True
        )
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
        child.wait()
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    lines = [line for line in lines if line["at_s"] - began_s <= seconds]
    best = max(lines, key=lambda line: float(line["score"]))
    return {
        "curve": [(line["at_s"] - began_s, line["score"]) for line in lines], "test": best["test"],
        "took_s": seconds, "trials": len(lines), "best": best["model"],
    }  # fmt: skip


def draw(name: str, seed: int, log: Path) -> None:
    """scikit-learn's random search over all the algorithms at once."""
    from scipy.stats import loguniform, randint, uniform
    from sklearn import ensemble, linear_model, naive_bayes, svm, tree
    from sklearn.model_selection import PredefinedSplit, RandomizedSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = parts(name, seed)
    numbers = data["y"].dtype.kind == "f"
    plain = "regressor" if numbers else "classifier"
    kind = plain.capitalize()
    boosted = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=seed)
    nodes = {"max_depth": randint(1, 21), "min_samples_leaf": loguniform_integers(1, 64)}
    if not numbers:
        nodes["criterion"] = ["gini", "entropy"]
    spaces = [
        (getattr(tree, f"DecisionTree{kind}")(random_state=seed), nodes),
        (
            getattr(ensemble, f"RandomForest{kind}")(random_state=seed),
            nodes
            | {"n_estimators": loguniform_integers(5, 300), "max_features": ["sqrt", "log2", 1 / 3, 1.0]},
        ),
        (
            boosted,
            {
                "max_iter": loguniform_integers(10, 300),
                "learning_rate": loguniform(0.02, 0.5),
                "max_depth": randint(1, 10),
                "min_samples_leaf": loguniform_integers(1, 64),
            },
        ),
    ]
    if numbers:
        spaces.append((linear_model.ElasticNet(), {"alpha": loguniform(1e-5, 10), "l1_ratio": uniform(0, 1)}))
    else:
        logistic = linear_model.LogisticRegression(solver="saga", random_state=seed)
        spaces.append((logistic, {"C": loguniform(0.001, 1000), "l1_ratio": uniform(0, 1)}))
        spaces.append((naive_bayes.GaussianNB(), {"var_smoothing": loguniform(1e-12, 1e-2)}))
        if len(np.unique(data["y"])) == 2:
            spaces.append((svm.LinearSVC(random_state=seed), {"C": loguniform(0.001, 1000)}))
    pipeline = make_pipeline(StandardScaler(), None)
    last = pipeline.steps[-1][0]
    drawn = [
        {last: [model], **{f"{last}__{key}": value for key, value in space.items()}}
        for model, space in spaces
    ]
    X, y = np.vstack([data["X"], data["X_judge"]]), np.concatenate([data["y"], data["y_judge"]])
    fold = PredefinedSplit(np.r_[np.full(len(data["y"]), -1), np.zeros(len(data["y_judge"]), int)])

    def judge(model: Any, judged: Any, truth: Any) -> float:
        value = score(truth, model.predict(judged))
        at_s = time.time()
        test = score(data["y_test"], model.predict(data["X_test"]))
        line = {"at_s": at_s, "score": value, "test": test, "model": str(model[-1])}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return value

    RandomizedSearchCV(
        pipeline, drawn, n_iter=20_000, scoring=judge, n_jobs=2, refit=False, cv=fold, random_state=seed
    ).fit(X, y)


def loguniform_integers(low: int, high: int) -> Any:
    """Whole numbers, as likely between 1 and 10 as between 10 and 100."""
    from scipy.stats import rv_discrete

    values = np.arange(low, high + 1)
    weights = np.log1p(1 / values)
    return rv_discrete(values=(values, weights / weights.sum()))


# The comparison


def run(who: str, name: str, seed: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", who, name, str(seed), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} failed on {name}, seed {seed}:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def best_of(found: dict[str, Any], seconds: float) -> float:
    """The best score within the time; a trial that ends a moment later counts for nobody."""
    return max((value for at_s, value in found["curve"] if at_s <= seconds + 1), default=-math.inf)


def reached_s(found: dict[str, Any], goal: float) -> float:
    return min((at_s for at_s, value in found["curve"] if value >= goal - 1e-9), default=math.inf)


def mean_and_error(values: list[float]) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {error:.4f}"


def table(kept: dict[str, Any], names: list[str], seeds: int, seconds: float) -> None:
    """Scores on the rows that judged, on the test rows, and the seconds until FLAML's last score."""
    for title, of in (("judged", lambda f: best_of(f, seconds)), ("test", lambda f: f["test"])):
        print(f"\n| {title} | " + " | ".join(WHO) + " |\n|---|" + "---|" * len(WHO))
        gaps: dict[str, list[float]] = {who: [] for who in WHO[1:]}
        for name in names:
            cells = []
            for who in WHO:
                values = [of(kept[f"{who} {name} {s}"]) for s in range(seeds) if f"{who} {name} {s}" in kept]
                cells.append(mean_and_error(values) if values else "")
            print(f"| {name} | " + " | ".join(cells) + " |")
            for who in WHO[1:]:
                for s in range(seeds):
                    mine, other = kept.get(f"prudent {name} {s}"), kept.get(f"{who} {name} {s}")
                    if mine and other:
                        gaps[who].append(of(mine) - of(other))
        for who, values in gaps.items():
            if values:
                print(f"  prudent - {who}: {mean_and_error(values)} over {len(values)}")
    print("\n| seconds to FLAML's last score | median | reached |\n|---|---|---|")
    for name in names:
        times = [
            reached_s(kept[f"prudent {name} {s}"], best_of(kept[f"flaml {name} {s}"], seconds))
            for s in range(seeds)
            if f"prudent {name} {s}" in kept and f"flaml {name} {s}" in kept
        ]
        if times:
            print(f"| {name} | {np.median(times):.1f} | {sum(map(math.isfinite, times))} of {len(times)} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--who", nargs="+", default=list(WHO), choices=WHO)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--table", action="store_true", help="print what FILE has, run nothing")
    given = parser.parse_args()
    kept: dict[str, Any] = {}
    if given.keep and given.keep.exists():
        kept = {line["key"]: line for line in map(json.loads, given.keep.read_text().splitlines())}
    for seed in [] if given.table else range(given.seeds):
        for name in given.data:
            for place in range(len(given.who)):
                who = given.who[(place + seed) % len(given.who)]
                key = f"{who} {name} {seed}"
                if key in kept:
                    continue
                kept[key] = {"key": key, **run(who, name, seed, given.seconds)}
                best = best_of(kept[key], given.seconds)
                print(f"{key}: {best:.4f}, test {kept[key]['test']:.4f}, {kept[key]['trials']} trials, "
                      f"{kept[key]['took_s']:.0f} s, {kept[key]['best'][:150]}", flush=True)  # fmt: skip
                if given.keep:
                    with given.keep.open("a") as file:
                        file.write(json.dumps(kept[key]) + "\n")
    table(kept, given.data, given.seeds, given.seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one = {"prudent": prudent, "flaml": flaml, "random-search": random_search}[sys.argv[2]]
        print(json.dumps(one(sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))))
    elif sys.argv[1:2] == ["--draw"]:
        draw(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
