"""Trees grown by XGBoost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.local.learners.tree_arrays import LEAF, SummedTrees, Tree


def exported_trees(
    booster: Any, base: NDArray[np.float64], outputs: NDArray[np.int64], classifies: bool
) -> SummedTrees:
    """A booster's trees as they are exported; its outputs are those of `outputs`, and begin at `base`."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    trees = [_as_tree(each) for each in model["trees"]]
    places = [int(outputs[number]) for number in model["tree_info"]]
    return SummedTrees(tuple(zip(places, trees, strict=True)), base, classifies)


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
    )
