"""What a thief of the bucket writes is not believed: records of no key, of another, at another place."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from scar.errors import ConfigError, ForgedRecord, StoreError
from scar.tables import Job, Table
from scar.v1 import recovery_pb2, types_pb2
from scar_local.private_files import ensure_key
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest, read_manifest
from scar_runtime.checkpoint.running_checkpoint import load_newest, newest_manifest
from scar_runtime.store import Store, open_store
from scar_runtime.store.layout import epoch_key, manifest_key, owner_key
from scar_runtime.store.pins import Pins, pinned
from scar_runtime.store.records import FORGED, create_record, get_record, put_record
from scar_runtime.store.signatures import StoreKey, find_key, key_beside, read_key

KEY = StoreKey(b"the key of this cluster")
JOB = Job("job", [Table("w", (4, 2))])
EPOCH = types_pb2.Epoch(
    number=3, job="job", author="0123456789ab", moved=[{"table": "w", "block_ids": b"\0\1"}]
)


@pytest.fixture
def root(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/store", KEY)


@pytest.fixture
def store(root: Store) -> Store:
    return root.under("job")


def unsigned(store: Store) -> Store:
    return store.signed_by(None)


def test_what_is_signed_comes_back_and_people_may_read_it_without_the_key(store: Store) -> None:
    create_record(store, epoch_key(3), EPOCH)
    assert get_record(store, epoch_key(3), types_pb2.Epoch) == EPOCH
    assert get_record(unsigned(store), epoch_key(3), types_pb2.Epoch) == EPOCH
    assert str(KEY.secret) not in repr(KEY)


@pytest.mark.parametrize("forger", [None, StoreKey(b"the key of another cluster")])
def test_what_has_no_signature_or_another_key_s_is_refused(store: Store, forger: StoreKey | None) -> None:
    put_record(store.signed_by(forger), epoch_key(3), EPOCH)
    before = FORGED._value.get()
    with pytest.raises(ForgedRecord, match="job/epochs/00000003 is not signed"):
        get_record(store, epoch_key(3), types_pb2.Epoch)
    assert FORGED._value.get() == before + 1


def test_a_record_stands_for_no_other_one(root: Store) -> None:
    job, other = root.under("job"), root.under("other")
    create_record(job, epoch_key(3), EPOCH)
    for store, key in ((job, epoch_key(4)), (other, epoch_key(3)), (job, owner_key(3))):
        store.put(key, job.get(epoch_key(3)))
        with pytest.raises(ForgedRecord):
            get_record(store, key, types_pb2.Epoch)
    job.put(owner_key(4), job.get(epoch_key(3)).replace(b" Epoch ", b" JobOwner "))
    with pytest.raises(ForgedRecord):
        get_record(job, owner_key(4), recovery_pb2.JobOwner)


def test_every_bit_flip_of_a_signed_record_is_refused(store: Store) -> None:
    create_record(store, epoch_key(3), EPOCH)
    data = store.get(epoch_key(3))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        store.put(epoch_key(3), bytes(flipped))
        with pytest.raises(StoreError):
            get_record(store, epoch_key(3), types_pb2.Epoch)


def test_a_whole_store_may_be_copied_elsewhere(root: Store, tmp_path: Path) -> None:
    create_record(root.under("job"), epoch_key(3), EPOCH)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    moved = open_store(f"file://{tmp_path}/elsewhere", KEY).under("job")
    assert get_record(moved, epoch_key(3), types_pb2.Epoch) == EPOCH


def test_a_forged_manifest_is_passed_over_like_a_damaged_one(store: Store) -> None:
    create_manifest(store, Manifest(1, 0, "job", "us", clock=5))
    create_manifest(unsigned(store), Manifest(2, 1, "job", "thief", clock=6))
    found = newest_manifest(store)
    assert found is not None
    assert (found.number, found.clock) == (1, 5)
    running = load_newest(store, JOB)
    assert (running.manifest.number, running.passed_over) == (1, [2])


def test_a_manifest_put_back_under_a_newer_number_is_passed_over(store: Store) -> None:
    for number in (1, 2):
        create_manifest(store, Manifest(number, number - 1, "job", "us"))
    store.put(manifest_key(3), store.get(manifest_key(1)))
    with pytest.raises(ForgedRecord):
        read_manifest(store, 3)


def test_who_reads_needs_no_key_to_pin(store: Store) -> None:
    with pinned(unsigned(store), [7], "somebody") as problem:
        assert problem == ""
        assert Pins(store, lambda: 0.0).manifests() == {7}


# --- the key itself


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    assert find_key(url) is None
    path = key_beside(url)
    assert path == tmp_path / "store.key"
    ensure_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = find_key(url)
    ensure_key(path)
    assert first == find_key(url) == read_key(str(path))
    assert first is not None
    assert len(first.secret) == 64
    assert key_beside("s3://bucket/prefix") is None


def test_the_environment_names_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_key(tmp_path / "store.key")
    (tmp_path / "other").write_text("0123456789abcdef\n")
    monkeypatch.setenv("SCAR_STORE_KEY", str(tmp_path / "other"))
    assert find_key(f"file://{tmp_path}/store") == StoreKey(b"0123456789abcdef")


@pytest.mark.parametrize(
    "spoil",
    [lambda path: None, lambda path: path.write_text("short"), lambda path: path.write_bytes(bytes(5000))],
)
def test_a_key_that_is_none_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(tmp_path / "key")
    with pytest.raises(ConfigError, match="the store's key"):
        read_key(str(tmp_path / "key"))
    assert read_key("") is None
