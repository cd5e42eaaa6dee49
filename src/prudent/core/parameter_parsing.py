"""Parameters from what a file says: a compact YAML form, or the column of a table."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from prudent.core.errors import BadInput, unknown
from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter, Value, is_number, plain
from prudent.core.ranges import Integer, Real

ParameterFactory: TypeAlias = Callable[[str, Any], Parameter]
"""Makes a parameter from its name and from what stands under the kind's key."""

_OPTIONS = {
    "values": {"ordered", "log"},
    "integer": {"log", "step"},
    "real": {"log"},
    "log": set[str](),
    "constant": set[str](),
}
# YAML 1.1 reads 1e-5 (no dot) as text; nobody who writes it means text.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def infer_parameter(name: str, values: Iterable[Value]) -> Parameter:
    """The parameter that a column of a table shows: numbers are ordered, other values are categories.

    >>> infer_parameter("batch", [16, 256, 16])
    Ordinal(name='batch', values=(16, 256), log=True)
    >>> infer_parameter("vm", ["m5.large", "c5.large", "m5.large"])
    Categorical(name='vm', values=('m5.large', 'c5.large'))
    >>> infer_parameter("servers", [1, 1])
    Constant(name='servers', value=1)
    """
    distinct = list(dict.fromkeys(plain(name, value) for value in values))
    if len(distinct) == 1:
        return Constant(name, distinct[0])
    return _from_list(name, distinct)


def parse_parameter(name: str, spec: Any, kinds: Mapping[str, ParameterFactory] | None = None) -> Parameter:
    """One entry of a space; the forms are those of `Space.parse`."""
    if not isinstance(name, str):
        raise BadInput(f"The parameter name {name!r} is not text; put it in quotes.")
    if isinstance(spec, Mapping):
        return _from_mapping(name, spec, kinds or {})
    if isinstance(spec, (list, tuple, range)):
        return _from_list(name, [_read(value) for value in spec])
    return Constant(name, _read(spec))


def prefers_log(values: Sequence[float]) -> bool:
    """Whether numbers spread over a decade or more, and more evenly by ratio than by difference.

    >>> prefers_log([1, 10, 100]), prefers_log([8, 16, 32, 48, 64, 80, 96]), prefers_log([1, 2, 4])
    (True, False, False)
    """
    ordered = sorted(values)
    if ordered[0] <= 0 or ordered[-1] / ordered[0] < 10:
        return False
    return _unevenness([math.log(value) for value in ordered]) <= _unevenness(ordered)


def _unevenness(ordered: Sequence[float]) -> float:
    gaps = [after - before for before, after in pairwise(ordered)]
    return statistics.pstdev(gaps) / statistics.fmean(gaps)


def _from_list(name: str, values: list[Value]) -> Parameter:
    if values and all(is_number(plain(name, value)) for value in values):
        return Ordinal(name, values, log=len(set(values)) > 1 and prefers_log(values))
    return Categorical(name, values)


def _read(value: Any) -> Any:
    if isinstance(value, str) and _EXPONENT.fullmatch(value.strip()):
        return float(value)
    return [_read(part) for part in value] if isinstance(value, (list, tuple)) else value


def _from_mapping(name: str, spec: Mapping[Any, Any], kinds: Mapping[str, ParameterFactory]) -> Parameter:
    kind = _kind(name, spec, kinds)
    options = {str(key): value for key, value in spec.items() if key != kind}
    if kind in kinds:
        for option in options:
            raise BadInput(f'Option "{option}" stands beside {kind} in "{name}"; move it under {kind}.')
        return kinds[kind](name, spec[kind])
    for option in options:
        if option not in _OPTIONS[kind]:
            raise unknown(f'option of "{name}"', option, sorted(_OPTIONS[kind]) or ["(none)"])
    for option in {"log", "ordered"} & set(options):
        if not isinstance(options[option], bool):
            raise BadInput(f'The option {option} of "{name}" is {options[option]!r}; write true or false.')
    if kind == "constant":
        return Constant(name, _read(spec[kind]))
    if kind == "values":
        return _from_values(name, spec[kind], options)
    low, high = _bounds(name, kind, spec[kind])
    if kind == "integer":
        return Integer(name, low, high, log=options.get("log", False), step=options.get("step", 1))
    return Real(name, low, high, log=kind == "log" or options.get("log", False))


def _kind(name: str, spec: Mapping[Any, Any], kinds: Mapping[str, ParameterFactory]) -> str:
    # "log" is both a kind and an option, so it counts as the kind only when it stands alone.
    known = [*kinds, *(kind for kind in _OPTIONS if kind != "log")]
    found = [kind for kind in known if kind in spec]
    if not found and isinstance(spec.get("log"), (list, tuple)):
        return "log"
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f'Parameter "{name}" is both {found[0]} and {found[1]}; keep one of them.')
    said = next((key for key in spec if key not in ("log", "ordered", "step")), None)
    if said is None:
        raise BadInput(f'Parameter "{name}" does not say its values; write for example {{integer: [1, 10]}}.')
    raise unknown(f'kind of parameter "{name}"', said, [*known, "log"])


def _from_values(name: str, values: Any, options: Mapping[str, Any]) -> Parameter:
    if not isinstance(values, (list, tuple, range)):
        raise BadInput(f'The values of "{name}" are {values!r}; give a list such as [a, b].')
    listed = [_read(value) for value in values]
    inferred = _from_list(name, listed)
    if options.get("ordered", isinstance(inferred, Ordinal)):
        guess = isinstance(inferred, Ordinal) and inferred.log
        return Ordinal(name, listed, log=options.get("log", guess))
    if options.get("log"):
        raise BadInput(f'"{name}" has no order, so no log scale; drop log, or list numbers.')
    return Categorical(name, listed)


def _bounds(name: str, kind: str, spec: Any) -> tuple[Any, Any]:
    if not isinstance(spec, (list, tuple)) or len(spec) != 2:
        raise BadInput(f'The bounds of "{name}" are {spec!r}; write {{{kind}: [low, high]}}.')
    low, high = (_read(bound) for bound in spec)
    return low, high
