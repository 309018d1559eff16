"""S3 in trouble: lost answers, conflicts, throttling, wrong credentials, a store that ignores conditions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest

from scar.errors import (
    AlreadyExists,
    ScarError,
    StoreFull,
    StoreUnavailable,
    UnsafeStore,
)
from scar_runtime.store import open_store, s3
from scar_runtime.store.s3 import S3Store
from tests.contract.stores import BUCKET, Fault, FaultyS3, at, free_port

# --- S3's troubles
# ---------------------------------------------------------------------------------------------------


def puts(environ: dict[str, Any]) -> bool:
    return environ["REQUEST_METHOD"] == "PUT"


def once(fault: str, concerns: Callable[[dict[str, Any]], bool] = puts) -> Fault:
    """The fault hits the first request that it concerns."""
    left = [fault]
    return lambda environ: left.pop() if left and concerns(environ) else ""


@pytest.mark.parametrize(
    "fault", ["drop", "500 InternalError", "503 SlowDown", "409 ConditionalRequestConflict"]
)
def test_a_create_survives_a_lost_answer_and_a_passing_fault(
    faulty: FaultyS3, tmp_path: Path, fault: str
) -> None:
    store = at(faulty.url, tmp_path)
    faulty.fault = once(fault)
    store.create("epochs/1", b"ours")
    assert store.get("epochs/1") == b"ours"
    assert faulty.seen.count("PUT") == 2


@pytest.mark.parametrize("fault", ["drop", "500 InternalError", "409 ConditionalRequestConflict"])
def test_a_create_that_was_lost_to_another_is_told_apart(
    faulty: FaultyS3, tmp_path: Path, fault: str
) -> None:
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


PAGES = (
    "<html><p>oops</p></html>",
    "<html>oops<p></html>",
    "<Error><Code>InternalError</Code></Error>",
    "<cut><Key>p/manif",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_http_200_is_no_answer(faulty: FaultyS3, tmp_path: Path, page: str) -> None:
    store = at(faulty.url, tmp_path)
    store.put("x", b"data")
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.get("x"),
        lambda: store.get_range("x", 0, 2),
        lambda: store.list(),
        lambda: store.put("y", b"new"),
        lambda: store.create("z", b"ours"),
        lambda: store.delete("gone"),
    )
    store.put("gone", b"")
    for use in uses:
        faulty.fault = lambda environ: page
        with pytest.raises(StoreUnavailable):
            use()
        faulty.fault = once(page, lambda environ: True)
        use()
    assert [store.get(key) for key in store.list()] == [b"data", b"new", b"ours"]


def test_only_the_stores_own_refusal_says_that_somebody_was_first(faulty: FaultyS3, tmp_path: Path) -> None:
    store = at(faulty.url, tmp_path)
    store.create("epochs/1", b"theirs")
    faulty.fault = lambda environ: PAGES[0] if puts(environ) else ""
    with pytest.raises(StoreUnavailable, match="epochs/1"):
        store.create("epochs/1", b"ours")
    faulty.fault = once(PAGES[0])
    with pytest.raises(AlreadyExists):
        store.create("epochs/1", b"ours")


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
    for use in (
        lambda: store.get("x"),
        lambda: store.list(),
        lambda: store.delete("x"),
        lambda: store.create("x", b""),
    ):
        faulty.seen.clear()
        with pytest.raises(StoreUnavailable, match="training continues"):
            use()
        assert len(faulty.seen) <= 2 * (1 + len(s3.WAITS))


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("507 InsufficientStorage", StoreFull, "Free space"),
        ("503 XMinioStorageFull", StoreFull, "Free space"),
        ("403 InvalidAccessKeyId", StoreUnavailable, "AWS_ACCESS_KEY_ID"),
        ("403 SignatureDoesNotMatch", StoreUnavailable, "AWS_SECRET_ACCESS_KEY"),
        ("403 RequestTimeTooSkewed", StoreUnavailable, "clock"),
        ("404 NoSuchBucket", StoreUnavailable, "Create the bucket"),
        # a store that is being put together again; nothing is missing
        ("404 NoSuchKey", StoreUnavailable, "NoSuchKey"),
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


def test_missing_credentials_are_named(
    moto: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreUnavailable, match="AWS_ACCESS_KEY_ID"):
        open_store(f"s3://{BUCKET}?endpoint={moto.url}").get("x")


def test_a_store_that_ignores_conditions_is_refused(faulty: FaultyS3, tmp_path: Path) -> None:
    def ignore(environ: dict[str, Any]) -> str:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return ""

    faulty.fault = ignore
    with pytest.raises(UnsafeStore, match="8 of 8"):
        at(faulty.url, tmp_path).probe()


def test_real_seaweedfs_refuses_wrong_credentials(weed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnavailable, match="refuses the credentials"):
        open_store(f"s3://{BUCKET}?endpoint={weed}").create("x", b"")


@pytest.mark.parametrize("way", ["put", "create"])
def test_what_is_damaged_on_its_way_is_refused_and_sent_again(weed: str, tmp_path: Path, way: str) -> None:
    """Without TLS nobody but its MD5, which the request's signature covers, tells."""
    store = at(weed, tmp_path)
    assert isinstance(store, S3Store)
    sent: list[Any] = []
    events = store._client.meta.events

    def damage(request: AWSPreparedRequest, **_: object) -> None:
        sent.append(request.headers)
        if len(sent) == 1:
            request.body = b"what was moved"

    events.register("before-send.s3.PutObject", damage)
    try:
        getattr(store, way)("a", b"what was meant")
    finally:
        events.unregister("before-send.s3.PutObject", damage)
    assert store.get("a") == b"what was meant"
    assert len(sent) == 2
    assert sent[0]["X-Amz-Content-SHA256"] == b"UNSIGNED-PAYLOAD"
    assert b"content-md5;" in sent[0]["Authorization"]


def test_an_endpoint_of_the_librarys_own_variable_is_told_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_digest(url: str) -> bool:
        store = open_store(url)
        assert isinstance(store, S3Store)
        return store._with_digest

    assert with_digest("s3://models?endpoint=http://127.0.0.1:1")
    assert not with_digest("s3://models?endpoint=https://127.0.0.1:1")
    assert not with_digest("s3://models")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert with_digest("s3://models")
