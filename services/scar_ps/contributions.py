"""BSP: what workers pushed for clocks that are not closed yet, and how it is summed when they close.

A sum is made in rank order, and within a worker in push order, so it does not depend on the order of arrival, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scar_ps.barrier import Sender
from scar_ps.blockstore import Part
from scar_ps.holdings import Relocation, follow


@dataclass(slots=True)
class Contribution:
    """One push that waits for its clock. ``clock``: what it was computed for; ``joined``: with which clock it is applied."""

    sender: Sender
    push_id: int
    clock: int
    joined: int
    parts: Mapping[str, Part]

    @property
    def bytes(self) -> int:
        return sum(part.values.nbytes for part in self.parts.values())

    @property
    def late(self) -> bool:
        """Its own clock was closed here before it came, so the watermark claims to contain it already."""
        return self.clock < self.joined


class Contributions:
    """Kept pushes of all workers. ``bytes``: of their payloads."""

    def __init__(self) -> None:
        self._kept: list[Contribution] = []
        self.bytes = 0

    @property
    def any_late(self) -> bool:
        return any(kept.late for kept in self._kept)

    def add(self, contribution: Contribution) -> None:
        self._kept.append(contribution)
        self.bytes += contribution.bytes

    def drop_unsealed(self, sender: Sender, finished: int) -> None:
        """A new incarnation has come: what its predecessors pushed for clocks that they did not finish is done anew."""
        self._replace(
            [kept for kept in self._kept if kept.sender.name != sender.name or kept.sender == sender or kept.clock < finished]
        )

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

    def follow(self, relocations: Mapping[str, Relocation]) -> None:
        """Blocks changed hands: keep what was pushed to blocks that stayed."""
        for kept in self._kept:
            parts = {name: follow(part, relocations) for name, part in kept.parts.items()}
            kept.parts = {name: part for name, part in parts.items() if part is not None}
        self._replace([kept for kept in self._kept if kept.parts])

    def _replace(self, kept: list[Contribution]) -> None:
        self._kept = kept
        self.bytes = sum(contribution.bytes for contribution in kept)


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
