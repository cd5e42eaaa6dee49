"""Which combinations are possible: a rule in words, read safely and never executed as code."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prudent.core.errors import BadInput, did_you_mean

Facts: TypeAlias = Mapping[str, Any]
_Evaluate: TypeAlias = Callable[[Facts], Any]

_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda left, right: left in right),
    ast.NotIn: ("not in", lambda left, right: left not in right),
}


def _power(base: Any, exponent: Any) -> Any:
    # In floats: 9 ** 9 ** 9 as an integer would fill the memory.
    return float(base) ** float(exponent)


_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}


@dataclass(frozen=True)
class Rule:
    """A condition on a configuration: comparisons, arithmetic, `and`, `or`, `not`, `in`, `a if b else c`.

    >>> rule = Rule.parse("workers * vcpus <= 64 and not (vm == 't2.small' and workers > 8)")
    >>> rule({"workers": 4, "vcpus": 8, "vm": "t2.small"})
    True
    >>> sorted(rule.names)
    ['vcpus', 'vm', 'workers']
    """

    text: str
    names: frozenset[str] = field(compare=False)
    comparisons: tuple[tuple[str, str], ...] = field(compare=False, repr=False)
    """Every (name, text) that the rule compares, so that a space can find a misspelt value."""
    _evaluate: _Evaluate = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str) -> Rule:
        """The rule that a text says; BadInput names the place that is wrong."""
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f'The rule {text!r} is empty; write a condition such as "workers <= 8".')
        try:
            return _RuleCompiler(text).rule(_tree(text), text)
        except RecursionError:
            raise BadInput("The rule is nested too deeply; write it with fewer brackets and signs.") from None

    def __call__(self, configuration: Facts) -> bool:
        return bool(self._evaluate(configuration))

    @property
    def parts(self) -> tuple[Rule, ...]:
        """The conditions that `and` joins: each can exclude a combination before the others can be judged."""
        body = _tree(self.text)
        if not (isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And)):
            return (self,)
        return tuple(_RuleCompiler(self.text).rule(part, ast.unparse(part)) for part in body.values)

    def bind(self, names: Collection[str], check: Callable[[str, str], None] | None = None) -> Rule:
        """This rule, if all its names exist and `check(name, text)` accepts what they are compared with."""
        for name in sorted(self.names - set(names)):
            shown = ", ".join(names)
            raise BadInput(
                f'Unknown name "{name}" in the rule "{self.text}".{did_you_mean(name, names)} '
                f"Write text values in quotes; the names are: {shown}."
            )
        for name, text in self.comparisons:
            if check is not None:
                check(name, text)
        return self

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[str], Rule], tuple[str]]:
        return Rule.parse, (self.text,)


def _tree(text: str) -> ast.expr:
    flat = " ".join(text.split("\n")).strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's remarks on style are not for the rule's author
            return ast.parse(flat, mode="eval").body
    except (SyntaxError, ValueError, MemoryError) as error:
        column = getattr(error, "offset", None) or len(flat) + 1
        raise BadInput(
            f'The rule "{text}" cannot be read at character {column}; write conditions such as '
            "\"workers <= 8 and vm != 't2.small'\", with == for equality and text in quotes."
        ) from None


class _RuleCompiler:
    """Turns the allowed kinds of syntax into functions, once, so that a rule is quick to ask."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self.comparisons: list[tuple[str, str]] = []

    def rule(self, body: ast.expr, text: str) -> Rule:
        evaluate = self.read(body)
        return Rule(text, frozenset(self.names), tuple(self.comparisons), evaluate)

    def read(self, node: ast.expr) -> _Evaluate:
        reader = self._READERS.get(type(node))
        if reader is None:
            raise self._wrong(node, "is not allowed in a rule; use comparisons, arithmetic, and, or, not, in")
        return reader(self, node)

    def _wrong(self, node: ast.AST, what: str) -> BadInput:
        column = getattr(node, "col_offset", 0) + 1
        return BadInput(f'In the rule "{self.text}", character {column}: {ast.unparse(node)} {what}.')

    def _name(self, node: Any) -> _Evaluate:
        name = ast.unparse(node)
        if not all(part.isidentifier() for part in name.split(".")):
            raise self._wrong(node, "is not a name; use the name of a parameter")
        self.names.add(name)
        wrong = self._wrong

        def look_up(facts: Facts) -> Any:
            try:
                return facts[name]
            except KeyError:
                hint = did_you_mean(name, facts) or f" The names are: {', '.join(facts)}."
                raise wrong(
                    node, f"is not in the configuration; name a parameter of it.{hint}"[:-1]
                ) from None

        return look_up

    def _constant(self, node: Any) -> _Evaluate:
        value = node.value
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise self._wrong(node, "is not a value; use a number, text, True, False or None")
        return lambda facts: value

    def _sequence(self, node: Any) -> _Evaluate:
        parts = [self.read(part) for part in node.elts]
        return lambda facts: [part(facts) for part in parts]

    def _bool(self, node: Any) -> _Evaluate:
        parts = [self.read(part) for part in node.values]
        if isinstance(node.op, ast.And):
            return lambda facts: all(part(facts) for part in parts)
        return lambda facts: any(part(facts) for part in parts)

    def _unary(self, node: Any) -> _Evaluate:
        inner = self.read(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda facts: not inner(facts)
        if isinstance(node.op, ast.USub):
            return self._arithmetic(node, lambda left, right: left - right, lambda facts: 0, inner)
        if isinstance(node.op, ast.UAdd):
            return self._arithmetic(node, operator.add, lambda facts: 0, inner)
        raise self._wrong(node, "is not allowed in a rule; use not")

    def _binary(self, node: Any) -> _Evaluate:
        if type(node.op) not in _ARITHMETIC:
            raise self._wrong(node, "is not allowed in a rule; use and, or, + - * / // % **")
        _, operation = _ARITHMETIC[type(node.op)]
        return self._arithmetic(node, operation, self.read(node.left), self.read(node.right))

    def _arithmetic(
        self, node: ast.AST, operation: Callable[[Any, Any], Any], left: _Evaluate, right: _Evaluate
    ) -> _Evaluate:
        wrong = self._wrong

        def calculate(facts: Facts) -> Any:
            a, b = left(facts), right(facts)
            if not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
                raise wrong(node, f"calculates with {a!r} and {b!r}; calculate with numbers only")
            try:
                return operation(a, b)
            except (ArithmeticError, ValueError) as error:
                raise wrong(node, f"fails ({error}) for {a!r} and {b!r}; exclude that case first") from None

        return calculate

    def _compare(self, node: Any) -> _Evaluate:
        sides = [node.left, *node.comparators]
        terms = [self.read(side) for side in sides]
        if any(type(op) not in _COMPARE for op in node.ops):
            raise self._wrong(node, "is not allowed in a rule; compare with ==, !=, <, <=, >, >= or in")
        tests = [_COMPARE[type(op)] for op in node.ops]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            self._note(left, op, right)
        wrong = self._wrong

        def compare(facts: Facts) -> bool:
            left = terms[0](facts)
            for (symbol, test), term in zip(tests, terms[1:], strict=True):
                right = term(facts)
                try:
                    if not test(left, right):
                        return False
                except TypeError:
                    what = f"asks {left!r} {symbol} {right!r}, which has no answer; compare like with like"
                    raise wrong(node, what) from None
                left = right
            return True

        return compare

    def _note(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> None:
        """Remember the texts that a name is compared with."""
        if isinstance(op, (ast.In, ast.NotIn)) and not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            return
        if not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
            return
        if isinstance(left, ast.Constant):
            left, right = right, left
        if isinstance(left, (ast.Name, ast.Attribute)):
            texts = right.elts if isinstance(right, (ast.List, ast.Tuple, ast.Set)) else [right]
            for text in texts:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    self.comparisons.append((ast.unparse(left), text.value))

    def _choice(self, node: Any) -> _Evaluate:
        test, yes, no = self.read(node.test), self.read(node.body), self.read(node.orelse)
        return lambda facts: yes(facts) if test(facts) else no(facts)

    _READERS: dict[type[ast.expr], Callable[[_RuleCompiler, Any], _Evaluate]] = {  # noqa: RUF012
        ast.Name: _name,
        ast.Attribute: _name,
        ast.Constant: _constant,
        ast.List: _sequence,
        ast.Tuple: _sequence,
        ast.Set: _sequence,
        ast.BoolOp: _bool,
        ast.UnaryOp: _unary,
        ast.BinOp: _binary,
        ast.Compare: _compare,
        ast.IfExp: _choice,
    }
