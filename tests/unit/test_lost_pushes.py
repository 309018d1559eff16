"""Lost pushes as they travel: small, and checked before anything believes them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from scar.errors import BlockOutOfRange, InvalidRequest
from scar.lost_ranges import LostRanges, count_lost_pushes
from scar.v1.recovery_pb2 import LostPushes
from scar.wire.lost_pushes import pack_losses, unpack_losses
from tests.framework.lost import lost


def same(one: LostRanges, other: LostRanges) -> bool:
    columns = ("ids", "after", "upto")
    return one.table == other.table and all(
        np.array_equal(getattr(one, c), getattr(other, c)) for c in columns
    )


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_what_is_packed_comes_out_again(count: int) -> None:
    draw = np.random.default_rng(count)
    ids = np.sort(draw.choice(5000, count, replace=False)).astype(np.uint32)
    after = draw.integers(0, 1 << 40, count)
    loss = LostRanges("w", ids, after, after + draw.integers(1, 1 << 20, count))
    assert same(unpack_losses(pack_losses(loss), 5000), loss)


def test_a_range_for_each_of_many_blocks_is_small() -> None:
    """Sparse pushes touch other blocks each time: as messages of their own these ranges took more than an
    answer holds.
    """
    blocks = 1_000_000
    draw = np.random.default_rng(0)
    ids = np.arange(blocks, dtype=np.uint32)
    after = draw.integers(1000, 1300, blocks)
    loss = LostRanges("w", ids, after, after + draw.integers(1, 200, blocks))
    assert pack_losses(loss).ByteSize() < 4 << 20
    assert count_lost_pushes([loss]) == int(loss.upto.max() - loss.after.min())


@pytest.mark.parametrize(
    "message",
    [
        lost("w", [3, 3], 1, 2),
        lost("w", [1], 2, 2),
        LostPushes(table="w", block_ids=b"no zlib", after=b"", upto=b""),
        LostPushes(
            table="w",
            block_ids=lost("w", [1, 2], 1, 2).block_ids,
            after=lost("w", [1], 1, 2).after,
            upto=b"x",
        ),
        LostPushes(table="w", block_ids=zlib.compress(bytes(10_000)), after=b"", upto=b""),
        LostPushes(table="w", block_ids=zlib.compress(b"abc"), after=b"", upto=b""),
    ],
    ids=["repeated", "empty range", "garbage", "columns", "too many", "cut"],
)
def test_what_is_malformed_is_refused(message: LostPushes) -> None:
    with pytest.raises(InvalidRequest):
        unpack_losses(message, 100)


def test_blocks_that_the_table_does_not_have_are_refused() -> None:
    with pytest.raises(BlockOutOfRange):
        unpack_losses(lost("w", [100], 1, 2), 100)
