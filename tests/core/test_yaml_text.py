"""YAML that users and strangers send."""

from __future__ import annotations

import subprocess
import sys

import pytest

from prudent.core.documents import read_yaml
from prudent.core.errors import BadInput


def test_aliases_are_written_out() -> None:
    text = "usual: &usual {types: [small], count: [1, 2]}\nfirst: *usual\nsecond: {<<: *usual, count: [4]}\n"
    usual = {"types": ["small"], "count": [1, 2]}
    assert read_yaml(text) == {"usual": usual, "first": usual, "second": {**usual, "count": [4]}}


@pytest.mark.parametrize(
    ("first", "again"),
    [("[x, x]", "[*{0}, *{0}, *{0}, *{0}]"), ("{{k: x}}", "{{a: *{0}, b: *{0}, c: *{0}}}")],
)
def test_a_few_lines_do_not_stand_for_millions(first: str, again: str) -> None:
    lines = [f"a0: &a0 {first.format()}"]
    lines += [f"a{number + 1}: &a{number + 1} {again.format(f'a{number}')}" for number in range(40)]
    with pytest.raises(BadInput, match="more than 100,000 values; use fewer"):
        read_yaml("\n".join(lines))


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(BadInput, match="contains itself"):
        read_yaml("a: &a [1, *a]")


def test_nothing_is_nothing() -> None:
    assert read_yaml("") is None
    assert read_yaml("# only words") is None


@pytest.mark.parametrize("deep", ["[" * 50_000, "{a: " * 50_000, "- " * 3_000 + "x"])
def test_brackets_without_end_are_refused_before_they_are_descended_into(deep: str) -> None:
    """In a process of its own: the reader in C would end it, for want of room on its stack."""
    code = (
        "import sys; from prudent.core.errors import BadInput; from prudent.core.documents import read_yaml\n"
        "try: read_yaml(sys.stdin.read())\n"
        "except BadInput as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=deep, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "This YAML is nested more than 200 deep; make it flatter.\n")


def test_what_people_nest_is_read() -> None:
    assert read_yaml("[" * 150 + "1" + "]" * 150)
