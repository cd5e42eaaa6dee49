"""YAML documents that people write: read safely, with errors that name the place, as in
`digits.yaml, parameters.batch`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import yaml

from prudent.core.errors import BadInput, unknown
from prudent.core.units import SECONDS, parse_in

if TYPE_CHECKING:
    from yaml import SafeLoader as _Base
else:
    # The one in C is ten times as fast; without its library PyYAML has only the other.
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _LocatedBadInput(BadInput):
    """Bad input whose message begins with its place."""


@dataclass(frozen=True)
class KeyPath:
    """A place in a document. Inside `with path / "key":` every complaint names it.

    >>> with KeyPath("digits.yaml") / "parameters" / "batch":
    ...     raise BadInput("The list is empty; add a value.")
    Traceback (most recent call last):
    ...
    prudent.core.documents._LocatedBadInput: digits.yaml, parameters.batch: The list is empty; add a value.
    """

    source: str
    keys: tuple[str, ...] = ()

    def __truediv__(self, key: object) -> KeyPath:
        return KeyPath(self.source, (*self.keys, str(key)))

    def __str__(self) -> str:
        return f"{self.source}, {'.'.join(self.keys)}" if self.keys else self.source

    def __enter__(self) -> KeyPath:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BadInput) and not isinstance(error, _LocatedBadInput):
            raise _LocatedBadInput(f"{self}: {error}") from error

    def check_keys(self, said: Mapping[Any, Any], keys: Collection[str], others: Mapping[str, str]) -> None:
        """Refuse keys that do not exist; `others` tells what is wrong with some."""
        for key in said:
            if key not in keys:
                with self / key:
                    if key in others:
                        raise BadInput(f"This key {others[key]}")
                    raise unknown("key", key, keys)

    def require(self, said: Mapping[str, Any], key: str, remedy: str) -> Any:
        """What stands under a key that must be there."""
        if said.get(key) is None:
            with KeyPath(self.source, self.keys):
                raise BadInput(f'There is no "{key}"; {remedy}')
        return said[key]

    def text(self, said: Mapping[str, Any], key: str, otherwise: str) -> str:
        value = said.get(key)
        if value is None:
            return otherwise
        with self / key:
            if not isinstance(value, str):
                raise BadInput(f"{value!r} is not text; put it in quotes.")
        return str(value)

    def texts(self, said: Mapping[str, Any], key: str) -> list[str]:
        """A list of names; one alone needs no brackets."""
        value = said.get(key)
        listed = [] if value is None else [value] if isinstance(value, str) else value
        with self / key:
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                raise BadInput(f"{value!r} is not a list of names; write it like [accuracy].")
        return list(listed)

    def mapping(self, said: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = {} if said.get(key) is None else said[key]
        with self / key:
            if not isinstance(value, Mapping):
                raise BadInput(f"{value!r} has no keys; write it like {{name: value}}.")
        return {str(name): one for name, one in value.items()}

    def flag(self, said: Mapping[str, Any], key: str, otherwise: bool) -> bool:
        value = otherwise if said.get(key) is None else said[key]
        with self / key:
            if not isinstance(value, bool):
                raise BadInput(f"{value!r} is neither true nor false; write one of them.")
        return bool(value)

    @overload
    def integer(self, said: Mapping[str, Any], key: str, otherwise: int, least: int) -> int: ...

    @overload
    def integer(self, said: Mapping[str, Any], key: str, otherwise: None, least: int) -> int | None: ...

    def integer(self, said: Mapping[str, Any], key: str, otherwise: int | None, least: int) -> int | None:
        value = said.get(key)
        if value is None:
            return otherwise
        with self / key:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadInput(f"{value!r} does not fit; give a whole number of {least} or more.")
        return int(value)

    def seconds(self, said: Mapping[str, Any], key: str, otherwise: float) -> float:
        """A length of time such as `30 s` or `5 min`."""
        value = said.get(key)
        if value is None:
            return otherwise
        with self / key:
            length = parse_in(value, SECONDS)
            if length < 0:
                raise BadInput(f"{value} is not a length of time; give 0 or more.")
            return length


_MOST_VALUES = 100_000
_DEEPEST = 200
"""How deep lists and mappings may be nested: where it is too deep, the reader in C crashes."""


class _Loader(_Base):
    """YAML keeps the last of two equal keys without a word; a second budget must not go unnoticed."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise BadInput(
                        f'The key "{key.value}" is in line {seen[key.value]} and again in line {line}; '
                        "keep one."
                    )
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """What a YAML text says, as plain values.

    >>> read_yaml("budget: $2\\nparallel: 4")
    {'budget': '$2', 'parallel': 4}
    >>> read_yaml("budget: $2\\nbudget: $3")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: The key "budget" is in line 1 and again in line 2; keep one.
    """
    loader = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None and "*" in text and _written_out(node, {}) > _MOST_VALUES:
            raise BadInput(
                f"With its aliases written out this YAML has more than {_MOST_VALUES:,} values; use fewer."
            )
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise BadInput(_complaint(error)) from error
    except (ValueError, RecursionError) as error:  # a date such as 2025-13-45, or brackets without end
        raise BadInput(f"This is not YAML that can be read ({error}); put odd values in quotes.") from error
    finally:
        if loader is not None:
            loader.dispose()


def read_yaml_file(path: Path, what: str, if_missing: str = "check the path.") -> tuple[Any, KeyPath]:
    """What the YAML file at `path` says, and the place to name in complaints about it.

    Complaints call the file `what`, such as "job file".
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f'There is no {what} "{path}"; {if_missing}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f'Cannot read the {what} "{path}" ({error}); give a YAML file in UTF-8.') from error
    where = KeyPath(path.name)
    with where:
        return read_yaml(text), where


def _check_depth(text: str) -> None:
    """Go through the text once, so that its depth is known before the reader in C descends into it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise BadInput(f"This YAML is nested more than {_DEEPEST} deep; make it flatter.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node has when every alias in it is written out; `sizes` are those found already."""
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise BadInput("A value of this YAML contains itself by an alias; write out what is meant.")
        return sizes[id(node)]
    sizes[id(node)] = 0
    inside: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        inside = [each for pair in node.value for each in pair]
    elif isinstance(node, yaml.SequenceNode):
        inside = node.value
    sizes[id(node)] = 1 + sum(_written_out(each, sizes) for each in inside)
    return sizes[id(node)]


def _complaint(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    place = f"Line {mark.line + 1}, column {mark.column + 1} is" if mark is not None else "This is"
    return f"{place} not YAML ({problem}); correct it, and put texts with : or {{ in quotes."
