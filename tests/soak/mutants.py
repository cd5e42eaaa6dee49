"""The mutants of a module: one small change each, by the operators of cosmic-ray.

A place and a kind of change count once: `a * b` could become six other things, so one of them is drawn, or
arithmetic would make up most of a sample. These are no mutants, by rule, for no test could or should tell
them from the original:

- annotations, type aliases (`int | str`), `TYPE_CHECKING` blocks, `Protocol` classes, overloads and bodies
  that only raise `NotImplementedError`: mypy checks those;
- docstrings (cosmic-ray leaves text alone), `__all__`, `if __name__ == "__main__"`;
- what is written to a log, and the f-strings of what is raised;
- options that change no answer: `frozen`, `slots`, `kw_only` and `repr` of a dataclass, `strict` of a `zip`,
  what is passed to a compiler (`numba.njit(cache=True)`); decorators that only cache, compile or declare;
- how long a `sleep` waits between two looks;
- `==` as `is`, `is` as `==` and `|` as `^`, which are the same for most values; arithmetic as operators on
  bits, and comparisons of order in the place of `is`, which fail at once and would make any test look good;
- what does not compile, or compiles to the same syntax tree.

A line that no test executes is not among them: its mutants survive.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Place = tuple[int, int]
Span = tuple[Place, Place]

ARITHMETIC = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
BITS = {"RShift", "LShift", "BitOr", "BitAnd", "BitXor"}
ORDER = {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}
IDENTITY = {"Is", "IsNot"}
LOGGERS = {"log", "_log", "logger", "_logger", "logging"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DECLARING = {"override", "overload", "final", "abstractmethod", "runtime_checkable", "cache", "lru_cache"}
SAME_ANSWERS = {"frozen", "slots", "kw_only", "repr", "strict"}
NO_OPERATOR = set("()[]{},:.;=@") | {"->", ":="}
PLAIN_TYPES = {"int", "float", "str", "bool", "bytes", "list", "dict", "tuple", "set", "frozenset", "object"}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the `occurrence`-th place where cosmic-ray's `operator` fits the file."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column}:{self.operator}:{self.occurrence}"


def mutants_of(
    root: Path, file: str, rng: random.Random, compilers: frozenset[str] = frozenset()
) -> list[Mutant]:
    """The mutants of a file below the root: of each place and kind of change one, which the dice choose."""
    source = Source((root / file).read_text(encoding="utf-8"), compilers)
    kinds: dict[tuple[Place, str], list[Mutant]] = {}
    for operator, occurrence, start in _changes(source.text):
        if source.tells(operator, start):
            kind = operator.partition("_")[0]
            kinds.setdefault((start, kind), []).append(Mutant(file, *start, operator, occurrence))
    return [rng.choice(found) for _, found in sorted(kinds.items())]


def mutated(text: str, mutant: Mutant) -> str | None:
    """The changed text; None if it does not compile or means the same."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    changed: str | None = mutate_code(text, get_operator(mutant.operator)(), mutant.occurrence)
    if changed is None:
        return None
    try:
        tree = ast.parse(changed)
        compile(tree, mutant.file, "exec")
    except SyntaxError:
        return None
    return None if ast.dump(tree) == ast.dump(ast.parse(text)) else changed


def difference(before: str, after: str) -> str:
    """The changed lines, as `- was` and `+ is`."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    changed = [
        line for line in lines if line[:3] not in ("+++", "---") and line[0] in "+-" and line[1:].strip()
    ]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed)


def _changes(text: str) -> Iterator[tuple[str, int, Place]]:
    """Each change that an operator can make: its name, which one of its places, and where that is.

    The order of places is that of cosmic-ray, which finds the one to change by counting.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    classes = {name: get_operator(name) for name in operator_names()}
    operators = {name: made() for name, made in classes.items() if not made.arguments()}
    counts = dict.fromkeys(operators, 0)
    for node in ast_nodes(get_ast(text)):
        if node.type in ("name", "newline", "string", "fstring_string", "endmarker"):
            continue
        if node.type == "operator" and node.value in NO_OPERATOR:
            continue
        for name, operator in operators.items():
            for start, _ in operator.mutation_positions(node):
                yield name, counts[name], start
                counts[name] += 1


