"""Which row of a store has which key: sorted arrays, and a smaller one of those that came since.

An entry is a hint. A row that was given to another key, or to none, keeps its entry until the arrays are
merged: whoever looks a key up compares it with what the row says. Arrays are replaced and never changed, so a
copy of an index is a snapshot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Positions
from scar.keyed_rows import KeyImages

FEW_RECENT = 1 << 14  # entries that are searched beside the large array, at least
PIECE = 1 << 20  # entries that are merged by one call of numpy


class KeyIndex:
    """``keys``, ``used``: of each row of the store, as its blocks keep them."""

    def __init__(self) -> None:
        self._images: KeyImages = np.empty(0, np.uint64)
        self._rows: Positions = np.empty(0, np.int64)
        self._recent_images: KeyImages = np.empty(0, np.uint64)
        self._recent_rows: Positions = np.empty(0, np.int64)

    def find_rows(self, images: KeyImages, keys: KeyImages, used: KeyImages) -> Positions:
        """The row of each of these keys; -1 for a key that has none."""
        rows = _look_up(self._images, self._rows, images, keys, used)
        if len(self._recent_images):
            missing = np.flatnonzero(rows < 0)
            rows[missing] = _look_up(self._recent_images, self._recent_rows, images[missing], keys, used)
        return rows

    def add_rows(self, images: KeyImages, rows: Positions, keys: KeyImages, used: KeyImages) -> None:
        """Rows that these keys (ascending, each once) have now; ``keys`` and ``used`` say so already."""
        self._recent_images, self._recent_rows = _merge(self._recent_images, self._recent_rows, images, rows)
        if len(self._recent_images) > max(FEW_RECENT, len(self._images) // 8):
            self._merge_recent(keys, used)

    def _merge_recent(self, keys: KeyImages, used: KeyImages) -> None:
        cuts = self._images[PIECE::PIECE]
        old = [0, *range(PIECE, len(self._images), PIECE), len(self._images)]
        new = [0, *np.searchsorted(self._recent_images, cuts).tolist(), len(self._recent_images)]
        merged = []
        for at in range(len(old) - 1):
            mine = slice(old[at], old[at + 1])
            recent = slice(new[at], new[at + 1])
            images = self._images[mine]
            rows = self._rows[mine]
            live = (keys[rows] == images) & (used[rows] > 0)
            merged.append(
                _merge(images[live], rows[live], self._recent_images[recent], self._recent_rows[recent])
            )
        self._images = np.concatenate([images for images, _ in merged])
        self._rows = np.concatenate([rows for _, rows in merged])
        self._recent_images = self._recent_images[:0]
        self._recent_rows = self._recent_rows[:0]


def _look_up(
    held: KeyImages, rows: Positions, images: KeyImages, keys: KeyImages, used: KeyImages
) -> Positions:
    if not len(held):
        return np.full(len(images), -1, np.int64)
    at = np.searchsorted(held, images)
    at[at == len(held)] = 0
    found = rows[at]
    known: NDArray[np.bool_] = (held[at] == images) & (keys[found] == images) & (used[found] > 0)
    return np.where(known, found, -1)


def _merge(
    held: KeyImages, rows: Positions, images: KeyImages, new_rows: Positions
) -> tuple[KeyImages, Positions]:
    """Both, ascending; of a key that is in both the new row."""
    if not len(held):
        return images, new_rows
    at = np.searchsorted(held, images)
    known = held[np.minimum(at, len(held) - 1)] == images
    if known.any():
        rows = rows.copy()
        rows[at[known]] = new_rows[known]
    fresh = ~known
    return np.insert(held, at[fresh], images[fresh]), np.insert(rows, at[fresh], new_rows[fresh])
