"""What the surrogates answer on small fixed data, kept in `recorded.json`: studies of a seed stay the same.

    python tests/tuning/surrogates/recorded.py

records it anew. A change there changes the decisions of every study, and must be meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.seeds import rng_for
from prudent.tuning.surrogates.gp import weigh_hyperparameters
from prudent.tuning.surrogates.product_gp import (
    FractionSamples,
    FractionShape,
    ProductProcess,
    draw_hyperparameters,
    saturating,
    stratified_normals,
    stretch_moves,
)
from prudent.tuning.surrogates.trees import Trees

Array = np.ndarray[Any, Any]
Answers = dict[str, Array]
FILE = Path(__file__).with_name("recorded.json")
GROUPS = [slice(0, 1), slice(1, 3)]


def data(count: int, levels: int | None = None) -> tuple[Array, Array]:
    """Made without a generator, so that no version of one changes it; `levels` makes values meet."""
    steps = np.arange(1, count + 1)[:, None] * np.sqrt([2.0, 3.0, 5.0])
    X = steps % 1.0
    X = X if levels is None else np.floor(levels * X)
    return X, np.sin(4 * X[:, 0]) + X[:, 1] * X[:, 2] - X[:, 2]


def forest(count: int, levels: int | None = None) -> Answers:
    X, y = data(count, levels)
    pool = data(count + 6)[0][count:] * (levels or 1)
    trees = Trees.fit(X, y, rng_for(3), 6)
    mean, std = trees.predict(pool)
    answers = {"mean": mean, "std": std}
    after, after_std = trees.fantasies(pool[:2], np.array([3.0, -2.0]), pool)
    answers |= {"fantasies": after, "fantasies_std": after_std}
    several = trees.fantasies(np.stack([pool[:3], pool[3:]]), np.array([[1.0, 2.0, 3.0], [0, 0, -4.0]]), pool)
    return answers | {"several": several[0], "several_std": several[1]}


def settings(count: int) -> Answers:
    X, y = data(count)
    found = weigh_hyperparameters(X, (y - y.mean()) / y.std(), GROUPS, seed=11)
    return {"scales": found.scales, "noise": found.noise, "weights": found.weights}


def product_settings(count: int, shape: FractionShape) -> Answers:
    X, y = data(count)
    s = np.array([0.02, 0.1, 0.5])[np.arange(count) % 3]
    samples = FractionSamples(X, s, y - y.mean() + 0.3 * np.log(s), np.where(np.arange(count) == 1, 0.4, 0.0))
    found = draw_hyperparameters(samples, shape, GROUPS, seed=11)
    belief = ProductProcess.fit(samples, X[:3], np.array([1.0, 0.5, 1.0]), shape, GROUPS, 11, usual=2.0)
    return {
        "scales": found.scales,
        "cholesky": found.cholesky,
        "bend": found.bend,
        "noise": found.noise,
        "mean": belief.mean,
        "std": belief.std,
        "noise_std": np.array(belief.noise_std),
    }


def walkers(count: int) -> Answers:
    def score(places: Array) -> Array:
        return -0.5 * (places**2).sum(axis=1)

    rng = rng_for(2)
    return {"walk": stretch_moves(stratified_normals(count, 3, rng), score, 4, rng)}


CASES: dict[str, Callable[[], Answers]] = {
    "trees": lambda: forest(90),
    "trees, ties": lambda: forest(40, 4),
    "trees that draw nothing": lambda: forest(1),
    "settings": lambda: settings(9),
    "settings of many": lambda: settings(125),
    "product settings": lambda: product_settings(10, FractionShape(power=1.0)),
    "product settings, plain": lambda: product_settings(10, FractionShape(saturating, plain=True)),
    "walkers": lambda: walkers(7),
}


def main() -> None:
    said = {name: {key: value.tolist() for key, value in case().items()} for name, case in CASES.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(answers)}" for name, answers in said.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
