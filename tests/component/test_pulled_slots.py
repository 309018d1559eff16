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
from tests.component.ps_scene import SECONDS, Running, declared, first


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[Running]]:
    made = [Running(number, f"file://{tmp_path}") for number in range(2)]
    yield made
    for shard in made:
        shard.stop()


SLOTTED = Table("slotted", (6, 1000), rule=tables.adam(0.1))


SLOT_PARTS = ("", "slot:first", "slot:second", "steps")


def pull_parts(shard, size, *names, exact_clock=0, **changes):
    """These parts of two blocks, as a worker asks for them. ``changes``: of what is asked of each."""
    ids = codec.ids_to_bytes(np.array([1, 4], np.uint32))
    wanted = [
        ps_pb2.TableBlocks(table="slotted", part=name, **({"block_ids": ids} | changes)) for name in names
    ]
    request = ps_pb2.PullRequest(tables=wanted, epoch=1, min_clock=1, exact_clock=exact_clock)
    buffers = {("slotted", name): np.zeros(2000, np.float32) for name in names}
    if "steps" in names:
        buffers["slotted", "steps"] = np.zeros(2, np.int64)
    receive_tensors(shard.link.pull(request, SECONDS, size), buffers, "ps-0")
    return {name: buffer for (_, name), buffer in buffers.items()}


@pytest.mark.parametrize("size", [None, 3 * 8000 + 16, 1 << 20])
def test_slots_and_steps_are_pulled_as_values_are(shards, size):
    """As a stream, in one message, by shared memory."""
    shard = shards[0]
    spec = declared("bsp", SLOTTED)
    shard.adopt(first(spec, shards), spec)
    pushed = np.random.default_rng(0).normal(size=6000).astype(np.float32)
    shard.push({"slotted": (None, pushed)})
    shard.clock(1)
    store = shard.service.state.ownership.tables["slotted"]
    at = np.array([1, 4])
    contents = store.copy_blocks(at)
    found = pull_parts(shard, size, *SLOT_PARTS)
    assert found[""].tobytes() == contents.values.tobytes()
    assert found["slot:first"].tobytes() == contents.slots["first"].tobytes()
    assert found["slot:second"].any()
    assert found["slot:second"].tobytes() == contents.slots["second"].tobytes()
    assert found["steps"].tolist() == [1, 1]
    for name in ("slot:third", "first", "values"):
        with pytest.raises(InvalidRequest, match="has no part"):
            pull_parts(shard, size, name)
    for changes in ({"bfloat16": True}, {"rows": codec.ids_to_bytes(np.array([0], np.uint32))}):
        with pytest.raises(InvalidRequest, match="is of whole blocks, as they are now"):
            pull_parts(shard, None, "slot:first", **changes)
    with pytest.raises(InvalidRequest, match="as they are now"):
        pull_parts(shard, size, "slot:first", exact_clock=2)
