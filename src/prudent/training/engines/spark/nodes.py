"""The nodes of Spark's trees, all at once.

Asking Spark for a forest node by node takes a call each; its own writer for the driver's disk gives them in
one file, at once and without a job on the cluster (so also where the cluster shares no disk with us).
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SparkTreeNode:
    """A node as Spark stores it: `left` is -1 for a leaf; `counts` are what `prediction` was made of.

    A split asks whether the feature is at most `cut[0]`, or, where `categories` is not negative, whether its
    category is one of `cut`.
    """

    number: int
    prediction: float
    counts: tuple[float, ...]
    left: int
    right: int
    feature: int
    cut: tuple[float, ...]
    categories: int

    @property
    def is_leaf(self) -> bool:
        return self.left < 0


def read_trees(model: Any, several: bool) -> list[list[SparkTreeNode]]:
    """The trees of a model, each as its nodes in the order of their numbers."""
    with tempfile.TemporaryDirectory(prefix="prudent-trees-") as folder:
        place = str(Path(folder) / "model")
        model.write()._jwrite.saveToLocal(place)
        reader = _JavaReader((Path(place) / "data").read_bytes())
    trees: dict[int, list[SparkTreeNode]] = {}
    for _ in range(reader.integer()):
        tree = reader.integer() if several else 0
        trees.setdefault(tree, []).append(_node(reader))
    return [sorted(trees[tree], key=lambda node: node.number) for tree in sorted(trees)]


def _node(reader: _JavaReader) -> SparkTreeNode:
    number, prediction, _ = reader.integer(), reader.double(), reader.double()  # impurity
    counts = reader.doubles()
    reader.skip(16)  # rows seen, gain
    left, right, feature = reader.integer(), reader.integer(), reader.integer()
    return SparkTreeNode(number, prediction, counts, left, right, feature, reader.doubles(), reader.integer())


class _JavaReader:
    """Numbers as Java's DataOutputStream writes them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def skip(self, size: int) -> None:
        self._at += size

    def integer(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def double(self) -> float:
        (value,) = struct.unpack_from(">d", self._data, self._at)
        self._at += 8
        return float(value)

    def doubles(self) -> tuple[float, ...]:
        size = self.integer()
        values = struct.unpack_from(f">{size}d", self._data, self._at)
        self._at += 8 * size
        return values
