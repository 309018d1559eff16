"""Blocks of an epoch travel in few bits, arrive as they were, and nothing that cannot be is believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar.errors import InvalidRequest
from scar.placement import NOBODY
from scar.tables import MAX_BLOCKS
from scar.v1 import types_pb2
from scar.wire.codec import ids_to_bytes
from scar.wire.epoch_messages import (
    epoch_from_proto,
    owners_from_proto,
    owners_to_proto,
    read_moved,
    set_moved,
)

INDICES = st.one_of(st.integers(0, 3), st.integers(0, NOBODY - 1), st.just(NOBODY))
ASCENDING = st.one_of(
    st.sets(st.integers(0, 300), max_size=200), st.sets(st.integers(0, MAX_BLOCKS - 1), max_size=20)
).map(sorted)


@given(st.lists(INDICES, max_size=70))
def test_owners_arrive_as_they_were(owners) -> None:
    sent = owners_to_proto("w", np.array(owners, np.uint16))
    found = owners_from_proto(types_pb2.TableOwners.FromString(sent.SerializeToString()))
    assert found.dtype == np.uint16
    assert found.tolist() == owners


@pytest.mark.parametrize(
    ("shards", "bits"), [(1, 1), (2, 2), (3, 2), (4, 3), (1000, 10), (1023, 10), (1024, 11)]
)
def test_an_owner_takes_as_many_bits_as_shards_and_nobody_need(shards, bits) -> None:
    owners = np.arange(8000, dtype=np.uint16) % shards
    sent = owners_to_proto("w", owners)
    assert [len(plane) for plane in sent.planes] == bits * [1000]
    np.testing.assert_array_equal(owners_from_proto(sent), owners)


@given(ASCENDING)
def test_moved_blocks_arrive_as_they_were(ids) -> None:
    sent = types_pb2.BlockGroup(table="w")
    set_moved(sent, np.array(ids, np.uint32))
    assert read_moved(types_pb2.BlockGroup.FromString(sent.SerializeToString())).tolist() == ids
    assert len(sent.bitmap) + len(sent.block_ids) <= 4 * len(ids)


def test_what_the_version_before_has_written_is_read() -> None:
    """A job that was begun then is resumed from its epochs."""
    owners = np.array([1, 0, NOBODY], np.uint16)
    before = types_pb2.TableOwners(table="w", owners=owners.tobytes())
    np.testing.assert_array_equal(owners_from_proto(before), owners)
    ids = np.arange(0, 40, 2, dtype=np.uint32)
    group = types_pb2.BlockGroup(table="w", block_ids=ids_to_bytes(ids))
    np.testing.assert_array_equal(read_moved(group), ids)


@pytest.mark.parametrize(
    "message",
    [
        types_pb2.TableOwners(table="w", blocks=9, planes=[b"\0"]),
        types_pb2.TableOwners(table="w", blocks=8, planes=[b"\0", b"\0\0"]),
        types_pb2.TableOwners(table="w", blocks=0, planes=17 * [b""]),
        types_pb2.TableOwners(table="w", blocks=MAX_BLOCKS + 1, planes=[bytes(MAX_BLOCKS // 8 + 1)]),
    ],
)
def test_owners_that_cannot_be(message) -> None:
    with pytest.raises(InvalidRequest):
        owners_from_proto(message)


@pytest.mark.parametrize(
    "message",
    [
        types_pb2.BlockGroup(table="w", bitmap=b"\xff", block_ids=bytes(4)),
        types_pb2.BlockGroup(table="w", bitmap=b"\xff", base=MAX_BLOCKS),
        types_pb2.BlockGroup(table="w", bitmap=b"\x80", base=2**32 - 1),
        types_pb2.BlockGroup(table="w", bitmap=bytes(MAX_BLOCKS // 8 + 2)),
    ],
)
def test_moved_blocks_that_cannot_be(message) -> None:
    with pytest.raises(InvalidRequest):
        read_moved(message)


@pytest.mark.parametrize("counted", [{"clock": 1 << 63}, {"watermark": {"worker-0@1": 1 << 63}}])
def test_no_clock_and_no_push_is_beyond_what_arrays_hold(counted) -> None:
    moved = [types_pb2.BlockGroup(table="w", source=types_pb2.SOURCE_INITIAL, **counted)]
    with pytest.raises(InvalidRequest, match="beyond 2"):
        epoch_from_proto(types_pb2.Epoch(number=1, moved=moved))
