"""Where in a file something is wrong: `digits.yaml, parameters.batch`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, overload

from prudent.core.errors import BadInput, unknown
from prudent.core.units import SECONDS, parse_in


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

    def known(self, said: Mapping[Any, Any], keys: Collection[str], others: Mapping[str, str]) -> None:
        """Refuse keys that do not exist; `others` tells what is wrong with some."""
        for key in said:
            if key not in keys:
                with self / key:
                    if key in others:
                        raise BadInput(f"This key {others[key]}")
                    raise unknown("key", key, keys)

    def need(self, said: Mapping[str, Any], key: str, remedy: str) -> Any:
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
                raise BadInput(f"{value!r} is no text; put it in quotes.")
        return str(value)

    def texts(self, said: Mapping[str, Any], key: str) -> list[str]:
        """A list of names; one alone needs no brackets."""
        value = said.get(key)
        listed = [] if value is None else [value] if isinstance(value, str) else value
        with self / key:
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                raise BadInput(f"{value!r} is no list of names; write it like [accuracy].")
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
    def whole(self, said: Mapping[str, Any], key: str, otherwise: int, least: int) -> int: ...

    @overload
    def whole(self, said: Mapping[str, Any], key: str, otherwise: None, least: int) -> int | None: ...

    def whole(self, said: Mapping[str, Any], key: str, otherwise: int | None, least: int) -> int | None:
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
                raise BadInput(f"{value} is no length of time; give 0 or more.")
            return length
