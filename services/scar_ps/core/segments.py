"""A flat array that arrived in pieces: the messages of a stream, which are never copied together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from scar.blocks import Array


class Segments:
    """Read-only elements of one dtype, in order.

    A slice within one piece is a view; numpy sees one array (a copy).
    """

    def __init__(self, pieces: Sequence[Array], dtype: np.dtype[Any]) -> None:
        self._pieces = pieces
        self.dtype = dtype
        self._ends = list(accumulate(map(len, pieces)))

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("segments become one array only by a copy")
        whole: Array = np.concatenate([np.empty(0, self.dtype), *self._pieces])
        return whole if dtype is None else whole.astype(dtype, copy=False)
