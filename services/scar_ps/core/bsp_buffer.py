"""BSP: what workers pushed for clocks that are not closed yet, and how it is summed when they close.

A sum is made in rank order, and within a worker in push order, so it does not depend on the order of arrival,
to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scar.blocks import Array, Ids, Layout, unite_ascending
from scar_ps.core.block_data import InheritedPush
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.relocation import Relocation, select_kept
from scar_ps.core.requests import Sender
from scar_ps.core.segments import Segments


@dataclass(slots=True)
class BufferedPush:
    """One push that waits for its clock.

    ``clock``: what it was computed for; ``joined``: with which clock it is applied. ``owed``: to blocks that
    were put back, whose clocks are done again before anybody sees them.
    """

    sender: Sender
    push_id: int
    clock: int
    joined: int
    parts: Mapping[str, StoreSlice]
    # it came with blocks from their former owner; the worker sends it again, if it still can
    inherited: bool = False
    owed: bool = False

    @property
    def bytes(self) -> int:
        return sum(part.values.nbytes for part in self.parts.values())

    @property
    def is_late(self) -> bool:
        """Its own clock was closed here before it came, so the watermark claims to contain it already."""
        return self.clock < self.joined and not self.owed

    @property
    def identity(self) -> tuple[Sender, int]:
        """Which push of which worker it is, or a part of."""
        return self.sender, self.push_id

    def without_blocks(self, blocks: Mapping[str, Ids]) -> Mapping[str, StoreSlice]:
        """Its parts without these blocks."""
        rest = {}
        for name, part in self.parts.items():
            gone = np.isin(part.ids, blocks[name]) if name in blocks else np.zeros(len(part.ids), np.bool_)
            if not gone.any():
                rest[name] = part
            elif not gone.all():
                rest[name] = part.select_blocks(np.flatnonzero(~gone))
        return rest


class BspBuffer:
    """Buffered pushes of all workers. ``bytes``: of their payloads; ``any_late``: some came late. Each mark
    of a worker asks for that, so it is not looked up.
    """

    def __init__(self) -> None:
        self._pushes: list[BufferedPush] = []
        self._inherits = False
        self.any_late = False
        # push -> blocks to which a copy of it was applied
        self._applied: dict[tuple[Sender, int], dict[str, Ids]] = {}
        self.bytes = 0

    def add_received(self, push: BufferedPush, clock: int) -> bool:
        """A push has come. ``clock``: the open one, with which a late push is applied, but for blocks that
        were put back. Returns whether it waits for nothing but what other workers owe these.
        """
        owed = _select_where(push.parts, True)
        if owed:
            self.add_push(replace(push, parts=owed, owed=True))
            push = replace(push, parts=_select_where(push.parts, False))
        if push.parts:
            self.add_push(replace(push, joined=max(push.clock, clock)))
        return push.clock < clock and not push.parts

    def take_owed(self) -> list[BufferedPush]:
        """Remove what is owed to blocks that were put back, each with the clock with which it is applied."""
        owed = [kept for kept in self._pushes if kept.owed]
        self._replace([kept for kept in self._pushes if not kept.owed])
        return [replayed for kept in owed for replayed in _split_by_clock(kept)]

    def add_push(self, push: BufferedPush) -> None:
        """Keep a push until its clock closes.

        For a block that came here with a copy of the same push it takes that copy's place, unless the
        copy was applied.
        """
        if push.identity in self._applied:
            push.parts = push.without_blocks(self._applied[push.identity])
            if not push.parts:
                return
        if self._inherits:
            blocks = {name: part.ids for name, part in push.parts.items()}
            for kept in self._pushes:
                if kept.inherited and kept.identity == push.identity:
                    kept.parts = kept.without_blocks(blocks)
            self._replace([kept for kept in self._pushes if kept.parts])
        self._pushes.append(push)
        self.any_late = self.any_late or push.is_late
        self.bytes += push.bytes

    def pushes_for(self, blocks: StoreSlice) -> list[InheritedPush]:
        """What waits for these blocks, to go with them to their next owner."""
        name = blocks.store.table.name
        found = []
        for kept in self._pushes:
            part = kept.parts.get(name)
            if part is not None:
                rows = None if part.rows is None else part.store.table_rows(part.rows)
                whole = InheritedPush(
                    kept.sender, kept.push_id, kept.clock, part.ids, np.asarray(part.values), rows
                )
                found.append(whole.select_blocks(blocks.store.table, blocks.ids))
        return [push for push in found if push is not None]

    def drop_replaced(self, sender: Sender, first: int) -> None:
        """An incarnation does the clocks from ``first`` on: what others of its name pushed for them goes."""
        self._replace(
            [
                kept
                for kept in self._pushes
                if kept.sender.name != sender.name or kept.sender == sender or kept.clock < first
            ]
        )

    def clear(self) -> None:
        self._replace([])
        self._applied.clear()

    def forget_applied(self) -> None:
        """Workers have sent again whatever they owe: no copy that was applied comes a second time."""
        self._applied.clear()

    def open_clocks(self, below: int) -> list[int]:
        """Clocks below this for which something is buffered, ascending."""
        return sorted({kept.joined for kept in self._pushes if kept.joined < below and not kept.owed})

    def take_clock(self, clock: int, ranks: Mapping[str, int]) -> list[BufferedPush]:
        """Remove what belongs to a clock, in rank order; departed workers last, by name."""
        taken = [kept for kept in self._pushes if kept.joined == clock and not kept.owed]
        self._replace([kept for kept in self._pushes if kept.joined != clock or kept.owed])
        for kept in taken:
            if kept.inherited:
                self._remember_applied(kept)
        return rank_order(taken, ranks)

    def _remember_applied(self, applied: BufferedPush) -> None:
        blocks = self._applied.setdefault(applied.identity, {})
        for name, part in applied.parts.items():
            blocks[name] = np.union1d(blocks[name], part.ids) if name in blocks else part.ids

    def adopt_epoch(self, relocations: Mapping[str, Relocation], clock: int) -> None:
        """Blocks changed hands: keep what was pushed to those that stayed, take what came along.

        ``clock``: the first with which something can be applied.
        """
        for kept in self._pushes:
            parts = {name: select_kept(part, relocations) for name, part in kept.parts.items()}
            kept.parts = {name: part for name, part in parts.items() if part is not None}
        inherited = [
            BufferedPush(
                one.sender,
                one.push_id,
                one.clock,
                max(one.clock, clock),
                {name: relocation.place_inherited(one)},
                inherited=True,
            )
            for name, relocation in relocations.items()
            for one in relocation.pushes
        ]
        self._replace([*(kept for kept in self._pushes if kept.parts), *inherited])

    def _replace(self, kept: list[BufferedPush]) -> None:
        self._pushes = kept
        # rare: else a push is only appended
        self._inherits = any(push.inherited for push in kept)
        self.any_late = any(push.is_late for push in kept)
        self.bytes = sum(push.bytes for push in kept)


def rank_order(pushes: Sequence[BufferedPush], ranks: Mapping[str, int]) -> list[BufferedPush]:
    """By rank, then as they were pushed; departed workers last, by name."""
    last = len(ranks)
    return sorted(pushes, key=lambda one: (ranks.get(one.sender.name, last), one.sender.key, one.push_id))


def _select_where(parts: Mapping[str, StoreSlice], replaying: bool) -> dict[str, StoreSlice]:
    """The blocks that wait for what workers owe them, or the others."""
    found: dict[str, StoreSlice] = {}
    for name, part in parts.items():
        if part.store.count_replaying(part.positions):
            at = np.flatnonzero((part.store.replay_clocks(part.positions) >= 0) == replaying)
            if len(at):
                found[name] = part.select_blocks(at)
        elif not replaying:
            found[name] = part
    return found


def _split_by_clock(owed: BufferedPush) -> Iterator[BufferedPush]:
    """The parts of a push that are applied with one clock: its own, or that in which a block was put back."""
    by_clock: dict[int, dict[str, StoreSlice]] = {}
    for name, part in owed.parts.items():
        joined = np.maximum(part.store.replay_clocks(part.positions), owed.clock)
        for clock in np.unique(joined).tolist():
            by_clock.setdefault(clock, {})[name] = part.select_blocks(np.flatnonzero(joined == clock))
    for clock, parts in by_clock.items():
        yield replace(owed, parts=parts, joined=clock, owed=False)


def sum_parts(parts: Sequence[StoreSlice]) -> StoreSlice:
    """The sum of parts of one store, in their order. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    store = parts[0].store
    if any(part.rows is not None for part in parts):
        return _sum_rows(parts)
    if all(part.positions is None for part in parts):
        total: Any = np.array(parts[0].values)
        for part in parts[1:]:
            total += np.asarray(part.values)
        return StoreSlice(store, None, total)
    sparse = [part.positions for part in parts if part.positions is not None]
    if len(sparse) == len(parts):
        union = unite_ascending(sparse)
        own = [(part.positions, part.values) for part in parts]
        return StoreSlice(store, union, _sum_at(store.packed_layout(union), union, own))
    total = _empty_sum(store, store.layout)
    for part in parts:
        if part.positions is None:
            total += np.asarray(part.values)
        else:
            before: Any = store.layout.gather(total, part.positions)
            store.layout.scatter(total, part.positions, before + np.asarray(part.values))
    return StoreSlice(store, None, total)


