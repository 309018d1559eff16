"""BSP: what workers pushed for clocks that are not closed yet, and how it is summed when they close.

A sum is made in rank order, and within a worker in push order, so it does not depend on the order of arrival, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scar.blocks import Positions
from scar_ps.barrier import Sender
from scar_ps.blockstore import Part
from scar_ps.holdings import Pending, Relocation, follow


@dataclass(slots=True)
class Contribution:
    """One push that waits for its clock. ``clock``: what it was computed for; ``joined``: with which clock it is applied."""

    sender: Sender
    push_id: int
    clock: int
    joined: int
    parts: Mapping[str, Part]
    inherited: bool = False  # it came with blocks from their former owner; the worker sends it again, if it still can

    @property
    def bytes(self) -> int:
        return sum(part.values.nbytes for part in self.parts.values())

    @property
    def late(self) -> bool:
        """Its own clock was closed here before it came, so the watermark claims to contain it already."""
        return self.clock < self.joined

    def outside(self, blocks: Mapping[str, Part]) -> Mapping[str, Part]:
        """Its parts without these blocks."""
        rest = {}
        for name, part in self.parts.items():
            gone = np.isin(part.ids, blocks[name].ids) if name in blocks else np.zeros(len(part.ids), np.bool_)
            if not gone.any():
                rest[name] = part
            elif not gone.all():
                rest[name] = _cut(part, np.flatnonzero(~gone))
        return rest


class Contributions:
    """Kept pushes of all workers. ``bytes``: of their payloads."""

    def __init__(self) -> None:
        self._kept: list[Contribution] = []
        self._inherits = False
        self.bytes = 0

    @property
    def any_late(self) -> bool:
        return any(kept.late for kept in self._kept)

    def add(self, contribution: Contribution) -> None:
        """A push to a block that came here with a copy of the same push takes that copy's place."""
        if self._inherits:
            for kept in self._kept:
                if kept.inherited and (kept.sender, kept.push_id) == (contribution.sender, contribution.push_id):
                    kept.parts = kept.outside(contribution.parts)
            self._replace([kept for kept in self._kept if kept.parts])
        self._kept.append(contribution)
        self.bytes += contribution.bytes

    def of(self, blocks: Part) -> list[Pending]:
        """What waits for these blocks, to go with them to their next owner."""
        name, found = blocks.store.table.name, []
        for kept in self._kept:
            part = kept.parts.get(name)
            if part is not None:
                whole = Pending(kept.sender, kept.push_id, kept.clock, part.ids, np.asarray(part.values))
                found.append(whole.cut(blocks.store.table, blocks.ids))
        return [pending for pending in found if pending is not None]

    def drop_unsealed(self, sender: Sender, finished: int) -> None:
        """A new incarnation has come: what its predecessors pushed for clocks that they did not finish is done anew."""
        self._replace(
            [kept for kept in self._kept if kept.sender.name != sender.name or kept.sender == sender or kept.clock < finished]
        )

    def drop_replaced(self, incarnations: Mapping[str, str], finished: Callable[[str], int]) -> None:
        """The same for all workers: what came along with blocks may be from incarnations that were replaced meanwhile."""
        for name, incarnation in incarnations.items():
            self.drop_unsealed(Sender(name, incarnation), finished(name))

    def clear(self) -> None:
        self._replace([])

    def clocks(self, below: int) -> list[int]:
        """Clocks below this for which something is kept, ascending."""
        return sorted({kept.joined for kept in self._kept if kept.joined < below})

    def take(self, clock: int, ranks: Mapping[str, int]) -> list[Contribution]:
        """Remove what belongs to a clock, in rank order; departed workers last, by name."""
        taken = [kept for kept in self._kept if kept.joined == clock]
        self._replace([kept for kept in self._kept if kept.joined != clock])
        last = len(ranks)
        return sorted(taken, key=lambda kept: (ranks.get(kept.sender.name, last), kept.sender.key, kept.push_id))

    def follow(self, relocations: Mapping[str, Relocation], clock: int) -> None:
        """Blocks changed hands: keep what was pushed to those that stayed, take what came along. ``clock``: the open one."""
        for kept in self._kept:
            parts = {name: follow(part, relocations) for name, part in kept.parts.items()}
            kept.parts = {name: part for name, part in parts.items() if part is not None}
        inherited = [
            Contribution(
                one.sender,
                one.push_id,
                one.clock,
                max(one.clock, clock),
                {name: Part(relocation.new, relocation.new.locate(one.ids), one.values)},
                inherited=True,
            )
            for name, relocation in relocations.items()
            for one in relocation.pending
        ]
        self._replace([*(kept for kept in self._kept if kept.parts), *inherited])

    def _replace(self, kept: list[Contribution]) -> None:
        self._kept = kept
        self._inherits = any(contribution.inherited for contribution in kept)  # rare: else a push is only appended
        self.bytes = sum(contribution.bytes for contribution in kept)


def _cut(part: Part, positions: Positions) -> Part:
    """The blocks of a part at these (ascending) positions within it."""
    values = part.store.packed(part.positions).gather(np.asarray(part.values), positions)
    return Part(part.store, positions if part.positions is None else part.positions[positions], values)


def summed(parts: Sequence[Part]) -> Part:
    """The sum of parts of one store, in their order. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    store = parts[0].store
    if all(part.positions is None for part in parts):
        total: Any = np.array(parts[0].values)
        for part in parts[1:]:
            total += np.asarray(part.values)
        return Part(store, None, total)
    sparse = [part.positions for part in parts if part.positions is not None]
    union = None if len(sparse) < len(parts) else np.unique(np.concatenate(sparse))
    layout = store.packed(union)
    total = np.zeros(layout.elements, store.values.dtype)
    for part in parts:
        if part.positions is None:
            total += np.asarray(part.values)
            continue
        at = part.positions if union is None else np.searchsorted(union, part.positions)
        before: Any = layout.gather(total, at)
        layout.scatter(total, at, before + np.asarray(part.values))
    return Part(store, union, total)
