"""S3 in memory, on a host of the simulated network: what boto3's client does for the services' own S3 store,
with the faults of a real one.

A request is a message to the server, where it is carried out whatever becomes of its client, and a message
back.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import md5
from types import SimpleNamespace
from typing import Any, NamedTuple

import boto3.session
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
)

from tests.simulation.network import Network
from tests.simulation.scheduler import Host, Task
from tests.simulation.troubles import Troubles

FASTEST, MEAN = 0.002, 0.008  # seconds for a request
NO_ANSWER = 5.0  # seconds after which the client gives up
LATE = 10.0  # mean seconds after that, when a request is carried out late
PAGE = 100  # keys of a listing; between two pages the bucket changes
SKEW = 900.0  # seconds by which a client's clock may be wrong
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>upstream sent too big header</body></html>\n"
URL = "http://s3:1"

S3Reply = dict[str, Any]

# What may happen to a request, in this order; the amount of such a trouble is the share of the requests.
SHARES = ("refused", "silent", "busy", "garbled", "lost", "late", "cut", "stalled", "conflict")
REFUSALS = {
    "busy": ("SlowDown", 503),
    "conflict": ("ConditionalRequestConflict", 409),
    "denied": ("ExpiredToken", 403),
    "full": ("XMinioStorageFull", 507),
    "skewed": ("RequestTimeTooSkewed", 403),
}


class S3Request(NamedTuple):
    """``effect``: what it does to the objects."""

    operation: str
    key: str
    effect: Callable[[], S3Reply]
    size: int = 0  # bytes of its body
    conditional: bool = False

    @property
    def writes(self) -> bool:
        return self.operation in ("PutObject", "DeleteObject")

    def concerns(self, trouble: str) -> bool:
        """Whether such a trouble can hit it."""
        if trouble in ("cut", "stalled"):
            return self.operation == "GetObject"
        return trouble != "conflict" or self.conditional


class Bucket:
    """``troubles``: those of :data:`SHARES`, "denied", "full", and "slow" with its seconds for a byte.

    ``damaged``: keys of objects that are not as they were written. ``unread``: hosts whose reads of saved
    blocks are refused. ``write_through``: hears of what is changed by hand, where the objects lie on a disk
    in truth.
    """

    def __init__(self, network: Network, seed: int) -> None:
        self.network = network
        self.host = network.scheduler.host("store")
        self.objects: dict[str, bytes] = {}
        self.damaged: set[str] = set()
        self.unread: list[str] = []
        self.troubles = Troubles()
        self.write_through: Callable[[str, bytes | None], None] = lambda _key, _body: None
        self.random = random.Random(f"bucket {seed}")

    def fate(self, request: S3Request, client: Host) -> str:
        """What happens to a request; empty: it is answered."""
        now = self.network.scheduler.now
        if abs(client.wall(now) - self.host.wall(now)) > SKEW:
            return "skewed"
        if client.name in self.unread and request.operation == "GetObject" and "/objects/" in request.key:
            return "busy"
        if not self.troubles:
            return ""
        if self.troubles["denied"]:
            return "denied"
        for kind in SHARES:
            if (share := self.troubles[kind]) and request.concerns(kind) and self.random.random() < share:
                return kind
        return "full" if self.troubles["full"] and request.operation == "PutObject" else ""

    # --- damage for good -----------------------------------------------------------------------------------

    def flip_bit(self, key: str, place: float) -> None:
        """``place``: where, as a share of the object's length."""
        body = bytearray(self.objects[key])
        if body:
            body[int(place * len(body))] ^= 0x10
            self._damage(key, bytes(body))

    def truncate(self, key: str, place: float) -> None:
        """Only this share of it is left."""
        self._damage(key, self.objects[key][: int(place * len(self.objects[key]))])

    def replace_object(self, key: str, other: str) -> None:
        """It has the content of another one."""
        self._damage(key, self.objects[other])

    def remove(self, key: str) -> None:
        """As somebody who tidies up by hand."""
        self.network.scheduler.record(f"remove {key}")
        self.damaged.add(key)
        del self.objects[key]
        self.write_through(key, None)

    def _damage(self, key: str, body: bytes) -> None:
        self.network.scheduler.record(f"damage {key}")
        self.damaged.add(key)
        self.objects[key] = body
        self.write_through(key, body)


class S3Exchange:
    """A request that is under way. ``over``: its client knows how it ended, or has given up."""

    def __init__(self, bucket: Bucket, request: S3Request, task: Task, fate: str) -> None:
        self._bucket, self._request, self._task, self._fate = bucket, request, task, fate
        self._answer: S3Reply | Exception | None = None
        self.over = False

    def await_answer(self) -> S3Reply:
        scheduler = self._bucket.network.scheduler
        self._bucket.network.send(self._task.host, self._bucket.host, self._arrive)
        try:
            scheduler.park(scheduler.now + self._upload_seconds + NO_ANSWER)
        finally:
            self.over = True
        if self._answer is None:
            raise ReadTimeoutError(endpoint_url=URL)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    @property
    def _upload_seconds(self) -> float:
        return self._request.size * self._bucket.troubles["slow"]

    def _arrive(self) -> None:
        """Called at the server, outside of every task, as everything that follows."""
        bucket, scheduler = self._bucket, self._bucket.network.scheduler
        if not bucket.host.alive or self._fate == "silent":
            return
        if bucket.host.paused_until > scheduler.now:
            scheduler.at(bucket.host.paused_until, self._arrive)
        elif self._fate in REFUSALS:
            self._reply(refusal(self._fate, self._request.operation))
        elif self._fate == "garbled":
            page = {"Body": Body(bucket, HTML, ""), "ResponseMetadata": {"HTTPStatusCode": 200}}
            self._reply(page)
        else:
            late = NO_ANSWER + bucket.random.expovariate(1 / LATE) if self._fate == "late" else 0.0
            delay = FASTEST + bucket.random.expovariate(1 / MEAN) + self._upload_seconds + late
            scheduler.at(scheduler.now + delay, self._carry_out)

    def _carry_out(self) -> None:
        answer: S3Reply | Exception
        try:
            answer = self._request.effect()
        except ClientError as error:
            answer = error
        scheduler = self._bucket.network.scheduler
        scheduler.event(self._task.host, f"done {self._request.operation} {self._request.key}")
        if isinstance(answer, dict) and "Body" in answer:
            answer["Body"] = Body(self._bucket, answer["Body"], self._fate)
        if self._fate == "lost" and self._bucket.random.random() < 0.5:
            answer = ConnectionClosedError(endpoint_url=URL)
        elif self._fate in ("lost", "late"):
            return
        self._reply(answer)

    def _reply(self, answer: S3Reply | Exception) -> None:
        def deliver() -> None:
            if not self.over:
                self._answer = answer
                self._bucket.network.scheduler.unpark(self._task)

        self._bucket.network.send(self._bucket.host, self._task.host, deliver)


