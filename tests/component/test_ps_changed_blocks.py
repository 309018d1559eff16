"""Rounds by distance over real gRPC: they are of what has changed, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar.errors import InvalidRequest
from tests.component.ps_scene import Running, declared, first


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Running]:
    running = Running(0, f"file://{tmp_path}")
    yield running
    running.stop()


def test_what_is_chosen_from_changed_blocks_is_chosen_by_distance(shard: Running) -> None:
    spec = declared()
    shard.adopt(first(spec, [shard]), spec)
    shard.settle(1)
    shard.push({"w": ([2], np.ones(3, np.float32))})
    shard.measure(1)
    with pytest.raises(InvalidRequest, match="what has changed, not of 'full'"):
        shard.save(1, selection="full")
    shard.measure(2, skip=True)
    assert shard.save(2, selection="full").object.blocks > 1
