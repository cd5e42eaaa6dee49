"""Members in one ONNX file say what their weighted average says."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from prudent.core.errors import RunFailed
from prudent.training.engines.fitted_transforms import Affine, Impute, OneHot
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph, check_export, export_pipeline
from prudent.training.ensembles.graph import EnsembleGraph, outputs_of

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(500, 4)).astype(np.float32)
ROWS[::7, 1] = np.nan
ROWS[:, 3] = RNG.integers(0, 3, 500)


def _said(onnx: bytes) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": ROWS})


def _classes(seed: int, probable: bool = True) -> bytes:
    """A linear model of three classes behind transforms of its own."""
    rng = np.random.default_rng(seed)
    steps = [Impute(rng.normal(size=4)), Affine(rng.normal(size=4), rng.normal(size=(4, 3)))]
    weights = rng.normal(size=(3, 3))
    return export_pipeline(steps, lambda g, rows: g.highest_class(g.affine(rows, weights, 0.0), probable), 4)


def _values(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    first = OneHot(np.array([0, 2]), np.array([3, 3]), np.array([0.0, 1.0]))
    weights = rng.normal(size=(4, 1))

    def add(graph: OnnxGraph, rows: str) -> GraphOutputs:
        return GraphOutputs(graph.flatten(graph.affine(rows, weights, 1.0)), is_integer=False)

    return export_pipeline([first], add, 4)


def test_probabilities_are_the_weighted_average() -> None:
    members, weights = [_classes(1), _classes(2), _classes(3)], [0.5, 0.3, 0.2]
    label, probabilities = _said(EnsembleGraph(members, weights, 3).export(4))
    expected = sum(weight * _said(one)[1].astype(float) for one, weight in zip(members, weights, strict=True))
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    np.testing.assert_array_equal(label, expected.argmax(axis=1))
    assert probabilities.dtype == np.float32
    assert label.dtype == np.int64


def test_a_member_without_probabilities_votes() -> None:
    members = [_classes(1), _classes(4, probable=False)]
    label, probabilities = _said(EnsembleGraph(members, [0.4, 0.6], 3).export(4))
    votes = _said(members[1])
    expected = 0.4 * _said(members[0])[1] + 0.6 * outputs_of(votes[0], None, 3)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    np.testing.assert_array_equal(label, votes[0])


def test_values_are_the_weighted_average_and_the_check_sees_a_wrong_weight() -> None:
    members = [_values(1), _values(2)]
    onnx = EnsembleGraph(members, [0.75, 0.25], 0).export(4)
    one, other = (_said(member)[0].astype(float) for member in members)
    assert check_export(onnx, ROWS, lambda: (0.75 * one + 0.25 * other, None)).difference < 1e-6
    assert check_export(onnx, ROWS, lambda: (0.5 * one + 0.5 * other, None)).difference > 0.01


def test_an_ensemble_can_be_a_member() -> None:
    inner = EnsembleGraph([_classes(1), _classes(2)], [0.5, 0.5], 3).export(4)
    outer = EnsembleGraph([inner, _classes(3)], [0.5, 0.5], 3).export(4)
    expected = 0.5 * _said(inner)[1] + 0.5 * _said(_classes(3))[1]
    np.testing.assert_allclose(_said(outer)[1], expected, atol=1e-6)


def test_a_member_of_another_onnx_version_is_refused() -> None:
    from onnx import ModelProto

    model = ModelProto.FromString(_classes(1))
    model.opset_import[0].version += 1
    with pytest.raises(RunFailed, match="another ONNX version"):
        EnsembleGraph([model.SerializeToString(), _classes(2)], [0.5, 0.5], 3).export(4)
