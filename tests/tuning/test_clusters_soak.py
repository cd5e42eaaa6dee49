"""Some of the random studies of `clusters_soak.py`: money, orphans and answers in all kinds of trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).with_name("clusters_soak.py")


def soak(folder: Path, first: int, count: int, at_once: int) -> dict[str, Any]:
    """In a process of its own without threads, for it forks; its folders are the test's."""
    done = subprocess.run(
        [sys.executable, str(SOAK), str(first), str(count), str(at_once)],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["broken"] == {}
    assert done.returncode == 0
    assert seen["studies"] == count
    assert list(folder.iterdir()) == []
    return seen


def test_two_studies_in_trouble_keep_every_promise(tmp_path: Path) -> None:
    # One whose budget is short, one that may not have all it wants; both are killed and resumed. Which
    # trouble comes before the end depends on where the kills fall: the long one sees all kinds.
    seen = soak(tmp_path, 7, 2, 2)
    assert seen["killed"] >= 1
    assert seen["looks_at_the_money"] > 10


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_random_studies_in_trouble_keep_every_promise(tmp_path: Path) -> None:
    seen = soak(tmp_path, 0, 10, 5)
    # Or nothing was shown: each kind of trouble came, and sessions were killed and resumed.
    assert seen["killed"] >= 3
    assert seen["looks_at_the_money"] > 100
    assert {"quota", "transient", "preemption", "price"} <= set(seen["befell"])
