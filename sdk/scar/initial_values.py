"""x(0): what a user declares, and how random values are drawn. Pure; the same on every machine."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import Array, Ids, Layout, Positions
from scar.errors import ConfigError, use_one_of

INITIALISERS = ("zeros", "constant", "uniform", "normal", "given")
PAGE_ELEMENTS = 1 << 16  # initial values are made in pages of about this many elements
LARGE_BLOCK = 1 << 10  # elements, from which on it is worth while to draw one block alone
PHILOX_NUMBERS = 4  # of 64 bits, for each count of its counter


class GivenRows(NamedTuple):
    """Of a table with keys: ``images`` of the keys, uint64[n], ascending, and ``values``, [n, dim]."""

    images: NDArray[np.uint64]
    values: Array


@dataclass(frozen=True)
class Init:
    """x(0). ``given`` arrays are uploaded when the job starts; all others can be made again anywhere.

    ``rows``: of a table with keys, in the place of ``array``; ``others``: the kind of what rows of other keys
    begin with, which ``low`` and ``high`` are of then. ``key``, ``more_keys``: of the parts of a given array
    in the store.
    """

    kind: str = "zeros"
    low: float = 0.0
    high: float = 0.0
    array: Array | None = field(default=None, compare=False, repr=False)
    key: str = ""
    others: str = ""
    rows: GivenRows | None = field(default=None, compare=False, repr=False)
    more_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in INITIALISERS:
            raise ConfigError(f"initialiser {self.kind!r} is unknown", use_one_of(self.kind, INITIALISERS))

    @property
    def part_keys(self) -> tuple[str, ...]:
        """Of all parts of a given array, in order."""
        return (self.key, *self.more_keys)


def zeros() -> Init:
    """All zero."""
    return Init()


def constant(value: float) -> Init:
    """The same value everywhere."""
    return Init("constant", value)


def uniform(low: float = 0.0, high: float = 1.0) -> Init:
    """Drawn evenly from [low, high)."""
    return Init("uniform", low, high)


def normal(mean: float = 0.0, deviation: float = 1.0) -> Init:
    """Drawn from the normal distribution."""
    return Init("normal", mean, deviation)


def given(array: ArrayLike) -> Init:
    """This array, of the table's shape; it is uploaded when the job starts."""
    return Init("given", array=np.asarray(array))


def draw_values(
    init: Init, table: str, layout: Layout, dtype: np.dtype[np.generic], seed: int, ids: Ids
) -> Array:
    """Random values of these blocks of a table (ascending ids), packed.

    They are drawn page by page: a page is a fixed run of blocks with a Philox key of its own.
    """
    blocks = len(layout)
    per_page = max(1, PAGE_ELEMENTS * blocks // layout.elements)
    out = np.empty(int(layout.sizes[ids].sum()), dtype=dtype)
    cuts = np.searchsorted(ids, np.arange(0, blocks + per_page, per_page))
    written = 0
    for page in np.flatnonzero(np.diff(cuts)):
        first = int(page) * per_page
        last = min(first + per_page, blocks)
        run = Layout(layout.sizes[first:last])
        wanted = ids[cuts[page] : cuts[page + 1]].astype(np.int64) - first
        mine = _draw_blocks(init, _page_key(table, seed), int(page), run, wanted).astype(dtype)
        out[written : written + len(mine)] = mine
        written += len(mine)
    return out


def _page_key(table: str, seed: int) -> NDArray[np.uint64]:
    return np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(table.encode())], dtype=np.uint64)


def _draw_blocks(init: Init, key: NDArray[np.uint64], page: int, layout: Layout, wanted: Positions) -> Array:
    """These blocks of a page (ascending), packed. Of large blocks with uniform values only those are drawn:
    each takes one number of the generator, so that the rest can be skipped.
    """
    if init.kind != "uniform" or len(wanted) == len(layout) or layout.elements < LARGE_BLOCK * len(layout):
        return layout.gather(_draw_range(init, key, page, 0, layout.elements), wanted)
    spans = zip(layout.starts[wanted].tolist(), layout.starts[wanted + 1].tolist(), strict=True)
    return np.concatenate([_draw_range(init, key, page, *span) for span in spans])


def _draw_range(init: Init, key: NDArray[np.uint64], page: int, start: int, stop: int) -> NDArray[np.float64]:
    """Elements ``start`` to ``stop`` of a page; normal ones only from its beginning."""
    skipped, rest = divmod(start, PHILOX_NUMBERS)
    draw = np.random.Generator(np.random.Philox(key=key, counter=[skipped, 0, 0, page]))
    if init.kind == "uniform":
        return draw.uniform(init.low, init.high, stop - start + rest)[rest:]
    return draw.normal(init.low, init.high, stop - start)
