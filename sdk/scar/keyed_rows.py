"""Tables whose rows are given to keys: what a user declares, which block a key is of, and x(0) of its row.

A key is an int64. Everywhere below the user's call it is its *image* under one fixed bijection of 64 bits,
whose upper bits are the number of the key's block. So ascending images are ascending blocks, as ascending
rows are in other tables. Pure; the same on every machine.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import Array, Ids
from scar.errors import ConfigError, InvalidRequest, use_one_of
from scar.initial_values import Init

KeyImages = NDArray[np.uint64]
RowKeys = NDArray[np.int64]


class KeyedValues(NamedTuple):
    """All rows of a table with keys: ``keys``, int64[n], ascending, and ``values`` of each, [n, dim]."""

    keys: RowKeys
    values: Array


KEY_TYPE = "int64"
EVICTIONS = ("lru", "never")
KEY_INITIALISERS = ("zeros", "constant", "uniform", "normal")
MOST_ADMITTED_AFTER = 255  # sightings are counted in bytes
MAX_PARTITIONS = 1 << 16
FEW_PARTITIONS = 1 << 6  # up to so many are made smaller than BLOCK_ROWS, so that there is something to deal
FEWEST_ROWS = 1 << 6  # of a block: the fewer, the sooner one is full while others are half empty
BLOCK_ROWS = 1 << 8

# slots of the index of a block: for each row the image of its key, and the clock after its last push (0: the
# row is free); for each row of capacity eight counters of sightings
KEY_SLOT = "@key"
USED_SLOT = "@used"
SIGHTINGS_SLOT = "@sightings"
INDEX_BYTES = 8  # a row, of each

_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_FIRST_BACK = 0x96DE1B173F119089  # times the first: 1
_SECOND_BACK = 0x319642B2D24D8EC3
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class KeyPolicy:
    """Which keys get a row, and which lose it: what :func:`keys` makes."""

    admit_after: int = 1
    evict: str = "lru"
    max_age: int = 0

    def __post_init__(self) -> None:
        if self.evict not in EVICTIONS:
            raise ConfigError(f"evict {self.evict!r} is unknown", use_one_of(self.evict, EVICTIONS))
        if not 1 <= self.admit_after <= MOST_ADMITTED_AFTER or not 0 <= self.max_age < 1 << 62:
            raise ConfigError(
                f"admit_after is 1 to {MOST_ADMITTED_AFTER} pushes and max_age clocks, not"
                f" {self.admit_after} and {self.max_age}"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """What a block keeps of its keys, beside the rule's slots."""
        counted = (SIGHTINGS_SLOT,) if self.admit_after > 1 else ()
        return (KEY_SLOT, USED_SLOT, *counted)


def keys(admit_after: int = 1, evict: str = "lru", max_age: int = 0) -> KeyPolicy:
    """Rows named by int64 keys: ``scar.Table("clicks", keys=scar.keys(), dim=16, capacity=10**6)``.

    ``admit_after``: pushes (in BSP: clocks with a push) from which on a key has a row. ``evict``: what
    happens to a new key whose part of the table is full: "lru" gives it the row that was pushed to longest
    ago, "never" none. ``max_age``: clocks without a push after which a row goes; 0: never.
    """
    return KeyPolicy(admit_after, evict, max_age)


