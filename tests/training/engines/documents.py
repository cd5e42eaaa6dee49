"""Requests in the form of the paper, one for each algorithm, with data beside them to answer them on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "documents"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
SHOPS = """0 1:0.5 2:1.0 3:0.5
1 1:0.6 2:1.1 3:0.5
2 1:0.5 2:1.2 3:0.4
3 1:7.0 2:9.0 3:8.0
4 1:7.1 2:9.2 3:8.0
5 1:7.0 2:9.1 3:8.3
"""
"""Six rows in two clusters."""


def laid_out(folder: Path) -> Path:
    """The documents in a folder, and the data that they name."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    rng = np.random.default_rng(16)
    X = rng.uniform(0.1, 1.0, size=(60, 4))
    leaves = (X[:, :3] + 0.2 * rng.random((60, 3))).argmax(axis=1)
    targets = {"flats": 1 + 3 * X[:, 0] + X[:, 1], "mails": (X[:, 0] > X[:, 1]) * 1.0, "leaves": leaves}
    for name, y in targets.items():
        lines = (
            " ".join([f"{label:g}", *(f"{place}:{value:.4f}" for place, value in enumerate(row, 1))])
            for label, row in zip(y, X, strict=True)
        )
        (folder / f"{name}.libsvm").write_text("\n".join(lines) + "\n")
    (folder / "shops.libsvm").write_text(SHOPS)
    return folder
