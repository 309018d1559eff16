"""Any S3 by boto3: AWS, MinIO, SeaweedFS. What decides is ``PutObject`` with ``If-None-Match: *``.

boto3's own retries are off: it would repeat a create whose answer was lost and then report our own object as somebody else's.
Here a create that may have arrived is read back and compared. boto3's managed transfers are not used, because they know no
conditions; checksums only where S3 requires them, because some servers break on the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
)

from scar.errors import AlreadyExists, ConfigError, ObjectNotFound, ScarError, StoreFull, StoreUnavailable
from scar_runtime.store.base import Data, Store, joined

CONNECT_SECONDS = 2
READ_SECONDS = 5
CONNECTIONS = 16
WAITS = (0.1, 0.2, 0.4)  # seconds before each further attempt

_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a user who may read, write, list and delete in the bucket"
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401", "403")
_FULL = ("InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "507")
_BUSY = ("SlowDown", "RequestTimeout", "TooManyRequests", "429")

Answer = TypeVar("Answer")


def connect(endpoint: str, region: str) -> Any:  # botocore makes client classes at run time
    """A boto3 client; ``endpoint`` "" means AWS. Nothing is sent yet."""
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": 1},
        max_pool_connections=CONNECTIONS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else {},
    )
    session = boto3.session.Session()
    try:
        return session.client(
            "s3", endpoint_url=endpoint or None, region_name=region or session.region_name or "us-east-1", config=config
        )
    except ValueError as error:
        raise ConfigError(f"store endpoint {endpoint!r} is not valid", "Write endpoint=http://host:port") from error


class S3Store(Store):
    """Objects of one bucket below a prefix."""

    def __init__(self, url: str, client: Any, bucket: str, prefix: str = "") -> None:
        super().__init__(url, prefix)
        self._client = client
        self._bucket = bucket

    def put(self, key: str, data: Data) -> None:
        self._repeat(key, lambda: self._client.put_object(Bucket=self._bucket, Key=self._full(key), Body=joined(data)))

    def create(self, key: str, data: Data) -> None:
        body, full, maybe_ours = joined(data), self._full(key), False
        for wait in (0.0, *WAITS):
            time.sleep(wait * random.uniform(0.5, 1.5))
            try:
                self._client.put_object(Bucket=self._bucket, Key=full, Body=body, IfNoneMatch="*")
                return
            except (ClientError, BotoCoreError) as error:
                if _status(error) == 412:
                    break
                maybe_ours = maybe_ours or (_passing(error) and not isinstance(error, ConnectionError))
                failure = self._typed(key, error)
                if not _passing(error) and _status(error) != 409:  # 409: two creates at the same moment, nobody has won yet
                    raise failure from error
        else:
            if not maybe_ours:
                raise failure
        if maybe_ours and self._holds(key, body):
            return
        raise AlreadyExists(f"{self.url}: {key} exists already")

    def get(self, key: str) -> bytes:
        return self._read(key, {})

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        return self._read(key, {"Range": f"bytes={start}-{start + length - 1}"})

    def list(self, prefix: str = "") -> list[str]:
        skip = len(self.prefix) + 1 if self.prefix else 0
        pages = self._client.get_paginator("list_objects_v2")
        arguments = {"Bucket": self._bucket, "Prefix": f"{self.prefix}/{prefix}" if self.prefix else prefix}
        found = self._repeat(
            prefix, lambda: [entry["Key"] for page in pages.paginate(**arguments) for entry in page.get("Contents", ())]
        )
        return sorted(key[skip:] for key in found)

    def delete(self, key: str) -> None:
        self._repeat(key, lambda: self._client.delete_object(Bucket=self._bucket, Key=self._full(key)))

    def under(self, prefix: str) -> Self:
        return type(self)(self.url, self._client, self._bucket, self._full(prefix))

    def _read(self, key: str, arguments: dict[str, str]) -> bytes:
        def attempt() -> bytes:
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._full(key), **arguments)
            except ClientError as error:
                if _status(error) == 416:  # the object ends before the range starts
                    return b""
                if _code(error) in ("NoSuchKey", "404"):
                    raise ObjectNotFound(f"{self.url}: {key} does not exist") from error
                raise
            body: bytes = answer["Body"].read()
            return body

        return self._repeat(key, attempt)

    def _holds(self, key: str, body: bytes | bytearray) -> bool:
        """After a lost answer: is our object there?"""
        try:
            return self.get(key) == body
        except ObjectNotFound as error:
            raise StoreUnavailable(f"{self.url}: {key} could not be created") from error

    def _repeat(self, key: str, attempt: Callable[[], Answer]) -> Answer:
        for wait in WAITS:
            try:
                return attempt()
            except (ClientError, BotoCoreError) as error:
                if not _passing(error):
                    raise self._typed(key, error) from error
                time.sleep(wait * random.uniform(0.5, 1.5))
        try:
            return attempt()
        except (ClientError, BotoCoreError) as error:
            raise self._typed(key, error) from error

    def _typed(self, key: str, error: ClientError | BotoCoreError) -> ScarError:
        where = f"{self.url}: {key}" if key else self.url
        if isinstance(error, NoCredentialsError):
            return StoreUnavailable(f"{where}: no credentials were found", _CREDENTIALS)
        if not isinstance(error, ClientError):
            return StoreUnavailable(f"{where}: {error}")
        code = _code(error)
        if code == "NoSuchBucket":
            return StoreUnavailable(
                f"{where}: bucket {self._bucket!r} does not exist", "Create the bucket, or correct SCAR_STORE"
            )
        if code in _REFUSED or _status(error) in (401, 403):
            return StoreUnavailable(f"{where}: the store refuses the credentials ({code})", _CREDENTIALS)
        if code in _FULL or _status(error) == 507:
            return StoreFull(f"{where}: the store is full ({code})")
        return StoreUnavailable(f"{where}: {error}")


def _status(error: ClientError | BotoCoreError) -> int:
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) or str(_status(error))


def _passing(error: ClientError | BotoCoreError) -> bool:
    """True when another attempt may succeed. Unless no connection was made, this one may have been carried out, too."""
    if isinstance(error, ClientError):
        code = _code(error)
        return code not in _FULL and ((_status(error) >= 500 and _status(error) != 507) or code in _BUSY)
    return isinstance(error, ConnectionError | HTTPClientError | IncompleteReadError)
