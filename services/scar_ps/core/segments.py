"""A flat array that arrived in pieces: the messages of a stream, which are never copied together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from scar.blocks import Array


@dataclass(frozen=True, eq=False, slots=True)
class PushedRows:
    """``count`` rows in pieces of ``piece_rows`` each, the last of fewer. The first is behind ``skipped``
    others of the first piece.
    """

    pieces: Sequence[Array]
    count: int
    piece_rows: int
    skipped: int = 0

    def mean_squares(self, width: int) -> Array:
        """One of each row."""
        shaped = [piece.reshape(-1, width) for piece in self.pieces]
        means = np.concatenate([np.mean(np.multiply(rows, rows), axis=1) for rows in shaped])
        return means[self.skipped : self.skipped + self.count]


class Segments:
    """Read-only elements of one dtype, in order.

    A slice within one piece is a view; numpy sees one array (a copy).
    """

    def __init__(self, pieces: Sequence[Array], dtype: np.dtype[Any]) -> None:
        self._pieces = pieces
        self.dtype = dtype
        sizes = list(map(len, pieces))
        self._ends = list(accumulate(sizes))
        self._even = _even_size(sizes)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def nbytes(self) -> int:
        return len(self) * self.dtype.itemsize

    def __getitem__(self, span: slice) -> Array:
        start, stop, _ = span.indices(len(self))
        first = bisect_right(self._ends, start)
        last = bisect_right(self._ends, stop - 1)
        if start >= stop:
            return np.empty(0, self.dtype)
        before = self._ends[first - 1] if first else 0
        if first == last:
            return self._pieces[first][start - before : stop - before]
        parts = [self._pieces[first][start - before :], *self._pieces[first + 1 : last]]
        return np.concatenate([*parts, self._pieces[last][: stop - self._ends[last - 1]]])

    def find_rows(self, span: slice, width: int) -> PushedRows | None:
        """The same as pieces, without a copy; None: a row lies in two, or they are of several sizes."""
        size = self._even
        if not size or size % width:
            return None
        first = span.start // size
        pieces = self._pieces[first : (span.stop - 1) // size + 1]
        skipped = (span.start - first * size) // width
        return PushedRows(pieces, (span.stop - span.start) // width, size // width, skipped)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("segments become one array only by a copy")
        whole: Array = np.concatenate([np.empty(0, self.dtype), *self._pieces])
        return whole if dtype is None else whole.astype(dtype, copy=False)


def _even_size(sizes: Sequence[int]) -> int:
    """Of all pieces but the last, which may be smaller; 0: they are of several."""
    size = max(sizes, default=0)
    return size if all(one == size for one in sizes[:-1]) else 0


def find_pushed_rows(pushed: Array | Segments, span: slice, width: int) -> PushedRows:
    """Rows of ``width`` elements, which begin and end where ``span`` does."""
    found = pushed.find_rows(span, width) if isinstance(pushed, Segments) else None
    count = (span.stop - span.start) // width
    return found or PushedRows([pushed[span]], count, max(1, count))
