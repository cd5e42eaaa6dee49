"""The program as a whole: quick to start, errors in one sentence, exit codes that mean something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prudent.cli.app import COMMANDS

PROGRAM = [sys.executable, "-m", "prudent.cli.main"]


def test_nothing_heavy_is_imported_for_the_version() -> None:
    code = (
        "import sys\nfrom prudent.cli.main import run\nrun(['--version'])\n"
        "print([m for m in ('numba', 'scipy', 'plotly', 'rich', 'numpy', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_command(prudent: Callable[..., object]) -> None:
    done = prudent("--help")
    assert done.code == 0  # type: ignore[attr-defined]
    for name in COMMANDS:
        assert f" {name} " in done.out  # type: ignore[attr-defined]
    assert prudent().out == done.out  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(prudent: Callable[..., object], name: str) -> None:
    done = prudent(name, "--help")
    assert done.code == 0  # type: ignore[attr-defined]
    assert f"prudent {name}" in done.out  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tun"], 'Unknown command "tun". Did you mean "tune"?'),
        (["tune"], "JOB.yaml"),
        (["tune", "--bugdet", "1", "x.yaml"], "--budget"),
        (["tune", "x.yaml", "--parallel", "none"], "--parallel"),
        (["tune", "x.yaml", "--parallel", "0"], "--parallel"),
        (["prices", "--family", "m55"], 'Did you mean "m5"'),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    prudent: Callable[..., object], arguments: list[str], says: str
) -> None:
    done = prudent(*arguments)
    assert (done.code, done.out) == (2, "")  # type: ignore[attr-defined]
    assert says in done.err  # type: ignore[attr-defined]
    assert done.err.count("\n") == 1  # type: ignore[attr-defined]
    assert "Traceback" not in done.err  # type: ignore[attr-defined]


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m prudent.cli.main prices --json | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_a_mistake_of_ours_is_one_sentence_too(
    prudent: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("oops")

    monkeypatch.setattr("prudent.cli.prices.Catalog.load", lambda *_: broken())
    done = prudent("prices")
    assert done.code == 1  # type: ignore[attr-defined]
    assert "KeyError: 'oops'" in done.err  # type: ignore[attr-defined]
    assert "PRUDENT_DEBUG=1" in done.err  # type: ignore[attr-defined]
    monkeypatch.setenv("PRUDENT_DEBUG", "1")
    with pytest.raises(KeyError):
        prudent("prices")


def test_debugging_shows_where(tmp_path: Path) -> None:
    environment = {**os.environ, "PRUDENT_DEBUG": "1"}
    done = subprocess.run(
        [*PROGRAM, "tune", str(tmp_path / "gone.yaml")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" in done.stderr
