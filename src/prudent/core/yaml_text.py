"""YAML, read safely: no objects, and no key twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from prudent.core.errors import BadInput


class _Loader(yaml.SafeLoader):
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
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise BadInput(_complaint(error)) from error
    except (ValueError, RecursionError) as error:  # a date such as 2025-13-45, or brackets without end
        raise BadInput(f"This is not YAML that can be read ({error}); put odd values in quotes.") from error
    finally:
        if loader is not None:
            loader.dispose()


def _complaint(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    place = f"Line {mark.line + 1}, column {mark.column + 1} is" if mark is not None else "This is"
    return f"{place} not YAML ({problem}); mend it, and put texts with : or {{ in quotes."
