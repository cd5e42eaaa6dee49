"""How much the rows of each class count in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

BALANCED = "balanced"


def class_weights(
    said: str | Mapping[str, float] | None, y: NDArray[Any] | None, classes: Sequence[Any]
) -> tuple[float, ...]:
    """A weight for each class in the order of their numbers, the least of them 1; none where nothing is said.

    "balanced" gives every class as much as the most frequent one. Labels that are not named count 1.

    >>> class_weights("balanced", np.array([0, 0, 0, 1]), ("no", "yes"))
    (1.0, 3.0)
    >>> class_weights({"yes": 0.5}, np.array([0, 1]), ("no", "yes"))
    (2.0, 1.0)
    """
    if said is None:
        return ()
    if y is None or not classes:
        raise BadInput('Only classes have "classWeights"; leave them out.')
    if isinstance(said, str):
        counts = np.maximum(np.bincount(y, minlength=len(classes)), 1)
        return tuple((counts.max() / counts).tolist())
    labels = [str(label) for label in classes]
    for label in said:
        if label not in labels:
            raise unknown("class", label, labels)
    weights = np.array([said.get(label, 1.0) for label in labels])
    return tuple((weights / weights.min()).tolist())
