"""Lines and values that runs report, and commands filled in: text that comes from anywhere."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.cloud.machine_parameter import MachineParameter
from prudent.core.parameters import Constant
from prudent.core.space import Space
from prudent.tuning.jobs.run_output import LineSplitter, ReportedMeasures, TrialLog, outcome_of_exit
from prudent.tuning.jobs.template import CommandTemplate
from prudent.tuning.trial import Progress


@pytest.mark.parametrize(
    "line",
    [
        'PRUDENT {"accuracy": 0.5}',
        '  PRUDENT   {"accuracy": 0.5, "other": "text"}  ',
        'PRUDENT{"accuracy": 5e-1}',
        'PRUDENT\t{"accuracy": 0.5, "progress": 7}',
    ],
)
def test_a_report_in_every_spelling(line: str) -> None:
    assert ReportedMeasures(["accuracy"]).line(line, 3.0) == Progress(3.0, {"accuracy": 0.5})


@pytest.mark.parametrize(
    "line", ["", "PRUDENT", "PRUDENTLY done", 'prudent {"accuracy": 1}', 'x PRUDENT {"accuracy": 1}', "{}"]
)
def test_other_lines_are_none_of_our_business(line: str) -> None:
    reports = ReportedMeasures(["accuracy"])
    assert reports.line(line, 1.0) is None
    assert not reports.any
    assert (
        reports.complaint() == 'reported no accuracy. To report it, print a line PRUDENT {"accuracy": 0.5}.'
    )


@pytest.mark.parametrize(
    "rest", ["{", "[1]", "3", "null", "{'accuracy': 1}", '{"accuracy": 1} x', "[" * 100_000]
)
def test_rubbish_is_quoted_shortly(rest: str) -> None:
    reports = ReportedMeasures(["accuracy"])
    assert reports.line(f"PRUDENT {rest}", 1.0) is None
    complaint = reports.complaint()
    assert complaint is not None
    assert f"no JSON object: PRUDENT {rest[:100]}" in complaint
    assert len(complaint) < 400


def test_a_line_that_tells_nothing_new_is_no_progress() -> None:
    reports = ReportedMeasures(["accuracy"])
    assert reports.line('PRUDENT {"epoch": 3}', 1.0) is None
    assert reports.any


@given(st.text(max_size=200))
def test_no_line_can_stop_the_reading(text: str) -> None:
    reports = ReportedMeasures(["accuracy"])
    for line in (text, f"PRUDENT {text}", f'PRUDENT {{"accuracy": {text}}}'):
        reports.line(line, 1.0)
    assert all(math.isfinite(value) for value in reports.measures.values())


@given(
    chunks=st.lists(st.binary(max_size=30), max_size=20),
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
)
def test_reports_are_found_between_any_bytes(chunks: list[bytes], values: list[float]) -> None:
    stream = b"\n".join(chunks)
    for value in values:
        stream += b"\nPRUDENT " + json.dumps({"x": value}).encode() + b"\n"
    reports, lines, shown = ReportedMeasures(["x"]), LineSplitter(), []
    for at in range(0, len(stream), 7):
        shown += [reports.line(line, 0.0) for line in lines.feed(stream[at : at + 7])]
    assert [p.measures["x"] for p in shown if p is not None][-len(values) :] == values
    assert reports.measures == {"x": values[-1]}


def test_an_endless_line_takes_no_memory_and_the_next_one_counts() -> None:
    lines = LineSplitter()
    for _ in range(100):
        assert lines.feed(b"x" * 65536) == []
    assert len(lines._partial) <= 1 << 20
    assert lines.feed(b"\nnext\n") == ["next"]


def test_the_last_line_of_a_log_is_the_last_that_says_anything() -> None:
    log = TrialLog(None)
    log.write(b"Traceback\nValueError: no\xff data\n 10%\r 20%\rdone \n\n \n")
    assert log.last_line == "done"
    log.write(b"y" * 10_000)
    assert log.last_line == "y" * 200
    assert TrialLog(None).last_line == ""


@pytest.mark.parametrize(
    ("code", "ran_s", "started"), [(127, 0.1, False), (126, 0.1, False), (127, 60.0, True), (1, 0.1, True)]
)
def test_a_shell_that_finds_no_command_says_so_at_once(code: int, ran_s: float, started: bool) -> None:
    ended = outcome_of_exit(code, ran_s, ran_s + 100, ReportedMeasures([]), "sh: train: not found")
    assert ended.started is started
    assert ended.time_s == (ran_s + 100 if started else 0.0)


SIGNS = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=30
)


@settings(max_examples=40, deadline=None)
@given(SIGNS)
def test_any_text_reaches_the_command_unchanged(text: str) -> None:
    space = Space([Constant("x", text)])
    for command in ("printf %s {x}", "printf %s '{x}'", 'printf %s "{x}"', ["printf", "%s", "{x}"]):
        filled = CommandTemplate.parse(command, space).fill({"x": text})
        told = subprocess.run(["/bin/sh", "-c", filled], capture_output=True, check=True).stdout
        assert told == text.encode()


def test_a_place_keeps_its_surroundings() -> None:
    space = Space.parse({"x": ["a b"], "n": [1e-05, 3]})
    filled = CommandTemplate.parse("f --a={x}.txt \\'{n} \"it's {x}\" # '{n}\ng '{n}'", space).fill(
        {"x": "a b", "n": 1e-05}
    )
    assert filled == "f --a='a b'.txt \\'1e-05 \"it's a b\" # '{n}\ng '1e-05'"


def test_a_backslash_before_a_place_does_not_hide_it() -> None:
    template = CommandTemplate.parse('f \\{n} "\\{n}"', Space.parse({"n": [3]}))
    assert template.fill({"n": 3}) == 'f \\3 "\\3"'


def test_between_single_quotes_nothing_is_escaped() -> None:
    template = CommandTemplate.parse(r"""f '\' {x} "\" {x}" """, Space.parse({"x": ["a b"]}))
    assert template.fill({"x": "a b"}) == r"""f '\' 'a b' "\" a b" """


def test_a_machine_tells_its_parts() -> None:
    space = Space([MachineParameter("cluster", ["m5.large"], [1, 4])])
    template = CommandTemplate.parse("run -n {cluster.count} -t {cluster.type} {cluster}", space)
    assert template.fill({"cluster": "4*m5.large"}) == "run -n 4 -t m5.large '4*m5.large'"


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (None, "null"), (0.1, "0.1"), (3, "3"), ((1, "a"), "'[1, \"a\"]'")]
)
def test_values_are_written_as_json(value: Any, text: str) -> None:
    assert CommandTemplate.parse("f {x}", Space([Constant("x", value)])).fill({"x": value}) == f"f {text}"
