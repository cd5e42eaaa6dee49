"""Trees grown by XGBoost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from prudent.training.engines.onnx_export import FLOAT, GraphOutputs, OnnxGraph


def xgboost_trees(fit_task: FitTask, params: Mapping[str, Any]) -> BoostedTrees:
    """XGBoost: regularised trees on histograms; missing values and categories are taken as they are."""
    settings = {
        "max_depth": params["maxDepth"],
        "learning_rate": params["learningRate"],
        "min_child_weight": params["minChildWeight"],
        "subsample": params["subsample"],
        "colsample_bytree": params["colsampleBytree"],
        "reg_alpha": params["regAlpha"],
        "reg_lambda": params["regLambda"],
        "gamma": params["gamma"],
        "max_bin": params["maxBin"],
    }
    task = BoostingTask(fit_task, rounds_of(fit_task, params["numRound"]))
    return task.model(partial(_grow, settings=settings))


@dataclass(frozen=True, eq=False)
class SinglePrecisionTrees(SummedTrees):
    """Trees of a library that looks at features in single precision, less a shift where they have more."""

    shift: Vector | None = None

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        if self.shift is not None:
            rows = graph.cast(graph.add("Sub", graph.to_double(rows), graph.constant(self.shift)), FLOAT)
        return super().graph(graph, rows)


def _grow(task: BoostingTask, settings: Mapping[str, Any]) -> GrownTrees:
    import xgboost

    fit_task, classes = task.fit_task, len(task.present)
    shift = _shift(fit_task)
    kinds = ["c" if size else "q" for size in fit_task.categories] or None

    def matrix(X: Matrix, y: NDArray[Any] | None = None) -> Any:
        narrow = X if shift is None else (X - shift).astype(np.float32)
        return xgboost.DMatrix(
            narrow, y, feature_types=kinds, enable_categorical=True, nthread=fit_task.threads
        )

    objective = "reg:squarederror"
    if task.classifies:
        objective = "binary:logistic" if classes == 2 else "multi:softprob"
    begin = 0.5 if task.classifies else float(np.float32(fit_task.rows.target.mean()))
    known = {
        "objective": objective,
        "tree_method": "hist",
        "base_score": begin,
        "disable_default_eval_metric": True,
        "seed": fit_task.seed % 2**31,
        "nthread": fit_task.threads,
        "verbosity": 0,
        **({"num_class": classes} if objective == "multi:softprob" else {}),
        **settings,
    }
    watched = _watched(task, matrix)
    booster = xgboost.train(
        known, matrix(fit_task.rows.X, task.labels), task.rounds, verbose_eval=False, **watched
    )[: task.best_rounds]
    base = task.base.copy()
    base[task.outputs] += 0.0 if objective == "binary:logistic" else begin
    exported = exported_trees(booster, base, task.outputs, task.classifies, shift)

    def raw_scores(X: Matrix) -> Vector:
        return np.asarray(booster.predict(matrix(X), output_margin=True), dtype=np.float64)

    gains = booster.get_score(importance_type="total_gain")
    importance = [float(gains.get(f"f{place}", 0.0)) for place in range(fit_task.rows.X.shape[1])]
    return GrownTrees(exported, raw_scores, np.array(importance))


def _shift(fit_task: FitTask) -> Vector | None:
    """What is taken off double-precision features, so that single precision keeps how they differ."""
    X = fit_task.rows.X
    if X.dtype == np.float32:
        return None
    middle: Vector = np.round(np.nan_to_num((np.fmin.reduce(X, axis=0) + np.fmax.reduce(X, axis=0)) / 2))
    middle[np.flatnonzero(fit_task.categories)] = 0.0
    return middle


def _watched(task: BoostingTask, matrix: Any) -> dict[str, Any]:
    """What makes XGBoost tell its answers after every round, and end when it is told to."""
    from xgboost.callback import TrainingCallback

    watched, fit_task = task.fit_task.watched, task.fit_task
    if watched is None:
        return {}
    known = matrix(watched.X, np.zeros(len(watched.X)))
    sample = matrix(fit_task.rows.X[task.sample], np.zeros(len(task.sample)))
    answers: dict[bool, NDArray[Any]] = {}

    def remember(found: NDArray[Any], of: Any) -> tuple[str, float]:
        answers[of is known] = np.asarray(found, dtype=np.float64)
        return "answers", 0.0

    class Steps(TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            del model, epoch, evals_log
            return task.step(answers[True], answers[False])

    evals = [(known, "watched"), (sample, "sample")]
    return {"evals": evals, "custom_metric": remember, "callbacks": [Steps()]}


def exported_trees(
    booster: Any,
    base: Vector,
    outputs: NDArray[np.int64],
    classifies: bool,
    shift: Vector | None = None,
) -> SinglePrecisionTrees:
    """A booster's trees as they are exported; its outputs are those of `outputs`, and begin at `base`."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    trees = [_as_tree(each) for each in model["trees"]]
    places = [int(outputs[number]) for number in model["tree_info"]]
    return SinglePrecisionTrees(tuple(zip(places, trees, strict=True)), base, classifies, shift=shift)


def _as_tree(said: Mapping[str, Any]) -> Tree:
    left = np.array(said["left_children"], dtype=np.int64)
    conditions = np.array(said["split_conditions"], dtype=np.float32)
    is_leaf = left == LEAF
    sets = {}
    for node, start, size in zip(
        said["categories_nodes"], said["categories_segments"], said["categories_sizes"], strict=True
    ):
        chosen = tuple(float(value) for value in said["categories"][start : start + size])
        sets[int(node)] = (chosen, False)
    return Tree(
        feature=np.where(is_leaf, 0, np.array(said["split_indices"], dtype=np.int64)),
        # XGBoost asks for less than; of single-precision values those are at most the one before.
        threshold=np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64),
        left=left,
        right=np.array(said["right_children"], dtype=np.int64),
        values=np.where(is_leaf, conditions, 0.0).astype(np.float64)[:, None],
        sets=sets,
        missing_left=np.array(said["default_left"], dtype=bool),
    )
