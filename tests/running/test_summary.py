"""What a run of the tests tells: parts, slowest tests, what was skipped and how to get it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .distribution import LONGEST_FIRST, SHARED
from .quarantine import quarantined

ROOT = Path(__file__).parents[2]

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests.running.summary import Summary

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(config), "summary")
"""


@pytest.fixture(scope="module", params=[0, 2])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a small suite with a failure and a skip prints, in one process and in two."""
    folder = tmp_path_factory.mktemp("suite")
    for part, code in {
        "core": "def test_good(): pass\ndef test_bad(): assert 0",
        "cloud": "import pytest\ndef test_none(): pytest.skip('needs Chromium')\ndef test_two(): pass",
    }.items():
        (folder / "tests" / part).mkdir(parents=True)
        (folder / "tests" / part / f"test_{part}.py").write_text(code)
    (folder / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", str(request.param)]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    return done.stdout


def test_each_part_has_its_line(told: str) -> None:
    lines = [line.split() for line in told.partition(" parts (")[2].splitlines()]
    assert ["1", "passed,", "1", "skipped"] in [line[3:] for line in lines if line[:1] == ["cloud"]]
    assert ["1", "passed,", "1", "failed"] in [line[3:] for line in lines if line[:1] == ["core"]]


def test_a_failure_is_named_when_it_happens(told: str) -> None:
    assert "✗ tests/core/test_core.py::test_bad" in told.partition("FAILURES")[0]


def test_failures_are_listed_at_the_end(told: str) -> None:
    assert "FAILED tests/core/test_core.py::test_bad" in told.partition("short test summary")[2]


def test_a_skip_says_how_to_get_what_is_missing(told: str) -> None:
    assert "needs Chromium; get it: apt-get install chromium" in told


def test_the_slowest_are_named(told: str) -> None:
    assert "tests/core/test_core.py::test_good" in told.partition("slowest tests")[2]


def test_nothing_is_quarantined() -> None:
    assert not quarantined()


def test_a_quarantined_test_is_read_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# why\n\ntests/a.py::test_b  # 2026-01-01: a port\n")
    assert quarantined(tmp_path / "list") == {"tests/a.py::test_b"}


def test_groups_of_files_exist() -> None:
    assert all((ROOT / path).exists() for path in SHARED)
    assert all(name in SHARED.values() or (ROOT / name).exists() for name in LONGEST_FIRST)
