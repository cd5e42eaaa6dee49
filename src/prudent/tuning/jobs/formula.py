"""A number worked out from a configuration: `0.05 * workers + 0.1`, read safely, never executed as code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.space import Space
from prudent.core.values import is_number

_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": math.ceil}


@dataclass(frozen=True)
class Formula:
    """Arithmetic over the parameters of a space and the facts that they know (`cluster.count`).

    >>> formula = Formula.parse("0.05 * max(workers, 2)", Space.parse({"workers": [1, 2, 4]}))
    >>> formula({"workers": 1})
    0.1
    >>> Formula.parse("0.05 * worker", Space.parse({"workers": [1, 2, 4]}))
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: In "0.05 * worker": Unknown name "worker". Did you mean "workers"? \
Choose one of: workers.
    """

    text: str
    _space: Space = field(repr=False, compare=False)
    _tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, space: Space) -> Formula:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise BadInput(
                f'The formula "{text}" cannot be read; write arithmetic such as "0.05 * workers".'
            ) from None
        _check(tree, text, _names(space))
        return cls(text.strip(), space, tree)

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        facts = self._facts(configuration)
        try:
            value = _value(self._tree, facts)
            if not is_number(value) or not math.isfinite(value):
                raise ValueError(f"the result is {value!r}")
        except (ArithmeticError, TypeError, ValueError) as error:
            raise BadInput(
                f'The formula "{self.text}" has no value at {dict(configuration)} ({error}); '
                "calculate with numbers, and exclude that case."
            ) from error
        return float(value)

    def _facts(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        facts = dict(configuration)
        for parameter in self._space.parameters:
            if hasattr(parameter, "facts") and parameter.name in configuration:
                known = parameter.facts(configuration[parameter.name]).items()
                facts.update({f"{parameter.name}.{fact}": value for fact, value in known})
        return facts


def _names(space: Space) -> list[str]:
    facts = [f"{p.name}.{fact}" for p in space.parameters for fact in getattr(p, "fact_names", ())]
    return [*space.names, *facts]


def _check(node: ast.expr, text: str, names: list[str]) -> None:
    """Refuse, before any run, what could not be worked out."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        if ast.unparse(node) not in names:
            raise BadInput(f'In "{text}": {unknown("name", ast.unparse(node), names)}')
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords and node.args:
        if node.func.id not in _FUNCTIONS:
            raise BadInput(f'In "{text}": {unknown("function", node.func.id, _FUNCTIONS)}')
        for argument in node.args:
            _check(argument, text, names)
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in _OPERATIONS:
        for side in (node.left, node.right) if isinstance(node, ast.BinOp) else (node.operand,):
            _check(side, text, names)
    elif not (isinstance(node, ast.Constant) and is_number(node.value)):
        raise BadInput(
            f'In "{text}": {ast.unparse(node)} is no arithmetic; use numbers, names, + - * / // %, '
            "min, max and ceil."
        )


def _value(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_number(node.left, facts), _number(node.right, facts))
    if isinstance(node, ast.UnaryOp):
        return _OPERATIONS[type(node.op)](_number(node.operand, facts))
    if isinstance(node, ast.Call):
        function = _FUNCTIONS[ast.unparse(node.func)]
        numbers = [_number(argument, facts) for argument in node.args]
        return function(numbers[0]) if len(numbers) == 1 and function is math.ceil else function(numbers)
    return facts[ast.unparse(node)]


def _number(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    """A side of a calculation; text times a number would repeat the text."""
    value = _value(node, facts)
    if not is_number(value):
        raise TypeError(f"{ast.unparse(node)} is {value!r}")
    return value
