"""Every metric against an independent implementation: scikit-learn, or brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from prudent.core.errors import BadInput
from prudent.training.models import metrics

labels = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=60)
)


@settings(max_examples=60, deadline=None)
@given(labels)
def test_metrics_of_classes(pairs):
    actual, predicted = np.array(pairs).T
    weighted = {"average": "weighted", "zero_division": 0}
    expected = {
        "accuracy": reference.accuracy_score(actual, predicted),
        "f1": reference.f1_score(actual, predicted, **weighted),
        "precision": reference.precision_score(actual, predicted, **weighted),
        "recall": reference.recall_score(actual, predicted, **weighted),
    }
    if len(np.unique(np.concatenate([actual, predicted]))) > 1:  # scikit-learn warns of a single label
        expected["mcc"] = reference.matthews_corrcoef(actual, predicted)
    counts = metrics.confusion(actual, predicted, 5)
    for name, value in expected.items():
        assert metrics.value_of_counts(name, counts) == pytest.approx(value, abs=1e-12)


def test_mcc_by_its_textbook_formula():
    counts = np.array([[50, 7], [13, 30]])
    tn, fp, fn, tp = counts.ravel().astype(float)
    formula = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.mcc(counts) == pytest.approx(formula)


def test_mcc_of_one_predicted_class_is_zero_not_nan():
    assert metrics.value_of_counts("mcc", np.array([[0, 1], [0, 2]])) == 0.0


def test_counts_of_a_million_rows_do_not_overflow():
    counts = np.array([[10**9, 10**8], [10**8, 10**9]], dtype=np.int64)
    assert metrics.mcc(counts) == pytest.approx((10**18 - 10**16) / (1.1e9**2))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 50), st.integers(0, 2**31))
def test_metrics_of_numbers(rows, seed):
    rng = np.random.default_rng(seed)
    actual, predicted = rng.normal(5, 3, rows), rng.normal(5, 3, rows)
    expected = {
        "rmse": reference.root_mean_squared_error(actual, predicted),
        "mse": reference.mean_squared_error(actual, predicted),
        "mae": reference.mean_absolute_error(actual, predicted),
        "r2": reference.r2_score(actual, predicted),
    }
    for name, value in expected.items():
        assert metrics.value_of_numbers(name, actual, predicted) == pytest.approx(value)


def test_r2_of_a_constant_target():
    actual = np.full(4, 2.0)
    assert metrics.r2(actual, actual) == 1.0
    assert metrics.r2(actual, actual + 1) == 0.0


def brute_force(X, clusters):
    """The definition, row by row."""
    values = []
    for row, own in zip(X, clusters, strict=True):
        means = {}
        for cluster in set(clusters.tolist()):
            members = X[clusters == cluster]
            total = np.square(members - row).sum()
            means[cluster] = (
                total / (len(members) - 1) if cluster == own and len(members) > 1 else total / len(members)
            )
        alone = (clusters == own).sum() == 1
        a, b = means.pop(own), min(means.values())
        values.append(0.0 if alone else (b - a) / max(a, b))
    return np.array(values)


@settings(max_examples=30, deadline=None)
@given(st.integers(4, 40), st.integers(2, 5), st.integers(0, 2**31))
def test_silhouettes_by_brute_force(rows, k, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)) + 100.0
    clusters = rng.integers(k, size=rows)
    clusters[:2] = [0, 1]
    np.testing.assert_allclose(metrics.silhouettes(X, clusters), brute_force(X, clusters), atol=1e-9)


def test_silhouette_agrees_with_scikit_learn_on_squared_distances():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0, 1, (50, 4)), rng.normal(6, 1, (70, 4)), rng.normal(-6, 1, (30, 4))])
    clusters = np.repeat([4, 7, 9], [50, 70, 30])
    squared = reference.pairwise_distances(X, metric="sqeuclidean")
    expected = reference.silhouette_score(squared, clusters, metric="precomputed")
    assert metrics.silhouette(X, clusters) == pytest.approx(expected)


def test_silhouette_keeps_its_digits_far_from_the_origin():
    rng = np.random.default_rng(3)
    X, clusters = rng.normal(size=(60, 2)), rng.integers(3, size=60)
    assert metrics.silhouette(X + 1e6, clusters) == pytest.approx(metrics.silhouette(X, clusters), abs=1e-6)


def test_one_cluster_has_no_silhouette():
    with pytest.raises(BadInput, match="more clusters"):
        metrics.silhouette(np.zeros((5, 2)), np.zeros(5))


def test_names_that_do_not_exist():
    with pytest.raises(BadInput, match='mean "accuracy"'):
        metrics.value_of_counts("acuracy", np.array([[1, 0], [0, 0]]))
    with pytest.raises(BadInput, match='mean "rmse"'):
        metrics.value_of_numbers("rmsee", np.array([0.0]), np.array([0.0]))
