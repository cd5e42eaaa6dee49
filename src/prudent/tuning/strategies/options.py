"""Options of a strategy: a frozen dataclass whose fields are the names users write."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from prudent.core.errors import BadInput, unknown

T = TypeVar("T")


def read_options(kind: type[T], values: Mapping[str, Any], strategy: str) -> T:
    """Build the dataclass from what the user wrote; a wrong name or type is answered with the remedy.

    A field annotated with a Literal accepts those words only; a dataclass checks ranges itself.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown(f"option of {strategy}", name, fields)
        chosen[name] = _converted(value, hints[name], f"{strategy}.{name}")
    return kind(**chosen)


def _converted(value: Any, hint: Any, where: str) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        words = typing.get_args(hint)
        if value not in words:
            raise unknown(f"value of {where}", value, words)
        return value
    kinds = [k for k in (typing.get_args(hint) or (hint,)) if k is not type(None)]
    if value is None and type(None) in typing.get_args(hint):
        return None
    kind = kinds[0]
    try:
        if kind is bool:
            if not isinstance(value, bool):
                raise ValueError
            return value
        converted = kind(value)
        if kind is int and float(value) != converted:
            raise ValueError
    except (TypeError, ValueError):
        raise BadInput(f"The option {where} is {value!r}; give {_NAMES.get(kind, kind.__name__)}.") from None
    return converted


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def require(condition: bool, message: str) -> None:
    """Refuse an option outside its range."""
    if not condition:
        raise BadInput(message)
