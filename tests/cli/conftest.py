"""Commands run as a shell would run them, and a job file that works."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from prudent.cli.main import run


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def prudent(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs a command line in this process, the way the console script does."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("PRUDENT_DEBUG", raising=False)

    def call(*arguments: object) -> Done:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return call


@pytest.fixture
def job(tmp_path: Path, write_runs: Callable[..., tuple[Path, Path]]) -> Callable[..., Path]:
    """Writes a job file that replays a table; keyword arguments change or (None) remove keys."""
    write_runs(tmp_path)

    def write(file: str = "job.yaml", **changes: Any) -> Path:
        said = {
            "table": "runs.csv",
            "parameters": ["vm", "workers", "rate"],
            "measures": ["accuracy"],
            "progress": "progress.csv",
            "goal": "minimise cost_usd subject to time_s <= 5 min and accuracy >= 0.8",
            "budget": "$0.3",
            "strategy": "random",
            "seed": 7,
            **changes,
        }
        path = tmp_path / file
        kept = {key: value for key, value in said.items() if value is not None}
        path.write_text(yaml.safe_dump(kept, sort_keys=False))
        return path

    return write


@pytest.fixture
def command_job(tmp_path: Path) -> Callable[..., Path]:
    """The same for a job that runs a small shell command for real."""

    def write(file: str = "shell.yaml", **changes: Any) -> Path:
        said = {
            "command": "echo 'PRUDENT {{\"error\": '{x}'}}'",
            "parameters": {"x": [1, 2, 3, 4], "workers": [1, 2]},
            "measures": ["error"],
            "price": "0.05 * workers",
            "goal": "minimise error",
            "budget": "$1",
            "strategy": "grid",
            **changes,
        }
        path = tmp_path / file
        kept = {key: value for key, value in said.items() if value is not None}
        path.write_text(yaml.safe_dump(kept, sort_keys=False))
        return path

    return write
