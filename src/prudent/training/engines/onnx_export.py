"""ONNX graphs, node by node: what a trained model computes, for any runtime to repeat.

Written by hand rather than by a converter: milliseconds instead of tenths of a second per model, the whole
pipeline in one graph, and arithmetic in the precision that the model was trained in.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import Model
from prudent.training.engines.fitted_transforms import FittedTransform, apply_all

INPUT, PREDICTION, PROBABILITIES = "features", "prediction", "probabilities"

_OPSET, _ML_OPSET, _IR = 17, 3, 8  # what ONNX Runtime reads since 2022
_ML = "ai.onnx.ml"
_ML_NODES = frozenset({"TreeEnsembleRegressor"})
FLOAT, INT64, DOUBLE = 1, 7, 11


@dataclass(frozen=True)
class GraphOutputs:
    """The names of what a model's part of a graph computes.

    `whole` says that the prediction is the number of a class or cluster; it is a value otherwise.
    """

    prediction: str
    probabilities: str | None = None
    whole: bool = True


class OnnxGraph:
    """A graph under construction; every method that adds a node answers the name of its result."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, value: Any, kind: type[np.generic] = np.float64) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        array: NDArray[Any] = np.ascontiguousarray(value, dtype=kind).reshape(np.shape(value))
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"n{len(self._nodes)}"
        domain = _ML if operator in _ML_NODES else ""
        long = {key: value for key, value in attributes.items() if isinstance(value, np.ndarray)}
        short = {key: value for key, value in attributes.items() if key not in long}
        node = helper.make_node(operator, list(inputs), [name], domain=domain, **short)
        node.attribute.extend(_long(key, value) for key, value in long.items())
        self._nodes.append(node)
        return name

    def cast(self, name: str, kind: int) -> str:
        return self.add("Cast", name, to=kind)

    def double(self, name: str) -> str:
        return self.cast(name, DOUBLE)

    def affine(self, rows: str, weights: Any, shift: Any) -> str:
        """rows @ weights + shift, in double precision; `weights` is (features, outputs)."""
        product = self.add("MatMul", self.double(rows), self.constant(weights))
        return self.add("Add", product, self.constant(shift))

    def flat(self, name: str) -> str:
        """A matrix of one column as a vector."""
        return self.add("Reshape", name, self.constant([-1], np.int64))

    def largest(self, name: str) -> str:
        """The number of the largest in each row, the first of equals."""
        return self.add("ArgMax", name, axis=1, keepdims=0)

    def finish(self, answer: GraphOutputs) -> bytes:
        """The whole model as it goes to a file."""
        from onnx import checker, helper

        kind = INT64 if answer.whole else FLOAT
        self._name(self.cast(answer.prediction, kind), PREDICTION)
        outputs = [helper.make_tensor_value_info(PREDICTION, kind, ["rows"])]
        if answer.probabilities is not None:
            self._name(self.cast(answer.probabilities, FLOAT), PROBABILITIES)
            outputs.append(helper.make_tensor_value_info(PROBABILITIES, FLOAT, ["rows", "classes"]))
        features = helper.make_tensor_value_info(INPUT, FLOAT, ["rows", self._columns])
        graph = helper.make_graph(self._nodes, "prudent", [features], outputs, self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_ML, _ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="prudent")
        checker.check_model(model)
        return bytes(model.SerializeToString())

    def _name(self, result: str, name: str) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [result], [name]))


def _long(name: str, values: NDArray[Any]) -> Any:
    """A list as an attribute; onnx's own helper looks at every number of it several times."""
    from onnx import AttributeProto

    found = AttributeProto(name=name)
    if values.dtype.kind == "f":
        found.type = AttributeProto.FLOATS
        found.floats.extend(values.tolist())
    elif values.dtype.kind == "i":
        found.type = AttributeProto.INTS
        found.ints.extend(values.tolist())
    else:
        found.type = AttributeProto.STRINGS
        found.strings.extend(values.tolist())
    return found


_QUIET = 3  # onnxruntime's level for errors


@dataclass(frozen=True)
class ExportCheck:
    """How far the exported model is from the trained one, and how long it takes for a row."""

    difference: float
    predict_ms: float


def export(model: Model, steps: Sequence[FittedTransform], columns: int) -> bytes:
    """The whole pipeline as an ONNX file."""
    graph = OnnxGraph(columns)
    rows = INPUT
    for step in steps:
        rows = step.graph(graph, rows)
    return graph.finish(model.graph(graph, rows))


def check(
    onnx: bytes, model: Model, steps: Sequence[FittedTransform], raw: Matrix, threads: int
) -> ExportCheck:
    """Predict rows as users have them with both, and compare.

    The difference is of probabilities where there are some, else of predictions; of values it is relative
    to the largest, for 1e-3 is much for a rate and nothing for a salary.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    raw = np.ascontiguousarray(raw, dtype=np.float32)
    session.run(None, {INPUT: raw[:1]})
    began_s = time.perf_counter()
    answers = session.run(None, {INPUT: raw})
    predict_ms = (time.perf_counter() - began_s) * 1000.0 / max(len(raw), 1)
    prepared = apply_all(steps, raw)
    probabilities = model.probabilities(prepared)
    if probabilities is not None:
        return ExportCheck(_largest(probabilities, answers[1]), predict_ms)
    expected = model.predict(prepared)
    if expected.dtype.kind == "i":
        return ExportCheck(float((expected != answers[0]).any()), predict_ms)
    return ExportCheck(_largest(expected, answers[0]) / max(1.0, float(np.abs(expected).max())), predict_ms)


def _largest(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one - other).max()) if len(one) else 0.0
