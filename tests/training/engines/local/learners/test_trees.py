"""Trees, forests and boosting: scikit-learn's growth with Spark's settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Dataset
from prudent.training.engines.local.learners.tree_arrays import rounded_down
from prudent.training.engines.local.learners.trees import FeatureBins, features_tried


def test_with_bins_enough_it_is_the_plain_tree(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("regression", rows=150), "regression")
    ours = fit("decision-tree-regression", fit_task, maxBins=1000, maxDepth=4)
    plain = DecisionTreeRegressor(max_depth=4, random_state=0).fit(fit_task.rows.X, fit_task.rows.y)
    np.testing.assert_allclose(ours.predict(fit_task.watched.X), plain.predict(fit_task.watched.X))


def test_bins_limit_where_a_feature_is_split(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("regression", columns=1), "regression")
    model = fit("decision-tree-regression", fit_task, maxBins=4, maxDepth=10)
    assert len(np.unique(model.predict(fit_task.watched.X))) <= 4


def test_depth_zero_is_one_answer_for_all(data_for, fit_task_of, fit):
    for name in ("decision-tree-regression", "gradient-boosted-tree-regression"):
        fit_task = fit_task_of(data_for("regression"), "regression")
        answers = fit(name, fit_task, maxDepth=0).predict(fit_task.watched.X)
        np.testing.assert_allclose(answers, fit_task.rows.y.mean())


def test_least_gain_is_of_the_node_itself_as_in_spark(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("classification"), "classification")
    least = 0.08
    model = fit("decision-tree-classification", fit_task, minInfoGain=least, maxDepth=8, maxBins=1000)
    plain = DecisionTreeClassifier(max_depth=8, random_state=fit_task.seed).fit(
        fit_task.rows.X, fit_task.rows.y
    )

    def leaves(tree, node=0):
        left, right = tree.children_left[node], tree.children_right[node]
        if left < 0:
            return 1
        weight, impurity = tree.weighted_n_node_samples, tree.impurity
        after = (weight[left] * impurity[left] + weight[right] * impurity[right]) / weight[node]
        return leaves(tree, left) + leaves(tree, right) if impurity[node] - after >= least else 1

    grown = model.sklearn_trees[0]
    assert leaves(grown) == leaves(plain.tree_)
    # Nothing below the bar is left: what we walk is what was kept.
    inner = [n for n in range(grown.node_count) if grown.children_left[n] >= 0]
    assert len(inner) < (plain.tree_.children_left >= 0).sum()


@pytest.mark.parametrize(
    ("strategy", "classifies", "trees", "expected"),
    [
        ("auto", True, 20, 4),
        ("auto", False, 20, 5),
        ("auto", True, 1, 13),
        (0.5, True, 5, 7),
        (99.0, True, 5, 13),
    ],
)
def test_features_of_a_split(strategy, classifies, trees, expected):
    assert features_tried(strategy, 13, classifies, trees) == expected


def test_forest_is_better_than_its_trees(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("classification", rows=800), "classification")
    forest = fit("random-forest-classification", fit_task, numTrees=60, maxDepth=8)
    tree = fit("decision-tree-classification", fit_task, maxDepth=8)
    assert score(forest, fit_task) > score(tree, fit_task) + 0.03


def test_rows_of_each_tree(data_for, fit_task_of, fit):
    fit_task = fit_task_of(data_for("regression"), "regression")
    model = fit("random-forest-regression", fit_task, numTrees=3, subsamplingRate=0.25)
    assert {int(tree.weighted_n_node_samples[0]) for tree in model.sklearn_trees} == {70}
    whole = fit("random-forest-regression", fit_task, numTrees=3, bootstrap=False)
    assert {int(tree.weighted_n_node_samples[0]) for tree in whole.sklearn_trees} == {280}


def test_bins_hold_equal_shares():
    rng = np.random.default_rng(1)
    X = rng.exponential(size=(5000, 1)).astype(np.float32)
    bins = FeatureBins.of(X, 8, rng)
    counts = np.bincount(bins.numbers(X)[:, 0].astype(int))
    assert len(counts) == 8
    assert counts.min() > 500


def test_bins_of_one_value():
    X = np.full((10, 1), 3.0, dtype=np.float32)
    assert FeatureBins.of(X, 32, np.random.default_rng(0)).numbers(X).max() == 0


def test_thresholds_part_float32_as_doubles_do():
    rng = np.random.default_rng(5)
    values = rng.normal(size=1000).astype(np.float32)
    thresholds = np.concatenate([values.astype(float), (values[1:].astype(float) + values[:-1]) / 2])
    small = rounded_down(thresholds)
    assert small.dtype == np.float32
    for value in values[:50]:
        np.testing.assert_array_equal(value <= small, float(value) <= thresholds)


# Boosting


def test_boosting_learns_more_than_two_classes(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("classification", classes=5, rows=1000), "classification")
    model = fit("gradient-boosted-tree-classification", fit_task, maxIter=40)
    assert score(model, fit_task) > 0.7
    np.testing.assert_allclose(model.probabilities(fit_task.watched.X).sum(axis=1), 1.0)


def test_boosting_stops_when_nothing_improves_and_keeps_the_best(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("classification", classes=2, rows=300), "classification")
    told = []
    object.__setattr__(fit_task, "report", lambda value, done: told.append((value, done)))
    model = fit("gradient-boosted-tree-classification", fit_task, maxIter=400, stepSize=0.5)
    learning_curve = model.learning_curve
    assert "no better" in learning_curve.stop_reason
    assert learning_curve.step[-1] < 400
    assert len(model.exported.trees) == learning_curve.best_step
    assert score(model, fit_task) == pytest.approx(max(learning_curve.validation))
    assert told
    assert told[-1][0] <= max(learning_curve.validation)
    assert all(0 < done <= 1 for _, done in told)


def test_boosting_on_some_rows_a_round(data_for, fit_task_of, fit, score):
    fit_task = fit_task_of(data_for("regression", rows=1000), "regression")
    some = fit("gradient-boosted-tree-regression", fit_task, maxIter=40, subsamplingRate=0.5)
    every = fit("gradient-boosted-tree-regression", fit_task, maxIter=40)
    assert score(some, fit_task) != score(every, fit_task)
    assert score(some, fit_task) == pytest.approx(score(every, fit_task), rel=0.3)
    again = fit("gradient-boosted-tree-regression", fit_task, maxIter=40, subsamplingRate=0.5)
    assert score(some, fit_task) == score(again, fit_task)


def test_boosting_where_a_class_has_no_rows(data_for, fit_task_of, fit):
    found = data_for("classification", classes=3)
    for kept in ([0, 2], [1]):
        y = np.where(np.isin(found.y, kept), found.y, kept[0])
        fit_task = fit_task_of(Dataset(found.X, y, found.columns, found.classes), "classification")
        fit_task.watched.y[:5] = [0, 1, 2, 1, 0]
        for name in (
            "gradient-boosted-tree-classification",
            "decision-tree-classification",
            "random-forest-classification",
        ):
            model = fit(name, fit_task)
            assert set(model.predict(fit_task.watched.X)) <= set(kept)
            assert model.probabilities(fit_task.watched.X).shape[1] == 3


def test_boosting_by_absolute_error(data_for, fit_task_of, fit, score):
    found = data_for("regression", rows=800)
    y = found.y.copy()
    y[::10] += 500.0
    fit_task = fit_task_of(Dataset(found.X, y, found.columns), "regression")
    every = replace(fit_task, watched=None)
    near = fit("gradient-boosted-tree-regression", every, maxIter=80, lossType="absolute")
    clean = np.abs(near.predict(fit_task.watched.X) - found.y[560:])
    assert np.median(clean) < 1.0


def test_boosting_refuses_what_it_cannot_do(data_for, fit_task_of, fit):
    with pytest.raises(BadInput, match="minInfoGain"):
        fit(
            "gradient-boosted-tree-regression",
            fit_task_of(data_for("regression"), "regression"),
            minInfoGain=0.1,
        )
