"""How a command ended, in words."""

from __future__ import annotations

import pytest

from prudent.tuning.jobs.run_output import SHELL_S, ReportedMeasures, outcome_of_exit
from prudent.tuning.trial import FAILED, FINISHED

CHECK = "check its spelling, the PATH and the directory."


@pytest.mark.parametrize(
    ("code", "last_line", "why"),
    [
        (1, "", "exit code 1"),
        (1, "no such file", "exit code 1: no such file"),
        (128, "", "exit code 128"),
        (129, "", "exit code 129 (SIGHUP)"),
        (-1, "", "killed by SIGHUP"),
        (-15, "bye", "killed by SIGTERM: bye"),
        (137, "", "killed, probably out of memory"),
        (-9, "x", "killed, probably out of memory: x"),
        (255, "", "exit code 255"),
        (-100, "", "exit code -100"),
        (1, "MemoryError", "out of memory (exit code 1: MemoryError)"),
        (1, "std::BAD_ALLOC", "out of memory (exit code 1: std::BAD_ALLOC)"),
    ],
)
def test_why_a_command_failed(code: int, last_line: str, why: str) -> None:
    found = outcome_of_exit(code, 10.0, 12.0, ReportedMeasures([]), last_line)
    assert (found.status, found.why, found.time_s, found.started) == (FAILED, why, 12.0, True)


@pytest.mark.parametrize(
    ("code", "last_line", "why"),
    [
        (126, "", "could not start: the command is not executable; make it so with chmod +x."),
        (126, "x", "could not start: the command is not executable; make it so with chmod +x (x)."),
        (127, "", f"could not start: the command was not found; {CHECK}"),
        (127, "sh: x", f"could not start: the command was not found (sh: x); {CHECK}"),
    ],
)
def test_a_command_that_could_not_start_has_cost_nothing(code: int, last_line: str, why: str) -> None:
    found = outcome_of_exit(code, SHELL_S - 0.1, 9.0, ReportedMeasures([]), last_line)
    assert (found.status, found.why, found.time_s, found.started) == (FAILED, why, 0.0, False)


def test_what_fails_late_or_after_a_report_had_started() -> None:
    assert SHELL_S == 5.0
    assert outcome_of_exit(127, SHELL_S, 9.0, ReportedMeasures([]), "").started
    assert not outcome_of_exit(127, SHELL_S - 0.1, 9.0, ReportedMeasures([]), "").started
    reports = ReportedMeasures(["accuracy"])
    reports.line('PRUDENT {"accuracy": 0.5}', 1.0)
    assert outcome_of_exit(127, 1.0, 9.0, reports, "").started
    assert outcome_of_exit(125, 1.0, 9.0, ReportedMeasures([]), "").started


def test_a_command_that_reports_what_it_should_has_finished() -> None:
    found = outcome_of_exit(0, 10.0, 12.0, ReportedMeasures([]), "some words")
    assert (found.status, found.why, found.time_s) == (FINISHED, "", 12.0)
    assert outcome_of_exit(0, 10.0, 12.0, ReportedMeasures(["accuracy"]), "").status == FAILED
