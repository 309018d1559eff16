"""What a push does to values: one vectorised step of a table's rule, in place.

Arrays are flat (elements of several blocks side by side) or matrices with a block per row. They are small
enough for temporaries to stay in the cache; ``pushed`` is not written to: it lies in the message that brought
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scar.blocks import Array, Layout, Positions
from scar.tables import Rule
from scar_ps.core.block_arrays import RUN_ELEMENTS, OnProgress, StoreRows, split_runs
from scar_ps.core.block_store import BlockStore
from scar_ps.core.rule_evaluation import apply_program
from scar_ps.core.rule_kernels import find_kernel
from scar_ps.core.segments import Segments, find_pushed_rows

# of a step on blocks or rows that are copied out and back: of fewer numpy's calls cost more than its arrays
# gain by staying in the L2 cache
SCATTERED_ELEMENTS = 1 << 16
COMPILED_ELEMENTS = 1 << 21  # of a step in C: enough for several processors
Real = Any  # a float array; numpy's generic scalar type has no arithmetic for the type checker
# steps taken by each block, this one included: one int, or an array that broadcasts against the values
StepCounts = Any
RuleParameters = Mapping[str, float]


def apply_push(
    store: BlockStore,
    positions: Positions | None,
    pushed: Array | Segments,
    progress: OnProgress,
    rule: Rule | None = None,
    rows: StoreRows | None = None,
) -> None:
    """One step of a rule (None: the table's, as it is declared) on these blocks (None: all).

    ``pushed`` is packed and has the table's dtype. ``rows``: the step is of these rows of the store alone,
    which lie in the blocks; not with a rule that counts steps, unless a block is a row. The store's lock is
    held for each run of blocks or rows.
    """
    rule = rule or store.table.rule
    by_row = rows is not None or bool(rule.row_slots)
    if store.places is not None and not by_row:
        blocks = np.arange(len(store)) if positions is None else positions
        cut = store.places.find_cut(blocks)
        if cut < len(blocks):
            _apply_in_two(store, blocks, cut, pushed, progress, rule)
            return
    store.note_change(positions, rows)
    step = _PushStep(store, rule, by_row)
    at = positions if rows is None else rows.astype(np.int64, copy=False)
    if by_row and rows is None and positions is not None:
        at = store.rows_of(positions).astype(np.int64, copy=False)
    layout = step.packed if at is None else step.packed.take(at)
    first = 0
    if at is not None and len(at) and int(at[-1] - at[0]) == len(at) - 1:
        first, at = int(at[0]), None  # neighbours: no need to copy them out and back
    with np.errstate(all="ignore"):
        for start, stop in split_runs(layout, step.elements_at_once(at is None)):
            span = slice(layout.find_start(start), layout.find_start(stop))
            run = slice(first + start, first + stop) if at is None else at[start:stop]
            if store.before_change:
                changing = np.arange(run.start, run.stop) if isinstance(run, slice) else run
                announce_change(store, changing, by_row)
            with store.lock:
                step.apply(run, pushed, span)
            progress()


def _apply_in_two(
    store: BlockStore,
    blocks: Positions,
    cut: int,
    pushed: Array | Segments,
    progress: OnProgress,
    rule: Rule,
) -> None:
    """The block behind ``cut`` is shorter than its place: it is taken by rows."""
    size = store.layout.count_elements(blocks[:cut])
    if cut:
        apply_push(store, blocks[:cut], pushed[:size], progress, rule)
    last = blocks[cut:]
    apply_push(store, last, pushed[size:], progress, rule, store.rows_of(last))


class _PushStep:
    """A step of a rule on blocks, or on rows, of a store. ``packed``: the layout of all of them."""

    def __init__(self, store: BlockStore, rule: Rule, by_row: bool) -> None:
        self._store = store
        self._rule = rule
        self._by_row = by_row
        self.packed = store.row_layout if by_row else store.layout
        places = store.places
        width = store.table.row_elements * (1 if by_row or places is None else places.rows)
        # of everything that there is in memory
        self._layout = self.packed if places is None else Layout.even(len(store.values) // width, width)
        self._kernel = find_kernel(store, rule, self._layout)

    def elements_at_once(self, neighbours: bool) -> int:
        if self._kernel is not None:
            return COMPILED_ELEMENTS
        return RUN_ELEMENTS if neighbours and self._store.places is None else SCATTERED_ELEMENTS

    def apply(self, run: slice | Positions, pushed: Array | Segments, span: slice) -> None:
        """On these blocks or rows of the store. ``span``: of what is pushed to them."""
        places = self._store.places
        at = run
        if places is not None:
            at = np.arange(run.start, run.stop) if isinstance(run, slice) else run
            at = places.find_rows(at) if self._by_row else places.at[at]
        if self._kernel is not None:
            self._kernel.apply(at, find_pushed_rows(pushed, span, self._kernel.width))
            return
        values = pushed[span]
        counts = _count_steps(self._store, run) if self._rule.counts_steps else 1
        if isinstance(at, slice):
            _apply_run(self._store, self._rule, self._layout, at, values, counts)
        else:
            _apply_scattered(self._store, self._rule, self._layout, at, values, counts)


def announce_change(store: BlockStore, run: Positions, by_row: bool) -> None:
    """These (ascending) blocks or rows of the store are about to change."""
    for observer in store.before_change:
        if by_row:
            observer.preserve_rows(run)
        else:
            observer.preserve_blocks(run)


def _apply_run(
    store: BlockStore, rule: Rule, layout: Layout, run: slice, pushed: Array, counts: StepCounts
) -> None:
    """On neighbours in ``layout``: blocks, or rows."""
    span = slice(layout.find_start(run.start), layout.find_start(run.stop))
    row_slots = store.table.rule.row_slots
    slots = {
        name: slot[run, None] if name in row_slots else _as_rows(layout, slot[span])
        for name, slot in _rule_slots(store)
    }
    values = _as_rows(layout, store.values[span])
    apply_step(rule, values, _as_rows(layout, pushed), slots, counts, store.table.row_elements)


def _apply_scattered(
    store: BlockStore, rule: Rule, layout: Layout, at: Positions, pushed: Array, counts: StepCounts
) -> None:
    row_slots = store.table.rule.row_slots
    values = layout.gather(store.values, at)
    slots = {
        name: slot[at] if name in row_slots else layout.gather(slot, at) for name, slot in _rule_slots(store)
    }
    shaped = {
        name: slot[:, None] if name in row_slots else _as_rows(layout, slot) for name, slot in slots.items()
    }
    row = store.table.row_elements
    apply_step(rule, _as_rows(layout, values), _as_rows(layout, pushed), shaped, counts, row)
    layout.scatter(store.values, at, values)
    for name, slot in slots.items():
        if name in row_slots:
            store.slots[name][at] = slot
        else:
            layout.scatter(store.slots[name], at, slot)


def _rule_slots(store: BlockStore) -> list[tuple[str, Array]]:
    return [(name, store.slots[name]) for name in store.table.rule.slots]


def _as_rows(layout: Layout, flat: Array) -> Array:
    return flat.reshape(-1, layout.width) if layout.width else flat


def _count_steps(store: BlockStore, where: slice | Positions) -> StepCounts:
    store.steps[where] += 1
    counts = store.steps[where]
    if int(counts.min()) == int(counts.max()):
        return int(counts[0])
    return counts[:, None] if store.layout.width else np.repeat(counts, store.layout.sizes[where])


# --- the rules
# ------------------------------------------------------------------------------------------------------------


def apply_step(
    rule: Rule,
    values: Array,
    pushed: Array,
    slots: Mapping[str, Array],
    counts: StepCounts = 1,
    row_elements: int = 1,
) -> None:
    """One step of ``rule`` on ``values`` and ``slots``, shaped as ``pushed``; a slot with one element for
    each row is a column beside rows. ``row_elements``: of a row of the table, for expressions.
    """
    if rule.program is not None:
        apply_program(rule, values, pushed, slots, counts, row_elements)
        return
    if rule.kind != "adamw" and (decay := rule.parameters.get("weight_decay")):
        pushed = np.multiply(values, decay) + pushed
    _STEPS[rule.kind](rule.parameters, values, pushed, slots, counts)


def _assign(
    _: RuleParameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    values[...] = pushed


def _add(
    _: RuleParameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    values += pushed


def _sgd(
    parameters: RuleParameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    values -= np.multiply(pushed, parameters["lr"])


def _momentum(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    velocity = slots["velocity"]
    velocity *= parameters["momentum"]
    velocity += pushed
    move = velocity
    if parameters.get("nesterov"):
        move = np.multiply(velocity, parameters["momentum"])
        move += pushed
    values -= np.multiply(move, parameters["lr"])


def _adagrad(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    squares = slots["squares"]
    scale = np.multiply(pushed, pushed)
    if parameters.get("rowwise"):
        scale = np.mean(scale, axis=1, keepdims=True)
    squares += scale
    np.sqrt(squares, out=scale)
    scale += parameters["eps"]
    move = np.multiply(pushed, parameters["lr"])
    move /= scale
    values -= move


def _adam(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], counts: StepCounts
) -> None:
    first = slots["first"]
    second = slots["second"]
    beta1 = parameters["beta1"]
    beta2 = parameters["beta2"]
    move = np.multiply(pushed, 1 - beta1)
    first *= beta1
    first += move
    scale = np.multiply(pushed, pushed)
    scale *= 1 - beta2
    second *= beta2
    second += scale
    np.divide(second, _unbiased(beta2, counts, values), out=scale)
    np.sqrt(scale, out=scale)
    scale += parameters["eps"]
    np.divide(first, _unbiased(beta1, counts, values), out=move)
    move *= parameters["lr"]
    move /= scale
    values -= move


def _adamw(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], counts: StepCounts
) -> None:
    values *= 1 - parameters["lr"] * parameters["weight_decay"]
    _adam(parameters, values, pushed, slots, counts)


def _rmsprop(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    squares = slots["squares"]
    scale = np.multiply(pushed, pushed)
    scale *= 1 - parameters["alpha"]
    squares *= parameters["alpha"]
    squares += scale
    np.sqrt(squares, out=scale)
    scale += parameters["eps"]
    move = np.divide(pushed, scale)
    if "velocity" in slots:
        velocity = slots["velocity"]
        velocity *= parameters["momentum"]
        velocity += move
        move = velocity
    values -= np.multiply(move, parameters["lr"])


def _ftrl(
    parameters: RuleParameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: StepCounts
) -> None:
    squares = slots["squares"]
    linear = slots["linear"]
    before = np.sqrt(squares)
    squares += np.multiply(pushed, pushed)
    root = np.sqrt(squares)
    linear += pushed
    before -= root
    before /= parameters["lr"]
    before *= values
    linear += before
    root += parameters["beta"]
    root /= parameters["lr"]
    root += parameters["l2"]
    shrunk = np.maximum(np.abs(linear) - parameters["l1"], 0)
    shrunk /= root
    values[...] = np.where(shrunk > 0, -np.sign(linear) * shrunk, 0)


def _unbiased(beta: float, counts: StepCounts, like: Real) -> Any:
    """1 - beta^count in the dtype of the values, so that float32 tables stay in float32."""
    return (
        like.dtype.type(1 - beta**counts)
        if isinstance(counts, int)
        else (1 - beta**counts).astype(like.dtype)
    )


_STEPS: dict[str, Callable[[RuleParameters, Any, Any, Mapping[str, Any], StepCounts], None]] = {
    "assign": _assign,
    "add": _add,
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "adam": _adam,
    "adamw": _adamw,
    "rmsprop": _rmsprop,
    "ftrl": _ftrl,
}
