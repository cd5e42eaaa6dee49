"""What a session on machines that are gone knew about the data: enough to rank what was trained there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.training.engines.engine import DataShape, TrainingSession, TrialSpec, UnseenRows
from prudent.tuning.jobs.job import Run

_FILE, _ROWS_FILE = "data.json", "rows.npz"


@dataclass(frozen=True, eq=False)
class SavedSession:
    """A session without machines: it trains nothing, and has no rows but those that were kept.

    `warnings` are those of an earlier session's closer look at the data.
    """

    shape: DataShape
    description: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    kept: UnseenRows | None = field(default=None, repr=False)

    @classmethod
    def of(cls, session: TrainingSession) -> SavedSession:
        """What a session knows."""
        return session if isinstance(session, cls) else cls(session.shape, dict(session.description))

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether one was written there."""
        return (folder / _FILE).exists()

    @classmethod
    def read(cls, folder: Path) -> SavedSession:
        """The one that was written into a folder."""
        said = json.loads((folder / _FILE).read_text())
        kept = None
        try:
            with np.load(folder / _ROWS_FILE, allow_pickle=False) as file:
                kept = UnseenRows(file["X"], file["y"], file["rows"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            pass  # an ensemble is left out then
        return cls(DataShape(**said["shape"]), said["description"], tuple(said.get("warnings", ())), kept)

    def write(self, folder: Path) -> None:
        """Write it into a folder, with the rows that it keeps."""
        said = {"shape": asdict(self.shape), "description": dict(self.description), "warnings": self.warnings}
        (folder / _FILE).write_text(json.dumps(said, default=lambda value: value.tolist()))
        if self.kept is not None:
            np.savez(folder / _ROWS_FILE, X=self.kept.X, y=self.kept.y, rows=self.kept.rows)

    def start(self, spec: TrialSpec) -> Run:
        raise RunFailed(f"Trial {spec.number} has no machines to run on; raise the budget.")

    def test_rows(self) -> UnseenRows | None:
        """None: what models said of the test part lies beside them."""
        return None

    def rows_of(self, rows: NDArray[np.int64]) -> UnseenRows | None:
        """Rows by their numbers if all of them were kept, in that order; else None."""
        if self.kept is None or not np.isin(rows, self.kept.rows).all():
            return None
        order = np.argsort(self.kept.rows)
        return self.kept.at(order[np.searchsorted(self.kept.rows[order], rows)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None