def cut_capacity(capacity: int) -> tuple[int, int]:
    """Blocks (a power of two) and rows of each, for at least so many rows."""
    wanted = max(2, capacity // FEWEST_ROWS)
    if wanted > FEW_PARTITIONS:
        wanted = max(FEW_PARTITIONS, capacity // BLOCK_ROWS)
    blocks = min(MAX_PARTITIONS, 1 << (wanted.bit_length() - 1))
    return blocks, max(2, -(-capacity // blocks))


def check_keyed(name: str, shape: tuple[int, ...], blocks: int, init: Init, counts_steps: bool) -> None:
    """Raises :class:`ConfigError` for a table that cannot have keys."""
    if blocks < 2 or blocks > MAX_PARTITIONS or blocks & (blocks - 1) or shape[0] % blocks:
        raise ConfigError(
            f"table {name}: keys need 2 to {MAX_PARTITIONS} blocks of one size, a power of two, not {blocks}",
            "Declare dim= and capacity=, without shape and blocks",
        )
    if shape[0] == blocks:
        raise ConfigError(f"table {name}: a block of keys has at least two rows")
    if (init.others or init.kind) not in KEY_INITIALISERS:
        raise ConfigError(
            f"table {name}: rows of keys cannot begin with init {init.kind}",
            use_one_of(init.kind, KEY_INITIALISERS) + "; scar.given_rows(keys, values) are of some keys",
        )
    if counts_steps:
        raise ConfigError(
            f"table {name}: the rule counts the steps of a block, and keys take steps of their own",
            "Use a rule that does not count, such as scar.adagrad(lr, rowwise=True)",
        )


# --- keys and their images
# ------------------------------------------------------------------------------------------------------------


def mix_keys(keys: ArrayLike) -> KeyImages:
    """The image of each key."""
    return mix_images(np.asarray(keys, np.int64).astype(np.uint64))


def unmix_keys(images: KeyImages) -> RowKeys:
    """The keys with these images."""
    z = images ^ (images >> np.uint64(31)) ^ (images >> np.uint64(62))
    z *= np.uint64(_SECOND_BACK)
    z ^= (z >> np.uint64(27)) ^ (z >> np.uint64(54))
    z *= np.uint64(_FIRST_BACK)
    z ^= (z >> np.uint64(30)) ^ (z >> np.uint64(60))
    keys: RowKeys = z.astype(np.int64)
    return keys


def mix_images(z: KeyImages) -> KeyImages:
    """The finalizer of SplitMix64."""
    z = z ^ (z >> np.uint64(30))
    z *= np.uint64(_FIRST)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_SECOND)
    z ^= z >> np.uint64(31)
    return z


def block_of_images(images: KeyImages, blocks: int) -> Ids:
    """The block of each, of a power of two."""
    return (images >> np.uint64(65 - blocks.bit_length())).astype(np.uint32)


def check_keys(table: str, keys: ArrayLike) -> KeyImages:
    """Images of keys as given by a user: any order, repeats allowed. Raises :class:`InvalidRequest`."""
    array = np.asarray(keys)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.dtype.kind == "u" and array.max() >> 63):
        raise InvalidRequest(
            f"table {table}: keys must be one axis of int64, not {array.dtype} of shape {array.shape}"
        )
    return mix_keys(array)


# --- rows as they are stored
# ------------------------------------------------------------------------------------------------------------


def pack_stored(values: Array, keys: KeyImages, used: KeyImages) -> Array:
    """One matrix of rows: their ``values``, the images of their keys, and the clocks after their last push
    (0: no key has the row). Numbers of the dtype of the values, bits of the other two.
    """
    index = np.stack((keys, used), axis=1).view(values.dtype)
    return np.concatenate((values, index), axis=1)


def split_stored(rows: Array) -> KeyedValues:
    """The rows that keys have in such a matrix."""
    width = 2 * INDEX_BYTES // rows.dtype.itemsize
    index = np.ascontiguousarray(rows[:, -width:]).view(np.uint64)
    live = np.flatnonzero(index[:, 1])
    keys = unmix_keys(index[live, 0])
    order = np.argsort(keys)
    values = np.ascontiguousarray(rows[live[order], :-width])
    keys = keys[order]
    for array in (keys, values):
        array.setflags(write=False)
    return KeyedValues(keys, values)


# --- x(0)
# ------------------------------------------------------------------------------------------------------------


def row_seed(seed: int, table: str) -> int:
    """What the first values of all rows of a table depend on, beside their keys."""
    both = (seed & _MASK) ^ (zlib.crc32(table.encode()) << 17)
    return int(mix_images(np.array([(both + _STEP) & _MASK], np.uint64))[0])


def draw_rows(init: Init, seed: int, images: KeyImages, width: int, dtype: np.dtype[np.generic]) -> Array:
    """x(0) of the rows of these keys, packed, ``width`` elements each. ``seed``: of :func:`row_seed`.

    A number of each element, by a counter, from SplitMix64: so a row that is lost comes back the same.
    """
    kind = init.others or init.kind
    if kind in ("zeros", "constant"):
        return np.full(len(images) * width, init.low, dtype)
    numbers = 2 * width if kind == "normal" else width
    steps = (np.arange(1, numbers + 1, dtype=np.uint64)) * np.uint64(_STEP)
    bits = mix_images((images ^ np.uint64(seed))[:, None] + steps)
    unit = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    if kind == "uniform":
        drawn = init.low + (init.high - init.low) * unit
    else:
        far = np.sqrt(-2 * np.log1p(-unit[:, :width])) * np.cos(2 * math.pi * unit[:, width:])
        # rounded, since the last bits of a logarithm and a cosine depend on the processor
        drawn = (init.low + init.high * far).astype(np.float32)
    return np.ascontiguousarray(drawn, dtype).reshape(-1)
