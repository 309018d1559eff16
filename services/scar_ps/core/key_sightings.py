"""Which new keys were pushed often enough for a row: counters of a block, at two places for each key.

A count-min sketch: keys that share both places count together, so a key may get its row too early and never
too late. Counters are halved before they fill up, so that what was rare stays rare (as TinyLFU does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Positions
from scar.keyed_rows import INDEX_BYTES, MOST_ADMITTED_AFTER, SIGHTINGS_SLOT, KeyImages, mix_images
from scar_ps.core.block_arrays import RUN_ELEMENTS
from scar_ps.core.block_store import Mask

if TYPE_CHECKING:
    from scar_ps.core.keyed_store import KeyedBlockStore

LOOKS = 16  # a block is looked at in one clock of so many
MANY = 64  # or whenever one counter of so many was raised at once


def count_sightings(store: KeyedBlockStore, images: KeyImages, clock: int) -> Mask:
    """Which of these keys (ascending, without rows), pushed once more in this clock, get a row now."""
    size = store.rows_of_block * INDEX_BYTES
    counters = store.slots[SIGHTINGS_SLOT].view(np.uint8)
    blocks = store.find_row_blocks(images)
    start = blocks * size
    places = [start + (one % np.uint64(size)).astype(np.int64) for one in (images, mix_images(images))]
    seen = np.minimum(*(counters[at] for at in places))
    seen = np.minimum(seen, MOST_ADMITTED_AFTER - 1) + np.uint8(1)
    for at in places:
        np.maximum.at(counters, at, seen)
    touched, raised = np.unique(blocks, return_counts=True)
    turn = (store.ids[touched] + np.uint32(clock % LOOKS)) % LOOKS == 0
    _halve_counters(counters.reshape(-1, size), touched[turn | (raised * MANY > size)])
    admitted: Mask = seen >= store.policy.admit_after
    return admitted


def _halve_counters(counters: NDArray[np.uint8], blocks: Positions) -> None:
    """Of those of these blocks of which more than half of the counters are in use."""
    each = max(1, RUN_ELEMENTS // counters.shape[1])
    for first in range(0, len(blocks), each):
        some = blocks[first : first + each]
        full = some[np.count_nonzero(counters[some], axis=1) * 2 > counters.shape[1]]
        counters[full] >>= 1
