"""YAML, read safely: no objects, no key twice, and no few lines that stand for millions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import yaml

from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from yaml import SafeLoader as _Base
else:
    # The one in C is ten times as fast; without its library PyYAML has only the other.
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MOST_VALUES = 100_000
_DEEPEST = 200
"""So many lists and mappings may lie in one another: where there are too many, the reader in C crashes."""


class _Loader(_Base):
    """YAML keeps the last of two equal keys without a word; a second budget must not go unnoticed."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise BadInput(
                        f'The key "{key.value}" stands in line {seen[key.value]} and again in line {line}; '
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
    prudent.core.errors.BadInput: The key "budget" stands in line 1 and again in line 2; keep one.
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
    return f"{place} not YAML ({problem}); mend it, and put texts with : or {{ in quotes."
