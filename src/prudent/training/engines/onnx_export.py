"""ONNX graphs, node by node: what a trained model computes, for any runtime to repeat.

Written by hand rather than by a converter: milliseconds instead of tenths of a second per model, the whole
pipeline in one graph, and arithmetic in the precision that the model was trained in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.models.description import INPUT, PREDICTION, PROBABILITIES

if TYPE_CHECKING:
    from prudent.training.engines.fitted_transforms import FittedTransform

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
    is_integer: bool = True


class OnnxGraph:
    """A graph under construction; every method that adds a node returns the name of its result.

    `kind` is the type of the rows that go in: FLOAT, or DOUBLE where they have more digits.
    """

    def __init__(self, columns: int, kind: int = FLOAT) -> None:
        self._columns = columns
        self.kind = kind
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, value: Any, kind: type[np.generic] = np.float64) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        array: NDArray[Any] = np.ascontiguousarray(value, dtype=kind).reshape(np.shape(value))
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def narrow(self, value: Any) -> str:
        """A constant in the precision of the rows."""
        return self.constant(value, np.float32 if self.kind == FLOAT else np.float64)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"n{len(self._nodes)}"
        domain = _ML if operator in _ML_NODES else ""
        arrays = {key: value for key, value in attributes.items() if isinstance(value, np.ndarray)}
        others = {key: value for key, value in attributes.items() if key not in arrays}
        node = helper.make_node(operator, list(inputs), [name], domain=domain, **others)
        node.attribute.extend(_attribute(key, value) for key, value in arrays.items())
        self._nodes.append(node)
        return name

    def cast(self, name: str, kind: int) -> str:
        return self.add("Cast", name, to=kind)

    def to_double(self, name: str) -> str:
        return self.cast(name, DOUBLE)

    def affine(self, rows: str, weights: Any, shift: Any) -> str:
        """rows @ weights + shift, in double precision; `weights` is (features, outputs)."""
        product = self.add("MatMul", self.to_double(rows), self.constant(weights))
        return self.add("Add", product, self.constant(shift))

    def flatten(self, name: str) -> str:
        """A matrix of one column as a vector."""
        return self.add("Reshape", name, self.constant([-1], np.int64))

    def argmax(self, name: str) -> str:
        """The number of the largest in each row, the first of equals."""
        return self.add("ArgMax", name, axis=1, keepdims=0)

    def highest_class(self, raw: str, probable: bool = True) -> GraphOutputs:
        """The class with the highest of the raw outputs (rows, classes).

        `probable` says that their softmax is the probability of each.
        """
        return GraphOutputs(self.argmax(raw), self.add("Softmax", raw, axis=1) if probable else None)

    def second_class(self, raw: str, threshold: float = 0.0, probable: bool = True) -> GraphOutputs:
        """The second of two classes where the raw output (rows, 1) is above a threshold.

        `probable` says that it is the logarithm of the odds.
        """
        side = self.flatten(self.add("Greater", raw, self.constant(threshold)))
        if not probable:
            return GraphOutputs(side)
        second = self.add("Sigmoid", raw)
        first = self.add("Sub", self.constant(1.0), second)
        return GraphOutputs(side, self.add("Concat", first, second, axis=1))

    def finish(self, outputs: GraphOutputs) -> bytes:
        """The whole model as it goes to a file."""
        from onnx import checker, helper

        kind = INT64 if outputs.is_integer else FLOAT
        self._name(self.cast(outputs.prediction, kind), PREDICTION)
        infos = [helper.make_tensor_value_info(PREDICTION, kind, ["rows"])]
        if outputs.probabilities is not None:
            self._name(self.cast(outputs.probabilities, FLOAT), PROBABILITIES)
            infos.append(helper.make_tensor_value_info(PROBABILITIES, FLOAT, ["rows", "classes"]))
        features = helper.make_tensor_value_info(INPUT, self.kind, ["rows", self._columns])
        graph = helper.make_graph(self._nodes, "prudent", [features], infos, self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_ML, _ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="prudent")
        checker.check_model(model)
        return bytes(model.SerializeToString())

    def _name(self, result: str, name: str) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [result], [name]))


def _attribute(name: str, values: NDArray[Any]) -> Any:
    """An array as an attribute; onnx's own helper looks at every number of a list several times."""
    from onnx import AttributeProto, numpy_helper

    found = AttributeProto(name=name)
    if values.dtype.kind == "f":
        found.type = AttributeProto.TENSOR
        found.t.CopyFrom(numpy_helper.from_array(values, name))
    elif values.dtype.kind == "i":
        found.type = AttributeProto.INTS
        found.ints.extend(values.tolist())
    else:
        found.type = AttributeProto.STRINGS
        found.strings.extend(values.tolist())
    return found


_ERRORS_ONLY = 3  # onnxruntime's level of logging


@dataclass(frozen=True)
class ExportCheck:
    """How far the exported model is from the trained one, and how long it takes for a row."""

    difference: float
    predict_ms: float


def export_pipeline(
    transforms: Sequence[FittedTransform],
    add_model: Callable[[OnnxGraph, str], GraphOutputs],
    columns: int,
    kind: int = FLOAT,
) -> bytes:
    """Transforms and model as one ONNX file; `add_model` adds the model to a graph behind the named rows."""
    graph = OnnxGraph(columns, kind)
    rows = INPUT
    for transform in transforms:
        rows = transform.graph(graph, rows)
    return graph.finish(add_model(graph, rows))


def check_export(
    onnx: bytes,
    raw: Matrix,
    expect: Callable[[], tuple[NDArray[Any], NDArray[np.float64] | None]],
    threads: int = 1,
    ties: NDArray[np.bool_] | None = None,
) -> ExportCheck:
    """Compare the file's answers for raw rows with those of the model: (predictions, probabilities or None).

    The difference is of probabilities where there are some, else of predictions; of values it is relative
    to the largest, for 1e-3 is much for a rate and nothing for a salary. Rows that are `ties` between classes
    do not count.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    raw = np.ascontiguousarray(raw)
    session.run(None, {INPUT: raw[:1]})
    began_s = time.perf_counter()
    found = session.run(None, {INPUT: raw})
    predict_ms = (time.perf_counter() - began_s) * 1000.0 / max(len(raw), 1)
    predicted, probabilities = expect()
    if probabilities is not None and len(found) > 1:
        return ExportCheck(_largest(probabilities, found[1]), predict_ms)
    if found[0].dtype.kind == "i":
        wrong = predicted.astype(np.int64) != found[0]
        return ExportCheck(float((wrong if ties is None else wrong & ~ties).any()), predict_ms)
    return ExportCheck(_largest(predicted, found[0]) / max(1.0, float(np.abs(predicted).max())), predict_ms)


def _largest(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one - other).max()) if len(one) else 0.0
