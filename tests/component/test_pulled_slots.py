"""Slots and steps that are pulled beside values, from a shard behind real gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar import tables
from scar._client.pulls import receive_tensors
from scar.errors import InvalidRequest
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.small_message import HEADER_BYTES
from tests.component.ps_scene import SECONDS, Running, declared, first, run_pair


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[Running]]:
    yield from run_pair(f"file://{tmp_path}")


SLOTTED = Table("slotted", (6, 1000), rule=tables.adam(0.1))


SLOT_PARTS = ("", "slot:first", "slot:second", "steps")


def pull_parts(shard, size, table="slotted", exact_clock=0, **changes):
    """Values, slots and steps of two blocks, as a worker asks for them. ``changes``: of what is asked."""
    asked = {"block_ids": codec.ids_to_bytes(np.array([1, 4], np.uint32)), "slots": True} | changes
    wanted = [ps_pb2.TableBlocks(table=table, **asked)]
    request = ps_pb2.PullRequest(tables=wanted, epoch=1, min_clock=1, exact_clock=exact_clock, contents=True)
    buffers = {(table, name): np.zeros(2000, np.float32) for name in SLOT_PARTS}
    buffers[table, "steps"] = np.zeros(2, np.int64)
    reply = receive_tensors(shard.link.pull(request, SECONDS, size), buffers, "ps-0")
    assert (reply.clock, list(reply.contents)) == (1, [table]), "slots say nothing else"
    return {name: buffer for (_, name), buffer in buffers.items()}


@pytest.mark.parametrize("size", [None, 3 * 8000 + 16 + 3 * HEADER_BYTES, 1 << 20])
def test_slots_and_steps_are_pulled_as_values_are(shards, size):
    """As a stream, in one message, by shared memory."""
    shard = shards[0]
    spec = declared("bsp", SLOTTED)
    shard.adopt(first(spec, shards), spec)
    shard.settle(1)
    pushed = np.random.default_rng(0).normal(size=6000).astype(np.float32)
    shard.push({"slotted": (None, pushed)})
    shard.clock(1)
    store = shard.service.state.ownership.tables["slotted"]
    at = np.array([1, 4])
    contents = store.copy_blocks(at)
    found = pull_parts(shard, size)
    assert found[""].tobytes() == contents.values.tobytes()
    assert found["slot:first"].tobytes() == contents.slots["first"].tobytes()
    assert found["slot:second"].any()
    assert found["slot:second"].tobytes() == contents.slots["second"].tobytes()
    assert found["steps"].tolist() == [1, 1]
    for changes in ({"bfloat16": True}, {"rows": codec.ids_to_bytes(np.array([0], np.uint32))}):
        with pytest.raises(InvalidRequest, match="are of whole blocks, as they are now"):
            pull_parts(shard, size, **changes)
    with pytest.raises(InvalidRequest, match="as they are now"):
        pull_parts(shard, size, exact_clock=2)


def test_slots_of_keys_are_not_pulled(shards):
    keyed = Table("keyed", keys="int64", dim=4, capacity=640)
    spec = declared("bsp", keyed)
    shards[0].adopt(first(spec, shards), spec)
    shards[0].clock(1)
    with pytest.raises(InvalidRequest, match="which has keys"):
        pull_parts(shards[0], None, "keyed", block_ids=b"", dense=True)
