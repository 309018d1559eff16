"""The house's style, as far as a script can judge it and ruff does not (CONTRIBUTING.md).

Limits stand where the sources are. Whoever gets below one lowers it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.sources import OWN, SHIPPED, name

LONG_LINES = 30  # of a function
LONG_SHARE = 0.01  # of the functions may be longer
ONE_WORD_SHARE = 0.3  # of the functions' names may be one word

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))


def test_few_functions_are_long() -> None:
    found = [(path, one) for path in SHIPPED for one in functions(path)]
    long = [
        f"{name(path)}:{one.lineno} {one.name}"
        for path, one in found
        if (one.end_lineno or one.lineno) - one.lineno >= LONG_LINES
    ]
    assert len(long) < LONG_SHARE * len(found), long


def test_names_of_functions_say_what_they_do_to_what() -> None:
    """`apply_push`, not `take`: one word is for what is universal, such as `close`."""
    names = [
        one.name.strip("_") for path in SHIPPED for one in functions(path) if not one.name.startswith("__")
    ]
    assert sum("_" not in one for one in names) <= ONE_WORD_SHARE * len(names)


def is_simultaneous(node: ast.Assign, targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """A swap, or a step of several variables at once: the values read what is assigned."""
    assigned = {ast.unparse(target) for target in targets}
    read = {ast.unparse(part) for value in values for part in ast.walk(value) if isinstance(part, ast.expr)}
    return bool(assigned & read)


def tuple_assignments(tree: ast.AST) -> list[int]:
    """Lines of `a, b = x, y`: two assignments in the place of one."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
            continue
        starred = any(isinstance(one, ast.Starred) for one in (*target.elts, *node.value.elts))
        if not starred and not is_simultaneous(node, target.elts, node.value.elts):
            found.append(node.lineno)
    return found


def test_one_statement_assigns_one_thing() -> None:
    found = [
        f"{name(path)}:{line}" for path in SHIPPED for line in tuple_assignments(ast.parse(path.read_text()))
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("a, b = x, y", 1),
        ("self.a, self.b = x, 0", 1),
        ("a, b = b, a", 0),
        ("a, b = f(b), g(a)", 0),
        ("a, b = f()", 0),
    ],
)
def test_a_tuple_assignment_is_found(source: str, count: int) -> None:
    assert len(tuple_assignments(ast.parse(source))) == count


def type_names(path: Path) -> Iterator[str]:
    """Classes, and aliases such as `Ids = NDArray[...]`."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            alias = node.targets[0].id
            if alias[:1].isupper() and not alias.isupper():
                yield alias


def test_no_type_has_the_name_of_another_one() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in OWN:
        if path.parent.name != "plain":  # each script there is the twin of one of examples/
            for one in type_names(path):
                where[one].append(name(path))
    twice = {one: paths for one, paths in where.items() if len(paths) > 1}
    assert twice == {}
