"""The data of one request on disk, mapped into the memory of every worker: one copy for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Column, Dataset, Matrix
from prudent.training.data.splitting import UNLINKED, RowLinks, Split

_LINKS = ("groups", "times")
_SAMPLE = 20_000  # rows; enough to see a difference or take the time


@dataclass(frozen=True, eq=False)
class SharedDataset:
    """What workers read: features, target, columns, and which rows train and which validate."""

    X: Matrix
    y: NDArray[Any] | None
    columns: tuple[Column, ...]
    splits: tuple[Split, ...]
    """One where rows are held out, k of k folds."""
    classes: tuple[Any, ...] = ()
    links: RowLinks = UNLINKED
    class_weights: tuple[float, ...] = ()
    """How often a training row of each class is there, 1 or more; empty where all count the same."""

    @cached_property
    def sample(self) -> Matrix:
        """Held-out rows as users have them, for checks."""
        return np.asarray(self.X[self.splits[-1].validation[:_SAMPLE]])

    @staticmethod
    def write(
        folder: Path,
        dataset: Dataset,
        splits: Sequence[Split],
        links: RowLinks = UNLINKED,
        class_weights: Sequence[float] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        place = _mapped_file(dataset.X)
        if place is None:
            place = folder / "X.npy"
            np.save(place, np.ascontiguousarray(dataset.X, dtype=np.float64 if dataset.wide else np.float32))
        if dataset.y is not None:
            np.save(folder / "y.npy", dataset.y)
        for number, split in enumerate(splits):
            np.save(folder / f"train-{number}.npy", split.train)
            np.save(folder / f"validation-{number}.npy", split.validation)
        for name in _LINKS:
            if (linked := getattr(links, name)) is not None:
                np.save(folder / f"{name}.npy", linked)
        columns = [[column.name, column.kind, list(column.categories)] for column in dataset.columns]
        classes = [label if isinstance(label, (str, int, float)) else str(label) for label in dataset.classes]
        known = {"X": str(place.resolve()), "columns": columns, "classes": classes, "splits": len(splits)}
        known["class_weights"] = list(class_weights)
        (folder / "store.json").write_text(json.dumps(known))

    @classmethod
    def read(cls, folder: Path) -> SharedDataset:
        known = json.loads((folder / "store.json").read_text())
        columns = tuple(Column(name, kind, tuple(found)) for name, kind, found in known["columns"])
        splits = tuple(
            Split(_load(folder / f"train-{number}.npy"), _load(folder / f"validation-{number}.npy"))
            for number in range(known["splits"])
        )
        target = folder / "y.npy"
        y = _load(target) if target.exists() else None
        found = {name: _load(folder / f"{name}.npy") for name in _LINKS if (folder / f"{name}.npy").exists()}
        links = RowLinks(**found)
        return cls(
            _load(Path(known["X"])),
            y,
            columns,
            splits,
            tuple(known["classes"]),
            links,
            tuple(known["class_weights"]),
        )


def _load(path: Path) -> NDArray[Any]:
    loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return loaded


def _mapped_file(X: Matrix) -> Path | None:
    """The file that a matrix is mapped from already, if it is the whole of that file: no need for another."""
    if not isinstance(X, np.memmap) or X.filename is None or X.dtype not in (np.float32, np.float64):
        return None
    path = Path(X.filename)
    return path if path.suffix == ".npy" and np.array_equal(_load(path).shape, X.shape) else None
