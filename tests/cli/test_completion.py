"""The shell completes commands, options, and the names of strategies and schedulers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from prudent.cli.app import COMMANDS


def completed(line: str) -> set[str]:
    """What bash would offer at the end of a line."""
    words = line.split(" ")
    asking = {"_PRUDENT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    call = "import sys; sys.argv = ['prudent']; from prudent.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call], env={**os.environ, **asking}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_every_command_is_offered() -> None:
    assert completed("prudent ") == set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("prudent sch", {"schedule"}),
        ("prudent clusters ", {"list", "reap"}),
        ("prudent tune --strat", {"--strategy"}),
        ("prudent tune --strategy rand", {"random"}),
        ("prudent schedule --scheduler hef", {"heft"}),
        ("prudent train --search fru", {"frugal"}),
    ],
)
def test_what_begins_like_this_is_offered(line: str, offered: set[str]) -> None:
    assert offered <= completed(line)


def test_old_names_of_options_are_not_offered() -> None:
    assert "--on" not in completed("prudent execute --o")
