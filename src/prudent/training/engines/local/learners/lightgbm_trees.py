"""Trees grown by LightGBM: with its own parameters, and with those of Spark's gradient-boosted trees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask
from prudent.training.engines.local.learners.boosting import (
    BoostedTrees,
    BoostingTask,
    GrownTrees,
    Vector,
    rounds_of,
)
from prudent.training.engines.local.learners.tree_arrays import LEAF, SummedTrees, Tree
from prudent.training.engines.local.learners.trees import features_tried

_MOST_LEAVES = 131_072  # LightGBM's own limit
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT, _MISSING_IS_NAN = 1, 2, 2, 2  # bits of its `decision_type`
_WORD = 32  # categories in a word of its sets


def lightgbm_trees(fit_task: FitTask, params: Mapping[str, Any]) -> BoostedTrees:
    """LightGBM: trees grown leaf by leaf; missing values and categories are taken as they are."""
    settings = {
        "num_leaves": params["numLeaves"],
        "max_depth": params["maxDepth"],
        "learning_rate": params["learningRate"],
        "min_data_in_leaf": params["minDataInLeaf"],
        "feature_fraction": params["featureFraction"],
        "bagging_fraction": params["baggingFraction"],
        "lambda_l1": params["lambdaL1"],
        "lambda_l2": params["lambdaL2"],
        "min_gain_to_split": params["minGainToSplit"],
        "max_bin": params["maxBin"],
    }
    task = BoostingTask(fit_task, rounds_of(fit_task, params["numIterations"]))
    return task.model(partial(_grow, settings=settings))


def boosted_trees(fit_task: FitTask, params: Mapping[str, Any]) -> BoostedTrees:
    """Gradient-boosted trees with the parameters of Spark ML, which LightGBM grows to their full depth."""
    if params["minInfoGain"] > 0:
        raise BadInput("Boosted trees of the local engine have no minInfoGain; set it to 0.")
    depth, (rows, features) = params["maxDepth"], fit_task.rows.X.shape
    rounds = rounds_of(fit_task, params["maxIter"]) if depth else 0
    task = BoostingTask(fit_task, rounds)
    least = max(params["minInstancesPerNode"], math.ceil(params["minWeightFractionPerNode"] * rows))
    tried = features_tried(params["featureSubsetStrategy"], features, task.classifies, params["maxIter"])
    settings = {
        "num_leaves": min(2 ** max(depth, 1), _MOST_LEAVES),
        "max_depth": max(depth, 1),
        "learning_rate": params["stepSize"],
        "min_data_in_leaf": least,
        "min_data_in_bin": 1,
        "feature_fraction_bynode": tried / features,
        "bagging_fraction": params["subsamplingRate"],
        "max_bin": params["maxBins"],
    }
    if params["lossType"] == "absolute":
        settings["objective"] = "regression_l1"
    return task.model(partial(_grow, settings=settings))


def _grow(task: BoostingTask, settings: Mapping[str, Any]) -> GrownTrees:
    import lightgbm

    rows, seed = task.fit_task.rows, task.fit_task.seed
    classes = len(task.present)
    objective = "regression" if not task.classifies else "binary" if classes == 2 else "multiclass"
    known = {
        "objective": objective,
        "num_class": classes if objective == "multiclass" else 1,
        "metric": "None",
        "bagging_freq": int(settings["bagging_fraction"] < 1),
        "feature_pre_filter": False,
        "deterministic": True,
        "force_row_wise": True,
        "seed": seed % 2**31,
        "num_threads": task.fit_task.threads,
        "verbosity": -1,
        **settings,
    }
    places = [int(place) for place in np.flatnonzero(task.fit_task.categories)]
    data = lightgbm.Dataset(rows.X, task.labels, params=known, categorical_feature=places)
    booster = lightgbm.train(known, data, task.rounds, **_watched(task, data))
    best = task.best_rounds
    trees = parsed_trees(booster.model_to_string(num_iteration=best))
    outputs = [int(task.outputs[number % len(task.outputs)]) for number in range(len(trees))]
    exported = SummedTrees(tuple(zip(outputs, trees, strict=True)), task.base, task.classifies)
    threads = task.fit_task.threads

    def raw_scores(X: Matrix) -> Vector:
        found = booster.predict(X, raw_score=True, num_iteration=best, num_threads=threads)
        return np.asarray(found, dtype=np.float64)

    return GrownTrees(exported, raw_scores, booster.feature_importance("gain", iteration=best))


def _watched(task: BoostingTask, data: Any) -> dict[str, Any]:
    """What makes LightGBM tell its answers after every round, and end when it is told to."""
    import lightgbm

    watched, fit_task = task.fit_task.watched, task.fit_task
    if watched is None:
        return {}
    known = data.create_valid(watched.X, np.zeros(len(watched.X)))
    sample = data.create_valid(fit_task.rows.X[task.sample], np.zeros(len(task.sample)))
    answers: dict[bool, NDArray[Any]] = {}

    def remember(found: NDArray[Any], of: Any) -> tuple[str, float, bool]:
        answers[of is known] = found
        return "answers", 0.0, True

    def step(env: Any) -> None:
        if task.step(answers[True], answers[False]):
            raise lightgbm.EarlyStopException(env.iteration, [])

    return {"valid_sets": [known, sample], "feval": remember, "callbacks": [step]}


def parsed_trees(text: str) -> list[Tree]:
    """The trees of a LightGBM model file, in order."""
    before_parameters = text.partition("\nend of trees")[0]
    return [_as_tree(part) for part in before_parameters.split("\nTree=")[1:]]


def _as_tree(text: str) -> Tree:
    said = dict(line.split("=", 1) for line in text.splitlines()[1:] if "=" in line)
    leaf_values = np.array(said["leaf_value"].split(), dtype=np.float64)
    inner = len(leaf_values) - 1

    def numbers(name: str, kind: type[np.generic] = np.int64) -> NDArray[Any]:
        return np.array(said[name].split() if inner and name in said else [], dtype=kind)

    left, right, decision = numbers("left_child"), numbers("right_child"), numbers("decision_type")
    threshold = numbers("threshold", np.float64)
    # A value that is missing where training had none counts as 0.
    default_left = (decision & _DEFAULT_LEFT) > 0
    missing_left = np.where((decision >> _MISSING_SHIFT) == _MISSING_IS_NAN, default_left, threshold >= 0)
    sets = {}
    bounds, words = numbers("cat_boundaries"), numbers("cat_threshold")
    for node in np.flatnonzero(decision & _CATEGORICAL):
        number = int(threshold[node])
        sets[int(node)] = (_members(words[bounds[number] : bounds[number + 1]]), True)
        missing_left[node] = False
    nothing, leaf = np.zeros(inner + 1, dtype=np.int64), np.full(inner + 1, LEAF)
    return Tree(
        feature=np.concatenate([numbers("split_feature"), nothing]),
        threshold=np.concatenate([threshold, nothing]),
        # A leaf is told by the complement of its number; here leaves come after the inner nodes.
        left=np.concatenate([np.where(left < 0, inner + ~left, left), leaf]),
        right=np.concatenate([np.where(right < 0, inner + ~right, right), leaf]),
        values=np.concatenate([np.zeros(inner), leaf_values])[:, None],
        sets=sets,
        missing_left=np.concatenate([missing_left, np.zeros(inner + 1, dtype=bool)]),
    )


def _members(words: NDArray[np.int64]) -> tuple[float, ...]:
    """The categories whose bits are set."""
    return tuple(
        float(_WORD * place + bit)
        for place, word in enumerate(words.tolist())
        for bit in range(_WORD)
        if word >> bit & 1
    )
