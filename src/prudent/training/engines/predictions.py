"""What a trial predicted for rows that its model had not seen, as a file in its folder.

Ensembles are built from it, and scores are corrected by it for having been chosen among many.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PREDICTIONS_FILE, TEST_FILE = "predictions.npz", "test.npz"
MOST_ROWS, MOST_CELLS = 20_000, 400_000
"""So many rows are kept at most, and so many probabilities: enough to tell models apart."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Rows (numbers in the data set as read), the split by which each was judged, and what was said of them.

    A row that was judged in several repeats is there as often. `actual` is None for clusters,
    `probabilities` (rows, classes) where the model gives none.
    """

    rows: NDArray[np.int64]
    split: NDArray[np.int64]
    predicted: NDArray[Any]
    actual: NDArray[Any] | None = None
    probabilities: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, places: NDArray[Any]) -> Predictions:
        """Those at some places."""
        arrays = {field: getattr(self, field) for field in self.__dataclass_fields__}
        return Predictions(**{name: each[places] for name, each in arrays.items() if each is not None})

    def once(self) -> Predictions:
        """Each row once: of several judgements the first."""
        return self.at(np.unique(self.rows, return_index=True)[1])

    def write(self, folder: Path, name: str = PREDICTIONS_FILE) -> None:
        """Write the file, whole or not at all."""
        arrays = {field: getattr(self, field) for field in self.__dataclass_fields__}
        part = folder / f".{name}.{os.getpid()}"
        try:
            with part.open("wb") as file:
                np.savez(file, **{field: array for field, array in arrays.items() if array is not None})
            part.replace(folder / name)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path, name: str = PREDICTIONS_FILE) -> Predictions | None:
        """What a folder holds; None where there is no such file, or a damaged one."""
        try:
            with np.load(folder / name, allow_pickle=False) as file:
                return cls(**{field: file[field] for field in cls.__dataclass_fields__ if field in file})
        except (OSError, ValueError, TypeError, zipfile.BadZipFile):
            return None

    @classmethod
    def joined(cls, parts: Sequence[Predictions]) -> Predictions:
        """Those of several splits as one."""

        def joined(field: str) -> Any:
            arrays = [getattr(part, field) for part in parts]
            return None if any(array is None for array in arrays) else np.concatenate(arrays)

        return cls(*(joined(field) for field in cls.__dataclass_fields__))


def kept_places(rows: int, all_rows: int, classes: int) -> NDArray[np.int64]:
    """Which of the rows of one split are kept, evenly spread; `all_rows` are those of all splits."""
    most = min(MOST_ROWS, MOST_CELLS // max(classes, 1))
    if all_rows <= most:
        return np.arange(rows)
    return np.unique(np.linspace(0, rows - 1, max(1, rows * most // all_rows)).astype(np.int64))