def _sum_rows(parts: Sequence[StoreSlice]) -> StoreSlice:
    """The same where some are of rows: whole blocks count as all of their rows."""
    store = parts[0].store
    rows = [store.rows_of(part.positions) if part.rows is None else part.rows for part in parts]
    union = unite_ascending(rows)
    layout = Layout.even(len(union), store.table.row_elements)
    total = _sum_at(layout, union, list(zip(rows, (part.values for part in parts), strict=True)))
    return StoreSlice(store, unite_ascending([store.find_row_blocks(union)]), total, union)


def _sum_at(layout: Layout, union: Any, parts: Sequence[tuple[Any, Array | Segments]]) -> Array:
    """Sum of packed values at (ascending) places in ``union``, which ``layout`` is of. What is there for the
    first time is written, and only what comes again is added: most rows of most pushes are nobody else's.
    """
    dtype = np.asarray(parts[0][1]).dtype
    total: Array = np.empty(layout.elements, dtype)
    there = np.zeros(len(union), np.bool_)
    for places, packed in parts:
        values = np.asarray(packed)
        at = np.searchsorted(union, places)
        again = np.flatnonzero(there[at])
        before: Any = layout.gather(total, at[again])
        layout.scatter(total, at, values)
        if len(again):
            layout.scatter(total, at[again], before + layout.take(at).gather(values, again))
        there[at] = True
    return total


def _empty_sum(store: BlockStore, layout: Layout) -> Array:
    """Plus anything it is that, to the last bit."""
    return np.full(layout.elements, -0.0, store.values.dtype)
