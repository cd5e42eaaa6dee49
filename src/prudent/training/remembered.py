"""What a session on machines that are gone knew about the data: enough to rank what was trained there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prudent.core.errors import RunFailed
from prudent.training.engine import DataShape, Session, TrialSpec
from prudent.tuning.jobs.job import Run


class Remembered:
    """A session that trains nothing; `path` is what `write` has left."""

    def __init__(self, path: Path) -> None:
        said = json.loads(path.read_text())
        self.shape = DataShape(**said["shape"])
        self.description: Mapping[str, Any] = said["description"]

    @staticmethod
    def write(path: Path, session: Session) -> None:
        said = {"shape": asdict(session.shape), "description": dict(session.description)}
        path.write_text(json.dumps(said, default=lambda value: value.tolist()))

    def start(self, spec: TrialSpec) -> Run:
        raise RunFailed(f"Trial {spec.number} has no machines to run on; raise the budget.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
