"""How much the rows of each class count in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

BALANCED = "balanced"


def class_weights(
    said: str | Mapping[str, float] | None, counts: NDArray[np.int64], classes: Sequence[Any]
) -> tuple[float, ...]:
    """A weight for each class in the order of their numbers, the least of them 1; none where nothing is said.

    `counts` are the rows of each class.

    "balanced" gives every class as much as the most frequent one. Labels that are not named count 1.

    >>> class_weights("balanced", np.array([3, 1]), ("no", "yes"))
    (1.0, 3.0)
    >>> class_weights({"yes": 0.5}, np.array([3, 1]), ("no", "yes"))
    (2.0, 1.0)
    """
    if said is None:
        return ()
    if not classes:
        raise BadInput('Only classes have "classWeights"; leave them out.')
    if isinstance(said, str):
        some = np.maximum(counts, 1)
        return tuple((some.max() / some).tolist())
    labels = [str(label) for label in classes]
    for label in said:
        if label not in labels:
            raise unknown("class", label, labels)
    weights = np.array([said.get(label, 1.0) for label in labels])
    return tuple((weights / weights.min()).tolist())