@dataclass(frozen=True)
class Source:
    """A module's text, what in it is not worth changing, and which lines belong together."""

    text: str
    compilers: frozenset[str] = field(default=frozenset())
    """Decorators of other modules that compile what they decorate."""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def tells(self, operator: str, place: Place) -> bool:
        """Whether the change could be told from the original, by the rules above."""
        name = operator.rpartition("/")[2]
        if any(start <= place < end for start, end in self._left_alone):
            return False
        if name.startswith("ReplaceBinaryOperator"):
            return _alike(name, ARITHMETIC, BITS) and place in self._binary
        if name.startswith("ReplaceComparisonOperator"):
            return _alike(name, ORDER, IDENTITY)
        if name == "RemoveDecorator":
            return place not in self._declarations
        return True

    def statement(self, line: int) -> range:
        """The lines of the statement around a line; of a compound one its head."""
        found = range(line, line + 1)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                body = getattr(node, "body", None)
                first = getattr(node, "lineno", None) or node.pattern.lineno  # type: ignore[attr-defined]
                last = body[0].lineno - 1 if body else node.end_lineno  # type: ignore[attr-defined]
                lines = range(first, max(first, last) + 1)
                if line in lines and (len(found) == 1 or len(lines) <= len(found)):
                    found = lines
        return found

    def function(self, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function whose body a line belongs to; None where the line runs at import."""
        found = None
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = node.body[0].lineno <= line <= (node.end_lineno or 0)
                if inside and (found is None or node.lineno > found.lineno):
                    found = node
        return found

    def _span(self, node: Any) -> Span:
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, byte: int) -> Place:
        # ast counts bytes, cosmic-ray characters.
        return line, len(self._lines[line - 1].encode()[:byte].decode())

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _left_alone(self) -> list[Span]:
        return [self._span(node) for node in ast.walk(self.tree) for node in _left_alone(node)]

    @cached_property
    def _binary(self) -> set[Place]:
        """Between two values; cosmic-ray also takes the `*` of a signature for an operator."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.BinOp | ast.AugAssign):
                left, right = (
                    (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
                )
                (_, start), (end, _) = self._span(left), self._span(right)
                for line in range(start[0], end[0] + 1):
                    low = start[1] if line == start[0] else 0
                    high = end[1] if line == end[0] else len(self._lines[line - 1])
                    found |= {(line, column) for column in range(low, high)}
        return found

    @cached_property
    def _declarations(self) -> set[Place]:
        compilers = DECLARING | compilers_in(self.tree) | self.compilers
        decorators = [one for node in ast.walk(self.tree) for one in getattr(node, "decorator_list", ())]
        # cosmic-ray's place is that of the `@`.
        return {
            (place[0], place[1] - 1)
            for one in decorators
            if _called(one) in compilers
            for place in [self._span(one)[0]]
        }


def compilers_in(tree: ast.Module) -> frozenset[str]:
    """Functions of a module that hand a function to numba: decorators of compiled code."""
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(one, ast.Call) and _called(one) in ("njit", "jit") for one in ast.walk(node))
    ) | {"njit", "jit", "intrinsic"}


def is_compiled(function: ast.AST | None, compilers: Iterable[str]) -> bool:
    """Whether a function runs as machine code, where no tracer sees which lines are executed."""
    return any(_called(one) in compilers for one in getattr(function, "decorator_list", ()))


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that are not worth changing."""
    yield from _declared(node)
    match node:
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            yield node
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=level)) if (
            name in LOGGERS and level in LEVELS
        ):
            yield node
        case ast.Call() if _called(node) in ("sleep", "njit", "jit", "cast", "TypeVar"):
            yield from [*node.args, *(word.value for word in node.keywords)]
        case ast.keyword(arg=name, value=ast.Constant()) if name in SAME_ANSWERS:
            yield node.value
        case ast.Raise(exc=ast.AST() as raised):
            yield from (part for part in ast.walk(raised) if isinstance(part, ast.JoinedStr))


def _declared(node: ast.AST) -> Iterator[ast.AST]:
    """What mypy checks, or nobody calls."""
    match node:
        case ast.arg(annotation=ast.AST() as said) | ast.AnnAssign(annotation=said):
            yield said
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if node.returns is not None:
                yield node.returns
            if _is_stub(node):
                yield node
        case ast.ClassDef(bases=bases) if any(_called(base) == "Protocol" for base in bases):
            yield node
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            yield node
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            yield node
        case ast.BinOp(op=ast.BitOr()) if _is_type(node):
            yield node


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    *before, last = node.body
    if any(not isinstance(one, ast.Expr) for one in before):
        return False
    if any(_called(one) == "overload" for one in node.decorator_list):
        return True
    return isinstance(last, ast.Raise) and last.exc is not None and _called(last.exc) == "NotImplementedError"


def _is_type(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=left, right=right, op=ast.BitOr()):
            return _is_type(left) and _is_type(right)
        case ast.Constant(value=None) | ast.Subscript():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in PLAIN_TYPES or (name[:1].isupper() and not name.isupper())
    return False


def _called(node: ast.AST) -> str:
    """The last name of a call, a decorator or a base class."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _called(inner)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _alike(operator: str, *families: set[str]) -> bool:
    _, was, becomes = operator.split("_")
    if {was, becomes} == {"BitOr", "BitXor"}:
        return False
    return any({was, becomes} <= family for family in families)
