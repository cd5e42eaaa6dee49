"""The reference of the command line is complete: it names the options that the program has, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli.app import group

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
HELP = {"--help", "-h"}
_HEADING = re.compile(r"^#{2,3} prudent (?P<name>[a-z ]+)$", re.MULTILINE)
_FLAG = re.compile(r"`(--?[a-z][a-z-]*)")


def commands(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by the words that call it."""
    command = command or group()
    listed = getattr(command, "list_commands", None)
    if listed is None:
        yield name, command
        return
    if getattr(command, "invoke_without_command", False) and name:
        yield name, command
    for word in listed(None):
        yield from commands(command.get_command(None, word), f"{name} {word}".strip())


def documented() -> dict[str, set[str]]:
    """The options in the tables of each command's section."""
    text = PAGE.read_text(encoding="utf-8")
    headings = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), text.index("## Exit codes")]
    found = {}
    for heading, end in zip(headings, ends, strict=True):
        rows = [line for line in text[heading.end() : end].splitlines() if line.startswith("| `-")]
        found[heading["name"]] = {flag for row in rows for flag in _FLAG.findall(row.split("|")[1])}
    return found


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_documented_options_are_those_of_the_program(name: str) -> None:
    flags = {
        flag
        for parameter in COMMANDS[name].params
        if parameter.param_type_name == "option" and not parameter.hidden
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    assert documented()[name] == flags - HELP


def test_no_command_is_documented_that_does_not_exist() -> None:
    existing = {*COMMANDS, *(name.split()[0] for name in COMMANDS)}
    assert set(documented()) <= existing


def test_defaults_of_the_demo_are_those_in_its_table() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## prudent demo")[1].split("## ")[0]
    rows = dict(re.findall(r"^\| `(--[a-z]+)` \| [^|]+ \| `?([^|`]*?)`? \|$", section, re.MULTILINE))
    for parameter in COMMANDS["demo"].params:
        flag = parameter.opts[0]
        if flag not in HELP and flag not in ("--json", "--training", "--workflow", "--service"):
            assert rows[flag] == str(parameter.default)
