"""Gradient-boosted trees, grown on histograms by scikit-learn, watched from tree to tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import EarlyStopping, FitTask, LearningCurve
from prudent.training.engines.local.learners.scored_classes import sigmoid, softmax
from prudent.training.engines.local.learners.tree_arrays import LEAF, SummedTrees, Tree
from prudent.training.engines.local.learners.trees import features_tried
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

_MOST_BINS = 255  # a bin's number is a byte
_NEVER = -1e9  # raw output of a class that had no rows to learn from
_TRAIN_SAMPLE = 10_000  # training rows that are scored after every round


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A sum of trees, as it is exported, and the estimator that predicts with it here."""

    exported: SummedTrees
    estimator: Any
    outputs: NDArray[np.int64]
    """Which outputs the estimator's own are."""
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        raw = self._raw(X)
        return _classes(raw) if self.exported.classifies else raw[:, 0]

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        if not self.exported.classifies:
            return None
        raw = self._raw(X)
        if raw.shape[1] > 1:
            return softmax(raw)
        second = sigmoid(raw)
        return np.concatenate([1.0 - second, second], axis=1)

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        return self.exported.graph(graph, rows)

    def _raw(self, X: Matrix) -> NDArray[np.float64]:
        raw = np.tile(self.exported.base, (len(X), 1))
        if self.exported.trees:
            estimator = self.estimator
            found = estimator.decision_function(X) if self.exported.classifies else estimator.predict(X)
            raw[:, self.outputs] = np.asarray(found).reshape(len(X), -1)
        return raw


def boosted_trees(fit_task: FitTask, params: Mapping[str, Any]) -> BoostedTrees:
    """Trees that mend each other's errors, up to `maxIter` of them (for each class, if more than two)."""
    if params["minInfoGain"] > 0:
        raise BadInput("Boosted trees of the local engine have no minInfoGain; set it to 0.")
    classifies = fit_task.scorer.task == CLASSIFICATION
    y = fit_task.rows.target
    present = np.unique(y) if classifies else np.zeros(1, dtype=np.int64)
    base, outputs = _layout(present, fit_task.classes) if classifies else (np.zeros(1), present)
    rounds = params["maxIter"] if fit_task.iterations is None else fit_task.iterations
    if (classifies and len(present) == 1) or rounds == 0:
        if not classifies:
            base = np.array([float(np.mean(y))])
        return BoostedTrees(SummedTrees((), base, classifies), None, outputs)
    estimator, stopping = _fit_estimator(fit_task, params, classifies, rounds, outputs, base)
    base[outputs] = np.asarray(estimator._baseline_prediction).ravel()
    if stopping is not None:
        del estimator._predictors[max(stopping.best_step, 1) :]
    trees = tuple(
        (int(outputs[number]), _as_tree(one.nodes))
        for of_round in estimator._predictors
        for number, one in enumerate(of_round)
    )
    learning_curve = None if stopping is None else stopping.learning_curve()
    importance = _gains(estimator, fit_task.rows.X.shape[1])
    exported = SummedTrees(trees, base, classifies)
    return BoostedTrees(exported, estimator, outputs, importance, learning_curve)


def _fit_estimator(
    fit_task: FitTask,
    params: Mapping[str, Any],
    classifies: bool,
    rounds: int,
    outputs: NDArray[np.int64],
    base: NDArray[np.float64],
) -> tuple[Any, EarlyStopping | None]:
    X, y = fit_task.rows.X, fit_task.rows.target
    features = X.shape[1]
    tried = features_tried(params["featureSubsetStrategy"], features, classifies, rounds)
    settings = {
        "learning_rate": params["stepSize"],
        "max_iter": rounds,
        "max_leaf_nodes": None,
        "max_depth": max(params["maxDepth"], 1),
        "min_samples_leaf": _least_rows(params, len(X)),
        "max_bins": min(params["maxBins"], _MOST_BINS),
        "max_features": tried / features,
        "categorical_features": None,
        "loss": _loss(params, classifies, len(outputs), fit_task.seed),
        "early_stopping": fit_task.watched is not None,
        "scoring": "loss",
        "random_state": fit_task.seed,
    }
    monitor = monitored_estimator(classifies)(**settings)
    if fit_task.watched is None:
        return monitor.fit(X, y), None
    stopping = EarlyStopping(fit_task, rounds)
    monitor.monitor = _monitor_of(fit_task, stopping, outputs, base, classifies)
    # The true target is in the looker's hands; this one must merely be one that the estimator knows.
    stand_in = np.full(len(fit_task.watched.X), y[0])
    return monitor.fit(X, y, X_val=fit_task.watched.X, y_val=stand_in), stopping


