"""A command with places, `train.py --rate {rate}`, filled in so that a shell reads every value right."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.space import Space

_BRACES = "Write {{ and }} for braces that belong to the command itself."
_DOUBLE = re.compile(r'([\\"$`])')


@dataclass(frozen=True)
class Placeholder:
    """Where a parameter goes, and the quotes around it."""

    name: str
    quotes: str = ""

    def fill(self, text: str) -> str:
        """The text as the shell must see it here to read it unchanged."""
        if self.quotes == "'":
            return text.replace("'", "'\"'\"'")
        if self.quotes == '"':
            return _DOUBLE.sub(r"\\\1", text)
        return shlex.quote(text)


@dataclass(frozen=True)
class CommandTemplate:
    """A command as given: one text for the shell, or a list of words that need no quoting.

    >>> space = Space.parse({"rate": [0.1, 0.01], "name": ["a b", "c"]})
    >>> command = CommandTemplate.parse("train --rate {rate} --name {name} '{{}}'", space)
    >>> command.fill({"rate": 0.1, "name": "a b"})
    "train --rate 0.1 --name 'a b' '{}'"
    >>> CommandTemplate.parse("train --rate {rat}", space)
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: Unknown place "rat". Did you mean "rate"? Choose one of: rate, name. \
Write {{ and }} for braces that belong to the command itself.
    """

    words: tuple[tuple[str | Placeholder, ...], ...]
    is_list: bool
    space: Space

    @classmethod
    def parse(cls, command: str | Sequence[str], space: Space) -> CommandTemplate:
        is_list = not isinstance(command, str)
        texts = (
            [command] if isinstance(command, str) else list(command) if isinstance(command, Sequence) else ()
        )
        if not texts or not all(isinstance(text, str) for text in texts) or not texts[0].strip():
            raise BadInput(f"{command!r} is not a command; write a shell command, or a list of words.")
        for text in texts:
            if "\0" in text:
                raise BadInput("The command holds a NUL character; remove it.")
        words = tuple(tuple(_parts(text, space, quoting=not is_list)) for text in texts)
        return cls(words, is_list, space)

    def fill(self, configuration: Mapping[str, Any]) -> str:
        """The command line for a configuration."""
        values = texts_of(self.space, configuration)
        if self.is_list:
            plain = (
                "".join(p if isinstance(p, str) else values[p.name] for p in word) for word in self.words
            )
            return shlex.join(plain)
        return "".join(p if isinstance(p, str) else p.fill(values[p.name]) for p in self.words[0])


def texts_of(space: Space, configuration: Mapping[str, Any]) -> dict[str, str]:
    """Every parameter as text, and what machine parameters know (`cluster.count`).

    >>> space = Space.parse({"layers": {"constant": [64, 8]}, "fast": True})
    >>> texts_of(space, {"layers": (64, 8), "fast": True})
    {'layers': '[64, 8]', 'fast': 'true'}
    """
    return {name: value_text(value) for name, value in space.with_facts(configuration).items()}


def value_text(value: Any) -> str:
    """A value in a command: text as it is, everything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _parts(text: str, space: Space, quoting: bool) -> Iterator[str | Placeholder]:
    """The text between places, and the places, each with the quotes that are open there."""
    places = [*space.names, *space.fact_names]
    plain, quotes, at = "", "", 0
    while at < len(text):
        if text[at : at + 2] in ("{{", "}}"):
            plain, at = plain + text[at], at + 2
        elif text[at] == "{":
            close = text.find("}", at)
            name = text[at + 1 : close] if close > at else text[at + 1 :]
            if close < 0 or name not in places:
                raise BadInput(f"{unknown('place', name[:40], places)} {_BRACES}")
            if plain:
                yield plain
            yield Placeholder(name, quotes)
            plain, at = "", close + 1
        else:
            taken = _taken(text, at, quotes) if quoting else 1
            if quoting and taken == 1:
                quotes = _quotes_after(text[at], quotes)
            plain, at = plain + text[at : at + taken], at + taken
    if plain:
        yield plain


def _taken(text: str, at: int, quotes: str) -> int:
    """How many characters the shell reads as one here: an escape, or a comment to the end of its line."""
    if text[at] == "\\" and quotes != "'" and text[at + 1 : at + 2] not in ("", "{"):
        return 2
    if text[at] == "#" and not quotes and (at == 0 or text[at - 1].isspace()):
        end = text.find("\n", at)
        comment = text[at : end if end > 0 else len(text)]
        return len(comment)
    return 1


def _quotes_after(sign: str, quotes: str) -> str:
    if sign not in "'\"":
        return quotes
    if not quotes:
        return sign
    return "" if quotes == sign else quotes
