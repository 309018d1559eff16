"""x(0): what a user declares, and how random values are drawn. Pure; the same on every machine."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from scar.blocks import Array, Ids, Layout
from scar.errors import ConfigError, use_one_of

INITIALISERS = ("zeros", "constant", "uniform", "normal", "given")
PAGE_ELEMENTS = 1 << 16  # initial values are made in pages of about this many elements


@dataclass(frozen=True)
class Init:
    """x(0). ``given`` arrays are uploaded when the job starts; all others can be made again anywhere."""

    kind: str = "zeros"
    low: float = 0.0
    high: float = 0.0
    array: Array | None = field(default=None, compare=False, repr=False)
    key: str = ""

    def __post_init__(self) -> None:
        if self.kind not in INITIALISERS:
            raise ConfigError(f"initialiser {self.kind!r} is unknown", use_one_of(self.kind, INITIALISERS))


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
        mine = run.gather(_draw_page(init, table, seed, int(page), run.elements).astype(dtype), wanted)
        out[written : written + len(mine)] = mine
        written += len(mine)
    return out


def _draw_page(init: Init, table: str, seed: int, page: int, elements: int) -> Array:
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(table.encode())], dtype=np.uint64)
    draw = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, page]))
    if init.kind == "uniform":
        return draw.uniform(init.low, init.high, elements)
    return draw.normal(init.low, init.high, elements)