def monitored_estimator(classifies: bool) -> Any:
    """scikit-learn's estimator with a `monitor` after every round, at predictions that it has in any case."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind: Any = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor

    class MonitoredEstimator(kind):  # type: ignore[misc]
        monitor: Any = None

        def _check_early_stopping_loss(
            self, raw_predictions: Any, y_train: Any, *args: Any, raw_predictions_val: Any, **kwargs: Any
        ) -> bool:
            rounds = len(self._predictors)
            return bool(rounds and self.monitor(raw_predictions, raw_predictions_val))

    return MonitoredEstimator


def _monitor_of(
    fit_task: FitTask,
    stopping: EarlyStopping,
    outputs: NDArray[np.int64],
    base: NDArray[np.float64],
    classifies: bool,
) -> Callable[[Any, Any], bool]:
    watched = fit_task.watched
    assert watched is not None
    sample = _sample(len(fit_task.rows.X), fit_task.seed)
    y, y_sample, X_sample = watched.target, fit_task.rows.target[sample], fit_task.rows.X[sample]

    def all_outputs(raw: Any) -> NDArray[np.float64]:
        out = np.tile(base, (len(raw), 1))
        out[:, outputs] = raw
        return out

    def monitor(raw_train: Any, raw_watched: Any) -> bool:
        raw, raw_sample = all_outputs(raw_watched), all_outputs(raw_train[sample])
        if classifies:
            predicted, loss, predicted_sample = _classes(raw), _log_loss(raw, y), _classes(raw_sample)
        else:
            predicted, predicted_sample = raw[:, 0], raw_sample[:, 0]
            loss = float(np.square(predicted - y).mean())
        return stopping.step(predicted, loss, fit_task.scorer.score(y_sample, predicted_sample, X_sample))

    return monitor


def _layout(present: NDArray[np.int64], classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Outputs of a model for all classes, and which of them the estimator has for those that are present.

    Two classes share one output, the log-odds of the second; a class without rows is never predicted.
    """
    if classes == 2 and len(present) == 2:
        return np.zeros(1), np.zeros(1, dtype=np.int64)
    base = np.full(classes, _NEVER)
    base[present] = 0.0
    return base, present[1:] if len(present) == 2 else present


def _loss(params: Mapping[str, Any], classifies: bool, outputs: int, seed: int) -> Any:
    """By name; where each round sees some of the rows only, a loss that is flat on the others."""
    share = params["subsamplingRate"]
    if not classifies and params["lossType"] == "absolute":
        return "absolute_error"
    if share >= 1:
        return "log_loss" if classifies else "squared_error"
    from sklearn._loss import HalfBinomialLoss, HalfMultinomialLoss, HalfSquaredError

    kind: Any = (
        HalfSquaredError if not classifies else HalfBinomialLoss if outputs == 1 else HalfMultinomialLoss
    )
    rng = rng_for(seed, "rows of a round")

    class Sampled(kind):  # type: ignore[misc]
        def gradient_hessian(self, *args: Any, gradient_out: Any, hessian_out: Any, **kwargs: Any) -> Any:
            super().gradient_hessian(*args, gradient_out=gradient_out, hessian_out=hessian_out, **kwargs)
            left_out = rng.random(len(gradient_out)) >= share
            gradient_out[left_out] = 0.0
            hessian_out[left_out] = 0.0
            return gradient_out, hessian_out

    loss = Sampled(n_classes=outputs) if kind is HalfMultinomialLoss else Sampled()
    loss.constant_hessian = False
    return loss


def _least_rows(params: Mapping[str, Any], rows: int) -> int:
    if params["maxDepth"] == 0:
        return rows  # no split leaves so many on both sides
    return int(max(params["minInstancesPerNode"], np.ceil(params["minWeightFractionPerNode"] * rows)))


def _classes(raw: NDArray[np.float64]) -> NDArray[Any]:
    return np.asarray((raw[:, 0] > 0).astype(np.int64) if raw.shape[1] == 1 else raw.argmax(axis=1))


def _log_loss(raw: NDArray[np.float64], y: NDArray[Any]) -> float:
    if raw.shape[1] == 1:
        return float((np.logaddexp(0.0, raw[:, 0]) - y * raw[:, 0]).mean())
    highest = raw.max(axis=1)
    totals = np.log(np.exp(raw - highest[:, None]).sum(axis=1)) + highest
    return float((totals - raw[np.arange(len(y)), y]).mean())


def _sample(rows: int, seed: int) -> NDArray[np.int64]:
    if rows <= _TRAIN_SAMPLE:
        return np.arange(rows)
    return np.sort(rng_for(seed, "train score").choice(rows, _TRAIN_SAMPLE, replace=False))


def _gains(estimator: Any, features: int) -> NDArray[np.float64]:
    total = np.zeros(features)
    for of_round in estimator._predictors:
        for one in of_round:
            inner = one.nodes[one.nodes["is_leaf"] == 0]
            np.add.at(total, inner["feature_idx"], inner["gain"])
    return np.maximum(total, 0.0)


def _as_tree(nodes: Any) -> Tree:
    is_leaf = nodes["is_leaf"] == 1
    return Tree(
        feature=np.asarray(nodes["feature_idx"], dtype=np.int64),
        threshold=np.asarray(nodes["num_threshold"]),
        left=np.where(is_leaf, LEAF, nodes["left"].astype(np.int64)),
        right=np.where(is_leaf, LEAF, nodes["right"].astype(np.int64)),
        values=np.asarray(nodes["value"])[:, None],
    )
