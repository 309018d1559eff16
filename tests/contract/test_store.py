"""One suite for every store, and what each does in trouble of its own: here the directory, the rest in
test_store_s3.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scar.errors import (
    AlreadyExists,
    Busy,
    ConfigError,
    InvalidRequest,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    UnsafeStore,
)
from scar_runtime.store import Store, directory, open_store

# --- what every store does
# -------------------------------------------------------------------------------------------


def test_what_was_put_is_read(store: Store) -> None:
    store.put("a/b", b"one")
    store.put("a/b", [b"t", memoryview(b"w"), bytearray(b"o"), b""])
    assert store.get("a/b") == b"two"
    store.put("empty", b"")
    assert store.get("empty") == b""
    store.put("view", memoryview(b"12345678").cast("I"))
    assert store.get("view") == b"12345678"


def test_ranges_end_where_the_object_ends(store: Store) -> None:
    store.put("x", bytes(range(100)))
    assert store.get_range("x", 10, 5) == bytes(range(10, 15))
    assert store.get_range("x", 90, 50) == bytes(range(90, 100))
    assert store.get_range("x", 100, 5) == store.get_range("x", 1000, 5) == store.get_range("x", 3, 0) == b""


def test_absent_objects_have_their_own_error(store: Store) -> None:
    for read in (lambda: store.get("no/such"), lambda: store.get_range("no/such", 0, 4)):
        with pytest.raises(ObjectNotFound, match="no/such does not exist"):
            read()
    store.delete("no/such")


def test_create_refuses_what_exists(store: Store) -> None:
    store.create("n/1", [b"a", b"b"])
    with pytest.raises(AlreadyExists, match="n/1"):
        store.create("n/1", b"zz")
    with pytest.raises(AlreadyExists):  # not even with the same content: it may be somebody else's
        store.create("n/1", b"ab")
    assert store.get("n/1") == b"ab"
    store.delete("n/1")
    store.create("n/1", b"again")


def test_one_of_many_creates_wins(store: Store) -> None:
    def attempt(number: int) -> int:
        try:
            store.create("race", str(number).encode())
        except AlreadyExists:
            return -1
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(attempt, range(16)) if number >= 0]
    assert [store.get("race")] == [str(number).encode() for number in winners]


def test_listing_is_sorted_and_below_the_prefix(store: Store) -> None:
    for key in ("epochs/2", "epochs/10", "epochs/1", "epochs-old/1", "job", "objects/a/b"):
        store.put(key, b"")
    assert store.list("epochs/") == ["epochs/1", "epochs/10", "epochs/2"]
    assert store.list() == ["epochs-old/1", "epochs/1", "epochs/10", "epochs/2", "job", "objects/a/b"]
    assert store.list("objects/") == ["objects/a/b"]
    assert store.list("nothing/") == []


def test_sizes_are_those_of_the_objects(store: Store) -> None:
    store.under("one").put("a/b", b"12345")
    store.put("job", b"")
    assert store.under("one").sizes() == {"a/b": 5}
    assert store.sizes() == {"job": 0, "one/a/b": 5}


def test_prefixes_do_not_see_each_other(store: Store) -> None:
    one, two = store.under("one"), store.under("two/deep")
    one.create("k", b"1")
    two.create("k", b"2")
    assert (one.get("k"), two.get("k")) == (b"1", b"2")
    assert (one.list(), two.list(), store.list()) == (["k"], ["k"], ["one/k", "two/deep/k"])
    assert store.under("two").under("deep").get("k") == b"2"


def test_keys_cannot_leave_the_prefix(store: Store) -> None:
    for key in ("../x", "a/../x", "/etc/passwd", "", "a//b", "a b", "a\0b", ".", "a/" + 201 * "x"):
        for use in (
            store.get,
            store.delete,
            store.under,
            lambda key: store.put(key, b""),
            lambda key: store.create(key, b""),
        ):
            with pytest.raises(InvalidRequest, match="not valid"):
                use(key)


def test_large_objects_come_back(store: Store) -> None:
    piece = bytes(range(256)) * (1 << 12)
    store.put("large", [piece] * 20)
    assert store.get_range("large", 5 * len(piece) - 3, 6) == (piece + piece)[len(piece) - 3 : len(piece) + 3]
    assert len(store.get("large")) == 20 * len(piece)


def test_pieces_in_any_order_are_one_object(store: Store) -> None:
    first, last = bytes(range(256)) * (1 << 13), bytearray(b"end")  # the first is begun to be written early
    size = len(first)
    pieces = [(size, memoryview(b"....")), (size + 4, last), (0, first)]
    store.put("whole", b"before")
    store.put_pieces("whole", iter(pieces))
    assert store.get("whole") == first + b"....end"
    store.put_pieces("empty", iter([]))
    assert store.get("empty") == b""


def test_of_pieces_that_could_not_all_be_made_nothing_is_there(store: Store) -> None:
    def pieces() -> Iterator[tuple[int, bytes]]:
        yield 3, b"def"
        raise Busy("the rest cannot be made")

    with pytest.raises(Busy):
        store.put_pieces("half", pieces())
    assert store.list() == []


def test_a_safe_store_passes_the_probe_and_keeps_no_trace(store: Store) -> None:
    store.probe()
    assert store.list() == []


# --- addresses
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/var/lib/scar", "no known scheme"),
        ("http://host/x", "no known scheme"),
        ("file://var/lib/scar", "three slashes"),
        ("s3:///prefix", "bucket"),
        ("s3://Bad_Bucket!", "bucket"),
        ("s3://bucket?endpiont=x", "unknown option 'endpiont'"),
        ("s3://bucket?endpoint", "cannot be read"),
        ("s3://bucket?endpoint=not-a-url", "not valid"),
        ("s3://bucket/a//b", "prefix"),
    ],
)
def test_an_address_that_cannot_be_says_how_to_write_it(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        open_store(url)
    assert caught.value.next_step


# --- the directory's troubles
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "data"), [("put", b"data"), ("create", b"data"), ("put_pieces", [(0, b"data")])]
)
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, data: object
) -> None:
    store = open_store(f"file://{tmp_path}")

    def full(descriptor: int, buffers: list[memoryview], at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(StoreFull, match="No space left") as caught:
            getattr(store, write)("objects/x", data)
    assert "Free space" in caught.value.next_step
    assert store.list() == []
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    store.create("objects/x", b"data")


def test_a_write_in_small_steps_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, buffers, at: write(file, [buffers[0][:3]], at))
    store = open_store(f"file://{tmp_path}")
    store.put("x", [b"0123456", b"78", b"9"])
    assert store.get("x") == b"0123456789"


def test_a_file_in_the_way_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file"):
        open_store(f"file://{tmp_path}/file")


def test_a_disk_that_is_away_may_be_named(tmp_path: Path) -> None:
    store, away = open_store(f"file://{tmp_path / 'store'}"), tmp_path / "away"
    (tmp_path / "store").rename(away)
    (tmp_path / "store").touch()
    below = store.under("job")
    with pytest.raises(StoreUnavailable):
        below.put("x", b"")
    (tmp_path / "store").unlink()
    away.rename(tmp_path / "store")
    below.put("x", b"data")
    assert store.get("job/x") == b"data"


def test_a_directory_that_was_emptied_is_written_to_again(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path / 'store'}")
    shutil.rmtree(tmp_path / "store")
    store.under("job").put("x", b"data")
    assert store.get("job/x") == b"data"


def test_a_read_only_directory_says_who_must_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    monkeypatch.setattr(
        os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "Permission denied"))
    )
    with pytest.raises(StoreUnavailable, match="Permission denied") as caught:
        store.create("x", b"")
    assert "user" in caught.value.next_step


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTSUP, "not supported")))
    with pytest.raises(UnsafeStore, match="no hard links"):
        store.probe()


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}")
    old, young = tmp_path / ".tmp" / "old", tmp_path / ".tmp" / "young"
    for file in (old, young):
        file.write_text("")
    os.utime(old, (0, 0))
    store = open_store(f"file://{tmp_path}")
    assert (old.exists(), young.exists(), store.list()) == (False, True, [])


def test_what_is_being_written_is_swept_by_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    sync, swept = os.fsync, []

    def jump(descriptor: int) -> None:
        sync(descriptor)
        if not swept:
            swept.append(True)
            with monkeypatch.context() as patch:
                patch.setattr(directory.time, "time", lambda: time.monotonic() + 1e10)
                open_store(f"file://{tmp_path}")

    monkeypatch.setattr(os, "fsync", jump)
    store.put("x", b"data")
    assert (swept, store.get("x")) == ([True], b"data")


def test_the_folders_that_lead_to_an_object_are_durable_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = directory._sync_folder
    monkeypatch.setattr(
        directory,
        "_sync_folder",
        lambda folder: (synced.append(str(folder.relative_to(tmp_path))), sync(folder)),
    )
    store = open_store(f"file://{tmp_path}/new/root")
    assert {".", "new", "new/root"} <= set(synced)
    synced.clear()
    # another process makes the same folders
    open_store(f"file://{tmp_path}/new/root").put("job/epochs/1", b"")
    synced.clear()
    store.put("job/epochs/1", b"")
    assert set(synced) == {"new/root", "new/root/job", "new/root/job/epochs"}
    synced.clear()
    store.put("job/epochs/2", b"")
    assert synced == ["new/root/job/epochs"]
