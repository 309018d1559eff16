"""Somebody else writes to the store of a running shard: what is not signed by its key is not believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scar.errors import ForgedRecord
from scar.placement import BlockGroup, BlockSource
from scar.wire.epoch_messages import epoch_to_proto
from scar_local.private_files import ensure_key
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest, object_ref_from_proto
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import epoch_key, manifest_key
from scar_runtime.store.records import put_record
from scar_runtime.store.signatures import read_key
from tests.component.ps_scene import SECONDS, Running, after, declared, first

IDS = np.arange(8, dtype=np.uint32)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Running]:
    ensure_key(tmp_path / "key")
    made = Running(0, f"file://{tmp_path}/store", store_key=str(tmp_path / "key"))
    yield made
    made.stop()


@pytest.fixture
def bucket(tmp_path: Path) -> Store:
    """As somebody sees it who has its credentials, and no key."""
    return open_store(f"file://{tmp_path}/store").under("job")


def test_a_shard_adopts_no_epoch_that_is_not_signed(shard: Running, bucket: Store) -> None:
    spec = declared()
    epoch = first(spec, [shard])
    asked = shard.publish(epoch, spec)
    put_record(bucket, epoch_key(1), epoch_to_proto(epoch))
    with pytest.raises(ForgedRecord, match="job/epochs/00000001"):
        shard.call(shard.control.Adopt, asked)
    shard.adopt(epoch, spec)
    put_record(bucket, epoch_key(2), epoch_to_proto(after(epoch)))
    with pytest.raises(ForgedRecord, match="job/epochs/00000002"):  # as when it has missed one
        shard.service._epochs.catch_up(SECONDS)
    assert shard.status().epoch == 1
    assert shard.pull("w")[0].tolist() == [0.0] * 24


@pytest.mark.parametrize("theft", ["none", "manifest", "object"])
def test_a_shard_loads_only_what_a_signed_manifest_vouches_for(
    shard: Running, bucket: Store, tmp_path: Path, theft: str
) -> None:
    spec = declared("asp")
    epoch = first(spec, [shard])
    shard.adopt(epoch, spec)
    shard.settle(1)
    shard.push({"w": (None, np.ones(24, np.float32))})
    shard.measure(1)
    saved = object_ref_from_proto(shard.save(1).object)
    signed = open_store(f"file://{tmp_path}/store", read_key(str(tmp_path / "key"))).under("job")
    manifest = Manifest(1, 0, "job", objects=(saved,))
    create_manifest(signed, manifest)
    if theft == "manifest":
        bucket.delete(manifest_key(1))
        create_manifest(bucket, replace(manifest, author="thief"))
    elif theft == "object":
        data = bytearray(bucket.get(saved.key))
        data[saved.header_bytes : saved.header_bytes + 12] = np.full(3, 6.66, "<f4").tobytes()
        bucket.put(saved.key, bytes(data))
    moved = BlockGroup("w", IDS, former_owner="", source=BlockSource.OBJECT, object_key=saved.key)
    second = after(epoch, moved=(moved,), manifest=1, rollback=True)
    shard.call(shard.control.Adopt, shard.publish(second, spec))
    if theft == "none":
        assert shard.pull("w", epoch=2)[0].tolist() == [1.0] * 24
        return
    while not (found := shard.status().unreadable):
        shard.process.stopping.wait(0.01)
    words = {"manifest": "manifests/00000001 is not signed", "object": "is damaged"}
    assert words[theft] in found[0].reason
