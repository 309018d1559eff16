"""A round's copy is made beside pushes: none waits for it, and it is of the moment at which it was begun."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar.v1 import ps_pb2
from scar_ps.core.block_snapshot import PieceCopy
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest_codec import object_ref_from_proto
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.store import open_store
from tests.component.ps_scene import SECONDS, Running, declared, first, run_pair

ALL = np.arange(8, dtype=np.uint32)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[Running]]:
    yield from run_pair(f"file://{tmp_path}")


@pytest.mark.parametrize("blocks", [None, [1, 5]])
def test_pushes_go_on_while_a_piece_is_copied_and_it_has_none_of_them(
    shards: list[Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: list[int] | None
) -> None:
    copying, go = threading.Event(), threading.Event()
    copy_now = PieceCopy.copy

    def copy_slowly(piece: PieceCopy) -> None:
        copying.set()
        assert go.wait(SECONDS)
        copy_now(piece)

    monkeypatch.setattr(PieceCopy, "copy", copy_slowly)
    shard, spec = shards[0], declared()
    shard.adopt(first(spec, shards), spec)
    shard.settle(1)
    shard.push({"w": (None, np.arange(24, dtype=np.float32))})
    shard.measure(1)
    replies: list[ps_pb2.SaveReply] = []
    saving = threading.Thread(target=lambda: replies.append(shard.save(1)))
    saving.start()
    assert copying.wait(SECONDS)
    count = 8 if blocks is None else len(blocks)
    shard.push({"w": (blocks, np.full(3 * count, 7, np.float32))})
    now, _ = shard.pull("w")
    assert saving.is_alive(), "the piece is still being copied"
    go.set()
    saving.join(SECONDS)
    assert now.reshape(8, 3)[5].tolist() == [22, 23, 24]
    store = open_store(f"file://{tmp_path}").under(spec.name)
    ref = object_ref_from_proto(replies[0].object)
    saved = read_blocks(store, ref, read_header(store, ref, spec), spec, "w", ALL)
    assert saved.values.tolist() == np.arange(24.0).tolist()
