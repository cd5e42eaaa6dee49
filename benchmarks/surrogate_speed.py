"""How quick the bagged trees are, next to scikit-learn's, and how well both predict.

    python benchmarks/surrogate_speed.py [--json]

One core. Times are the best of several calls, warm; the first call of a fresh installation compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from prudent.core.seeds import rng_for
from prudent.tuning.surrogates.trees import Trees

FIRST_CALLS = """
import time, numpy as np
from prudent.tuning.surrogates.trees import Trees
start = time.perf_counter()
X = np.random.default_rng(0).random((30, 8))
trees = Trees.fit(X, X[:, 0], np.random.default_rng(0))
trees.predict(X), trees.fantasies(X, X[:, 0], X)
print(time.perf_counter() - start)
"""


def answers(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    far: np.ndarray[Any, Any] = (
        np.exp(1.5 * X[:, 0] - 2 * X[:, 1]) + np.sin(3 * X[:, 2]) * X[:, 3] + X[:, 4] ** 2
    )
    return far - 0.5 * X[:, 5] + 0.3 * X[:, 6] * X[:, 7]


def grid(m: int, d: int = 8) -> np.ndarray[Any, Any]:
    """Few-valued features, as machine and job parameters are."""
    return rng_for(1, "grid").integers(0, [3, 4, 2, 8, 2, 5, 2, 3] + [4] * (d - 8), (m, d)) / 4


def best_ms(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def first_calls_s() -> dict[str, float]:
    """Seconds of the first calls in a new process: nothing compiled yet, and compiled before."""
    with tempfile.TemporaryDirectory() as cache:
        run = [sys.executable, "-c", FIRST_CALLS]
        env = {**os.environ, "NUMBA_CACHE_DIR": cache}
        times = [
            float(subprocess.run(run, env=env, check=True, capture_output=True).stdout) for _ in range(2)
        ]
    return {"first calls, compiling (s)": times[0], "first calls, cached (s)": times[1]}


def speed() -> dict[str, float]:
    Xc = grid(384)
    X, y = Xc[:30], answers(Xc[:30])
    rng = rng_for(2, "trees")
    trees = Trees.fit(X, y, rng)
    mean, std = trees.predict(Xc)
    nodes = np.tile([-1.732, 0.0, 1.732], 384)
    Xf, yf = np.repeat(Xc, 3, axis=0), np.repeat(mean, 3) + nodes * np.repeat(std, 3)
    pairs = np.stack([np.tile(Xf, (4, 1)), np.repeat(Xf, 4, axis=0)], axis=1)
    pair_answers = np.stack([np.tile(yf, 4), np.repeat(yf, 4)], axis=1)
    return {
        "fit + predict, 30 samples, 384 candidates (ms)": best_ms(
            lambda: Trees.fit(X, y, rng).predict(Xc), 200
        ),
        "1152 fantasies, refitted (ms)": best_ms(lambda: trees.fantasies(Xf, yf, Xc), 9),
        "4608 fantasies, refitted (ms)": best_ms(
            lambda: trees.fantasies(pairs[:, 0], pair_answers[:, 0], Xc), 5
        ),
        "4608 fantasies of two samples, refitted (ms)": best_ms(
            lambda: trees.fantasies(pairs, pair_answers, Xc), 5
        ),
    }


def growth() -> dict[str, float]:
    figures = {}
    for n, m in ((30, 10_000), (30, 100_000), (100, 384), (1000, 384), (1000, 100_000)):
        data = grid(n + m)
        figures[f"fit + predict, {n} samples, {m} candidates (ms)"] = fit_and_predict_ms(data[:n], data[n:])
    X = rng_for(4).random((1384, 40))
    figures["fit + predict, 1000 samples of 40 real features (ms)"] = fit_and_predict_ms(X[:1000], X[1000:])
    return figures


def fit_and_predict_ms(X: np.ndarray[Any, Any], Xc: np.ndarray[Any, Any]) -> float:
    y = answers(X)
    return best_ms(lambda: Trees.fit(X, y, rng_for(3)).predict(Xc), 5)


def against_scikit_learn() -> dict[str, float]:
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    Xc = grid(384)
    X, y = Xc[:30], answers(Xc[:30])
    figures = {}
    for name, kind in (("forest", RandomForestRegressor), ("extra trees", ExtraTreesRegressor)):
        model = kind(n_estimators=10, max_features=0.67, bootstrap=True, random_state=1)
        theirs = best_ms(lambda: model.fit(X, y).predict(Xc), 9)  # noqa: B023
        ours = best_ms(lambda: Trees.fit(X, y, rng_for(1)).predict(Xc), 50)
        figures[f"times quicker than scikit-learn's {name}, fit + predict"] = theirs / ours
    return figures


def quality() -> dict[str, float]:
    """Mean R² over 20 seeds, 60 samples of 8 real features, 10 trees."""
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    scores: dict[str, list[float]] = {}
    for seed in range(20):
        rng = rng_for(seed, "quality")
        X, Xt = rng.random((60, 8)), rng.random((500, 8))
        y, yt = answers(X), answers(Xt)
        found = {"ours": Trees.fit(X, y, rng).predict(Xt)[0]}
        for name, kind in (
            ("scikit-learn, forest", RandomForestRegressor),
            ("scikit-learn, extra trees", ExtraTreesRegressor),
        ):
            model = kind(n_estimators=10, max_features=0.67, bootstrap=True, random_state=seed)
            found[name] = model.fit(X, y).predict(Xt)
        for name, predicted in found.items():
            scores.setdefault(f"R² {name}", []).append(1 - float(((yt - predicted) ** 2).mean() / yt.var()))
    return {name: float(np.mean(values)) for name, values in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    figures = first_calls_s() | speed() | growth() | against_scikit_learn() | quality()
    if as_json:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
        return
    for name, value in figures.items():
        print(f"{name:<58} {value:10.3f}")


if __name__ == "__main__":
    main()
