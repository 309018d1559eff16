"""A step of a rule that a user wrote as expressions: checked trees, evaluated in numpy, in place.

What depends on parameters, numbers and steps alone is computed in float64 and rounded to the table's dtype
where it meets its elements, so that an element gets the same value whatever lies beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scar.rule_expressions import PUSHED, STEP, VALUE, Expression, RuleProgram
from scar.tables import Rule
from scar_ps.core.block_arrays import RUN_ELEMENTS

Elements = (
    Any  # a float array, or a number; numpy's generic scalar type has no arithmetic for the type checker
)


def apply_program(
    rule: Rule,
    values: Elements,
    pushed: Elements,
    slots: Mapping[str, Elements],
    counts: Any,
    row_elements: int,
) -> None:
    """One step of a rule with a program on ``values`` and ``slots``, contiguous arrays shaped as ``pushed``.

    ``counts``: steps of each block, an int or an array that broadcasts. ``row_elements``: of a
    row of the table, in elements.
    """
    program = rule.program
    assert program is not None
    steps = counts if isinstance(counts, int) else np.broadcast_to(counts, values.shape).reshape(-1)
    stored = {VALUE: values, **slots}
    flat = {name: array.reshape(-1) for name, array in stored.items()} | {PUSHED: pushed.reshape(-1)}
    row = row_elements if program.works_by_row else 1
    length = max(1, RUN_ELEMENTS // row) * row  # a block of any size takes bounded memory
    for start in range(0, values.size, length):
        piece = {name: array[start : start + length] for name, array in flat.items()}
        numbers: dict[str, Elements] = {name: np.float64(number) for name, number in rule.parameters.items()}
        numbers[STEP] = np.asarray(steps if isinstance(steps, int) else steps[start : start + length], float)
        _run(program, piece, numbers, {name: piece[name] for name in stored}, row)


def _run(
    program: RuleProgram,
    elements: dict[str, Elements],
    numbers: dict[str, Elements],
    stored: Mapping[str, Elements],
    row: int,
) -> None:
    for target, expression in program.steps:
        result, is_number = _evaluate(expression, elements, numbers, elements[VALUE].dtype, row)
        if target in stored:
            stored[target][...] = result
        elif is_number:
            numbers[target] = result
            elements.pop(target, None)
        else:
            elements[target] = result.copy() if expression.name else result  # what it names may change
            numbers.pop(target, None)


def _evaluate(
    expression: Expression,
    elements: Mapping[str, Elements],
    numbers: Mapping[str, Elements],
    dtype: Any,
    row: int,
) -> tuple[Elements, bool]:
    """Its value, and whether no element of the table is in it."""
    if expression.name:
        is_number = expression.name in numbers
        return (numbers if is_number else elements)[expression.name], is_number
    if not expression.operation:
        return np.float64(expression.number), True
    found = [_evaluate(argument, elements, numbers, dtype, row) for argument in expression.arguments]
    is_number = all(one for _, one in found)
    if expression.operation == "norm":
        return _row_norm(np.broadcast_to(found[0][0].astype(dtype), elements[VALUE].shape), row), False
    operands = [value.astype(dtype) if one and not is_number else value for value, one in found]
    result = _OPERATIONS[expression.operation](*operands)
    if result.dtype.kind == "b":  # so that a comparison is a number, 0 or 1
        result = result.astype(float if is_number else dtype)
    return result, is_number


def _row_norm(values: Elements, row: int) -> Elements:
    """Of each row, for each of its elements."""
    rows = values.reshape(-1, row)
    return np.repeat(np.sqrt(np.sum(rows * rows, axis=1)), row)


def _where(condition: Elements, chosen: Elements, other: Elements) -> Elements:
    return np.where(condition != 0, chosen, other)


def _clip(value: Elements, low: Elements, high: Elements) -> Elements:
    return np.minimum(np.maximum(value, low), high)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "negative": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sign": np.sign,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": _where,
    "clip": _clip,
}