class Body:
    """The content of an object, on its way to its reader. ``trouble``: "cut", "stalled" or empty."""

    def __init__(self, bucket: Bucket, content: bytes, trouble: str) -> None:
        self._bucket, self._content, self._trouble = bucket, content, trouble

    def read(self) -> bytes:
        scheduler, size = self._bucket.network.scheduler, len(self._content)
        slow = self._bucket.troubles["slow"]
        if slow and scheduler.current is not None:
            scheduler.sleep(size * slow)
        if self._trouble == "cut":
            raise IncompleteReadError(actual_bytes=size // 2, expected_bytes=size)
        if self._trouble == "stalled":
            scheduler.sleep(NO_ANSWER)
            raise ReadTimeoutError(endpoint_url=URL)
        return self._content


class S3Client:
    """What the store uses of boto3's client."""

    meta = SimpleNamespace(endpoint_url=URL)

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put_object(self, **named: Any) -> S3Reply:
        key, body, conditional = named["Key"], bytes(named["Body"]), "IfNoneMatch" in named

        def put() -> S3Reply:
            if "ContentMD5" in named and named["ContentMD5"] != digest_of(body):
                raise client_error("BadDigest", 400, "PutObject")
            if conditional and key in self._bucket.objects:
                raise client_error("PreconditionFailed", 412, "PutObject")
            self._bucket.objects[key] = body
            self._bucket.damaged.discard(key)
            return {"ETag": "etag"}

        return self._request(S3Request("PutObject", key, put, len(body), conditional))

    def get_object(self, **named: Any) -> S3Reply:
        def get() -> S3Reply:
            if named["Key"] not in self._bucket.objects:
                raise client_error("NoSuchKey", 404, "GetObject")
            body = self._bucket.objects[named["Key"]]
            if "Range" in named:
                first, last = map(int, named["Range"].removeprefix("bytes=").split("-"))
                if first >= len(body):
                    raise client_error("InvalidRange", 416, "GetObject")
                body = body[first : last + 1]
            return {"ETag": "etag", "Body": body}

        return self._request(S3Request("GetObject", named["Key"], get))

    def delete_object(self, **named: Any) -> S3Reply:
        def delete() -> S3Reply:
            self._bucket.objects.pop(named["Key"], None)
            return {"ResponseMetadata": {"HTTPStatusCode": 204}}

        return self._request(S3Request("DeleteObject", named["Key"], delete))

    def get_paginator(self, _operation: str) -> S3Client:
        return self

    def paginate(self, **named: Any) -> Iterator[S3Reply]:
        prefix, after = named["Prefix"], ""

        def list_page() -> S3Reply:
            keys = sorted(key for key in self._bucket.objects if key.startswith(prefix) and key > after)
            found = [{"Key": key, "Size": len(self._bucket.objects[key])} for key in keys[:PAGE]]
            return {"IsTruncated": len(keys) > PAGE, "Contents": found}

        while True:
            page = self._request(S3Request("ListObjectsV2", prefix, list_page))
            yield page
            if not page.get("IsTruncated"):
                return
            after = page["Contents"][-1]["Key"]

    def _request(self, request: S3Request) -> S3Reply:
        """Outside of every task it takes no time, and no fault concerns it."""
        bucket, scheduler = self._bucket, self._bucket.network.scheduler
        task = scheduler.current
        if task is None:
            answer = request.effect()
            return {**answer, "Body": Body(bucket, answer["Body"], "")} if "Body" in answer else answer
        scheduler.event(task.host, f"send {request.operation} {request.key}")
        fate = bucket.fate(request, task.host)
        if fate == "refused" or not bucket.host.alive:
            scheduler.sleep(0.001)
            raise EndpointConnectionError(endpoint_url=URL)
        return S3Exchange(bucket, request, task, fate).await_answer()


def refusal(trouble: str, operation: str) -> ClientError:
    return client_error(*REFUSALS[trouble], operation)


def digest_of(body: bytes) -> str:
    return b64encode(md5(body, usedforsecurity=False).digest()).decode()


def client_error(code: str, status: int, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)


def install(bucket: Bucket) -> None:
    """From now on every client of S3 is one of this bucket."""

    class Session:
        region_name = "simulated"

        def client(self, _service: str, **_: Any) -> S3Client:
            return S3Client(bucket)

    boto3.session.Session = Session
