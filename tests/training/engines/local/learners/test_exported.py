"""What Spark's models need of the exported forms, beside what the local engine's own do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime

from prudent.training.engines.local.learners.clusters import GaussianMixtureModel
from prudent.training.engines.local.learners.tree_arrays import LEAF, AveragedTrees, SummedTrees, Tree
from prudent.training.engines.onnx_export import export_pipeline


def answers(model, X):
    session = onnxruntime.InferenceSession(export_pipeline([], model.graph, X.shape[1]))
    return session.run(None, {"features": X})


def test_splits_by_sets_of_values():
    left, right = np.array([1, LEAF, LEAF]), np.array([2, LEAF, LEAF])
    values = np.array([[0.0], [1.0], [2.0]])
    inside = Tree(np.array([2, 0, 0]), np.zeros(3), left, right, values, {0: ((3.0, 5.0), True)})
    outside = replace(inside, sets={0: ((5.0,), False)})
    below = Tree(np.zeros(3, dtype=np.int64), np.array([0.5, 0.0, 0.0]), left, right, 10 * values)
    X = np.array([[0.5, 0, 3], [0.6, 0, 4], [0, 0, 5]], dtype=np.float32)
    [found] = answers(AveragedTrees([inside, outside, below], classifies=False), X)
    np.testing.assert_allclose(found, np.mean([[1, 2, 1], [1, 1, 2], [10, 20, 10]], axis=0))
    base = np.array([0.5, 1.0, 2.4])  # no tree adds to the last
    sums = SummedTrees([(0, outside), (1, inside)], base, classifies=True, probable=False)
    [found] = answers(sums, X)
    assert found.tolist() == [2, 1, 0]


def test_a_row_far_from_all_belongs_to_none_of_sparks_mixtures_more():
    means, whitening = np.array([[0.0], [5.0]]), np.ones((2, 1, 1))
    model = GaussianMixtureModel(means, whitening, np.zeros(2), least_density=2.2e-16)
    X = np.array([[0.1], [5.2], [1000.0]], dtype=np.float32)
    predicted, shares = answers(model, X)
    assert predicted.tolist() == model.predict(X).tolist() == [0, 1, 0]
    np.testing.assert_allclose(shares, model.probabilities(X), atol=1e-7)
    np.testing.assert_allclose(shares[2], 0.5)
    assert replace(model, least_density=0.0).predict(X).tolist() == [0, 1, 1]
