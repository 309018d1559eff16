"""Update rules that users write as expressions: text parsed into a small checked tree, never run as code.

    scar.rule("w - lr * g", project="maximum(w, 0)", lr=0.1)  # not below 0
    scar.rule({"n": "n + g * g", "w": "w - lr * g / (sqrt(n) + eps)"}, slots=["n"], lr=0.1, eps=1e-8)

It travels with the job as text and is checked again by everybody who reads it. Every operation works element
by element, so a step costs at most :data:`MAX_NODES` passes over the values.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

from scar.errors import ConfigError, use_one_of

VALUE = "w"  # the table's elements
PUSHED = "g"  # what was pushed for them
STEP = "step"  # steps that the block has taken, this one included
GIVEN = (VALUE, PUSHED, STEP)

# name -> how many arguments
FUNCTIONS = {
    "abs": 1,
    "sqrt": 1,
    "exp": 1,
    "log": 1,
    "sign": 1,
    "minimum": 2,
    "maximum": 2,
    "where": 3,
    "clip": 3,
    "norm": 1,
}
_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
MAX_TEXT = 1000  # characters of an expression
MAX_NODES = 128  # names, numbers and operations of a rule
MAX_DEPTH = 16  # each level holds one array while a step is taken
MAX_ASSIGNMENTS = 16
MAX_SLOTS = 8


@dataclass(frozen=True, slots=True)
class Expression:
    """A number (no ``operation``, no ``name``), a name, or an operation on its ``arguments``."""

    operation: str = ""
    arguments: tuple[Expression, ...] = ()
    name: str = ""
    number: float = 0.0

    @property
    def names(self) -> frozenset[str]:
        found = frozenset([self.name] if self.name else [])
        return found.union(*(argument.names for argument in self.arguments))

    @property
    def operations(self) -> frozenset[str]:
        found = frozenset([self.operation] if self.operation else [])
        return found.union(*(argument.operations for argument in self.arguments))

    @property
    def nodes(self) -> int:
        return 1 + sum(argument.nodes for argument in self.arguments)


@dataclass(frozen=True)
class RuleProgram:
    """What a rule computes: ``assignments`` (name, expression) one after the other. Those to ``w`` and to
    ``slots`` stay, those to other names last for the step. A slot begins at 0.

    Raises :class:`ConfigError` for what is no such program.
    """

    assignments: tuple[tuple[str, str], ...]
    slots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.assignments) <= MAX_ASSIGNMENTS or len(self.slots) > MAX_SLOTS:
            raise ConfigError(
                f"a rule has {len(self.assignments)} expressions and {len(self.slots)} slots",
                f"It has 1 to {MAX_ASSIGNMENTS} and at most {MAX_SLOTS}",
            )
        targets = [name for name, _ in self.assignments]
        for name in (*targets, *self.slots):
            _check_name(name)
        if reserved := {PUSHED, STEP}.intersection(targets) or {VALUE}.intersection(self.slots):
            raise ConfigError(f"a rule assigns to {min(reserved)!r}", "Choose another name")
        if VALUE not in targets:
            raise ConfigError(
                "a rule does not say what becomes of 'w'", 'Give it an expression, as in {"w": "w - lr * g"}'
            )
        if len(set(self.slots)) < len(self.slots) or set(self.slots).difference(targets):
            raise ConfigError(
                f"slots {', '.join(map(repr, self.slots))} of a rule repeat or are never assigned to",
                "Name each once, with an expression for it",
            )
        if (nodes := sum(expression.nodes for _, expression in self.steps)) > MAX_NODES:
            raise ConfigError(f"a rule has {nodes} names and operations, more than {MAX_NODES}", "Shorten it")

    def check_names(self, parameters: Collection[str]) -> None:
        """Every name is known when it is read, and no parameter hides another name."""
        targets = {name for name, _ in self.assignments}
        for name in parameters:
            _check_name(name)
            if name in GIVEN or name in targets:
                raise ConfigError(f"a rule has a parameter {name!r}, which it assigns to or is given")
        known = {*GIVEN, *self.slots, *parameters}
        for target, expression in self.steps:
            if unknown := sorted(expression.names - known):
                raise ConfigError(
                    f"the expression of {target!r} reads {unknown[0]!r}, which is unknown there",
                    use_one_of(unknown[0], sorted(known)),
                )
            known.add(target)
        if unread := sorted(set(parameters).difference(*(one.names for _, one in self.steps))):
            raise ConfigError(f"no expression of the rule reads its parameter {unread[0]!r}")

    @cached_property
    def steps(self) -> tuple[tuple[str, Expression], ...]:
        """The assignments, parsed."""
        return tuple((name, parse_expression(text)) for name, text in self.assignments)

    @cached_property
    def counts_steps(self) -> bool:
        return any(STEP in expression.names for _, expression in self.steps)

    @cached_property
    def works_by_row(self) -> bool:
        """Whether an element's step needs the others of its row."""
        return any("norm" in expression.operations for _, expression in self.steps)

    def describe(self) -> str:
        """In a line, for people."""
        return "; ".join(f"{name} = {text}" for name, text in self.assignments)


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Expression:
    """The tree of an expression. Raises :class:`ConfigError` for anything but such arithmetic."""
    if len(text) > MAX_TEXT:
        raise ConfigError(f"an expression has {len(text)} characters, more than {MAX_TEXT}", "Shorten it")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"{text!r} is no expression: {error}", "Write one as in Python: w - lr * g"
        ) from error
    return _read(tree.body, MAX_DEPTH)


def _read(node: ast.expr, depth: int) -> Expression:
    if depth == 0:
        raise ConfigError(f"an expression is nested deeper than {MAX_DEPTH}", "Name a part of it")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _read_number(value)
        case ast.Name(id=name):
            return Expression(name=name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Expression("negative", (_read(operand, depth - 1),))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            return Expression(_BINARY[type(operator)], (_read(left, depth - 1), _read(right, depth - 1)))
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _BINARY:
            return Expression(_BINARY[type(operator)], (_read(left, depth - 1), _read(right, depth - 1)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _read_call(name, arguments, depth)
    raise ConfigError(
        f"a rule cannot contain {ast.unparse(node)[:60]!r}",
        f"Use numbers, names, + - * / **, one comparison, and {', '.join(FUNCTIONS)}",
    )


def _read_number(value: float) -> Expression:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigError("a number of a rule is too large for float64")
    return Expression(number=number)


def _read_call(name: str, arguments: list[ast.expr], depth: int) -> Expression:
    if name not in FUNCTIONS:
        raise ConfigError(f"a rule has no function {name[:60]!r}", use_one_of(name, FUNCTIONS))
    if len(arguments) != FUNCTIONS[name]:
        raise ConfigError(f"{name} of a rule has {FUNCTIONS[name]} arguments, not {len(arguments)}")
    return Expression(name, tuple(_read(argument, depth - 1) for argument in arguments))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", name) or name in FUNCTIONS:
        raise ConfigError(
            f"{name[:60]!r} is no name of a rule",
            "Use a letter, then up to 31 letters, digits or '_', and not the name of a function",
        )
