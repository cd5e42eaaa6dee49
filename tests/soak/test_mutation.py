"""Mutation testing on a package of two functions, and what counts as a mutant."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .mutants import difference, mutants_of, mutated

pytestmark = pytest.mark.soak  # cosmic-ray comes with `make soak`
SCRIPT = Path(__file__).with_name("mutation.py")
SUMS = """\
def total(a: int, b: int) -> int:
    return a + b


def half(a: float) -> float:
    return a / 2


def never() -> bool:
    return True
"""
TESTS = """\
import pytest
from tiny.sums import half, total


def test_total() -> None:
    assert total(2, 3) == 5


def test_half_asserts_nothing() -> None:
    half(1.0)


@pytest.mark.soak
def test_half_for_long() -> None:
    assert half(1.0) == 0.5
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    root = tmp_path / "tiny"
    for name, text in {
        "src/tiny/__init__.py": "",
        "src/tiny/sums.py": SUMS,
        "tests/test_sums.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["soak: long"]\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _run(root: Path, *more: str) -> tuple[int, dict[str, Any]]:
    temporary = root.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, str(SCRIPT), "--root", str(root), "--part", "src/tiny", "tests", "--jobs", "1"]
    # Without the plugins of this environment it starts in a moment.
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, *more], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    result = root / "build" / "mutation" / "result.json"
    assert result.exists(), done.stdout + done.stderr
    assert not list(temporary.iterdir())
    return done.returncode, json.loads(result.read_text())


def test_what_is_asserted_is_caught_and_the_rest_survives(tiny: Path) -> None:
    code, said = _run(tiny)
    assert code == 1  # below 85 %
    assert (said["tried"], said["caught"]) == (4, 1)
    outcomes = {(one["where"], one["outcome"]) for one in said["survivors"]}
    assert outcomes == {("src/tiny/sums.py:6", "survived"), ("src/tiny/sums.py:10", "unseen")}
    assert all(one["diff"].startswith("- return") for one in said["survivors"])
    assert (tiny / "src/tiny/sums.py").read_text() == SUMS

    # A second run goes on from the work file: what is in it is not tried again.
    work = next((tiny / "build" / "mutation").glob("*.jsonl"))
    first, *others = work.read_text().splitlines()
    caught = [line.replace('"survived"', '"failed"').replace('"unseen"', '"failed"') for line in others]
    work.write_text("\n".join([first, *caught, '{"half a li']) + "\n")
    code, said = _run(tiny)
    assert said["caught"] == 3 + ('"failed"' in first)
    assert code == (0 if said["caught"] == 4 else 1)


POINTLESS = '''\
from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    LIMIT = 1 + 1
__all__ = ["a" + "b"]
Value = int | str


class Clock(Protocol):
    def now(self, offset: int = 3) -> float: ...


@dataclass(frozen=True, slots=True)
class Point:
    x: int | None


@cache
def check(point: Point, *, pause: int | None) -> None:
    """2 + 2."""
    log.warning("%s", 1 + 2)
    time.sleep(0.5)
    raise ValueError(f"{point.x + 1} is wrong")
'''


def test_what_no_test_could_tell_is_no_mutant(tmp_path: Path) -> None:
    (tmp_path / "pointless.py").write_text(POINTLESS)
    found = mutants_of(tmp_path, "pointless.py", random.Random(1))
    # Only that a class is a dataclass is worth trying.
    assert [(one.line, one.operator) for one in found] == [(17, "core/RemoveDecorator")]


def test_what_another_module_compiles_is_none_either(tmp_path: Path) -> None:
    (tmp_path / "fast.py").write_text("@compiled\ndef f(a):\n    return a\n")
    assert len(mutants_of(tmp_path, "fast.py", random.Random(1))) == 1
    assert not mutants_of(tmp_path, "fast.py", random.Random(1), frozenset({"compiled"}))


def test_a_place_and_a_kind_of_change_count_once(tmp_path: Path) -> None:
    text = "def f(a, b):\n    return a * b if a == 2 and b is not None else -a\n"
    (tmp_path / "one.py").write_text(text)
    found = mutants_of(tmp_path, "one.py", random.Random(1))
    kinds = [one.operator.partition("_")[0].removeprefix("core/") for one in found]
    assert sorted(kinds) == [
        "AddNot",
        "NumberReplacer",
        "ReplaceAndWithOr",
        "ReplaceBinaryOperator",
        "ReplaceComparisonOperator",
        "ReplaceComparisonOperator",
        "ReplaceUnaryOperator",
    ]
    for one in found:
        changed = mutated(text, one)
        if changed is not None:
            was, becomes = difference(text, changed).splitlines()
            assert was[2:] != becomes[2:]
