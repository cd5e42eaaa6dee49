"""The reference of the command line is complete: it names the options that the program has, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli import exits
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


def test_the_exit_codes_are_those_of_the_program() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Exit codes")[1]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert told == {exits.OK, exits.FAILED, exits.WRONG_REQUEST, exits.OVER_LIMIT, exits.INTERRUPTED}


def flags_of(name: str) -> dict[str, Any]:
    return {flag: parameter for parameter in COMMANDS[name].params for flag in parameter.opts}


def test_short_options_mean_the_same_everywhere() -> None:
    assert {
        parameter.opts[0] for name in COMMANDS for flag, parameter in flags_of(name).items() if flag == "-o"
    } == {"--out"}


@pytest.mark.parametrize("flag", ["--json", "--home"])
def test_an_option_of_several_commands_is_told_in_the_same_words(flag: str) -> None:
    service = {"serve", "worker", *(name for name in COMMANDS if name.startswith("users"))}
    told = {flags_of(name)[flag].help for name in set(COMMANDS) - service if flag in flags_of(name)}
    assert len(told) == 1


def test_old_names_still_work_for_one_version() -> None:
    assert flags_of("execute")["--on"].hidden
    assert flags_of("report")["--output"].hidden


def test_help_texts_say_defaults_in_one_way() -> None:
    texts = [
        parameter.help or ""
        for name in COMMANDS
        for parameter in COMMANDS[name].params
        if hasattr(parameter, "help")
    ]
    assert not [text for text in texts if text.rstrip(".").endswith(" otherwise")]
