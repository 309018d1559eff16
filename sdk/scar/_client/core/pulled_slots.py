"""What a worker pulled beside the values of a table, to give it back (docs/protocol.md §15). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scar.block_parts import part_dtype, part_layout, parts_beside
from scar.blocks import Array, Positions, positions_of
from scar.tables import Table


class PulledSlots:
    """Slots and steps of a whole table, each piece packed as its shard sent it: nobody reads them unless they
    are given back.
    """

    def __init__(self, table: Table) -> None:
        self._layouts = {part: part_layout(table, part) for part in parts_beside(table)}
        self._dtypes = {part: part_dtype(table, part) for part in self._layouts}
        self._pieces: list[tuple[Positions, Mapping[str, Array]]] = []

    @property
    def parts(self) -> Sequence[str]:
        return tuple(self._layouts)

    def receive_buffers(self, positions: Positions) -> dict[str, Array]:
        """Where to receive each part of these blocks."""
        return {
            part: np.empty(layout.count_elements(positions), self._dtypes[part])
            for part, layout in self._layouts.items()
        }

    def add_blocks(self, positions: Positions, parts: Mapping[str, Array]) -> None:
        """These blocks have arrived."""
        self._pieces.append((positions, parts))

    def discard_blocks(self) -> None:
        self._pieces = []

    def gather(self, part: str, positions: Positions) -> Array:
        """A part of these blocks (ascending), which have all arrived, packed."""
        layout = self._layouts[part].take(positions)
        packed: Array = np.empty(layout.elements, self._dtypes[part])
        for held, parts in self._pieces:
            at = positions_of(held.astype(np.uint32), positions.astype(np.uint32))
            here = np.flatnonzero(at >= 0)
            if len(here):
                piece = self._layouts[part].take(held)
                layout.scatter(packed, here, piece.gather(parts[part], at[here]))
        return packed
