"""YAML that users and strangers send."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.core.yaml_text import read_yaml


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
