"""Any S3 by boto3: AWS, MinIO, SeaweedFS. What decides is ``PutObject`` with ``If-None-Match: *``.

boto3's own retries are off: it would repeat a create whose answer was lost and then report our own object as
somebody else's. Here a create that may have arrived is read back and compared. boto3's managed transfers are
not used, because they know no conditions; checksums only where S3 requires them, because some servers break
on the others. Without TLS boto3 would sign the SHA-256 of each payload, which takes half as long as to send
it: the signature covers its MD5 instead, which servers compare, too.

A broken proxy may answer HTTP 200 with a page of its own. boto3 takes that for an empty success, so every
answer must carry what S3 always says: an ETag, or whether a listing goes on.
"""

from __future__ import annotations

import base64
import hashlib
import random
import re
import time
from collections.abc import Callable
from copy import copy
from http import HTTPStatus
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, parse_qs

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    SSLError,
)

from scar.errors import (
    AlreadyExists,
    ConfigError,
    InvalidRequest,
    ObjectNotFound,
    ScarError,
    StoreFull,
    StoreUnavailable,
)
from scar_runtime.store.base import Data, Store, joined
from scar_runtime.store.schemes import CA_FILE

CONNECT_SECONDS = 2
READ_SECONDS = 5
CONNECTIONS = 16
WAITS = (0.1, 0.2, 0.4)  # seconds before each further attempt

_EXAMPLE = "Write s3://bucket/prefix?endpoint=http://host:port&region=us-east-1"
_OPTIONS = ("endpoint", "region")
_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a user who may read, write, list and delete in the"
    " bucket"
)
_CLOCK = "Set this machine's clock: a store refuses requests that are more than 15 minutes wrong"
_CERTIFICATE = f"Set {CA_FILE} to a file with the certificates of the CA that signed the store's"
_REFUSED = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "401",
    "403",
)
_FULL = ("InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "507")
# it is busy, or what it got was damaged on its way
_PASSING = ("SlowDown", "RequestTimeout", "TooManyRequests", "429", "BadDigest")

S3Answer = TypeVar("S3Answer")


class _Garbled(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """HTTP 200 without what S3 always says; whether the request was carried out is not known."""

    fmt = "HTTP 200 without {missing} is no answer of S3: is there a proxy in front of it?"


def open_bucket(url: str, parts: SplitResult) -> S3Store:
    """The store behind ``s3://bucket/prefix?endpoint=...&region=...``; nothing is asked of the server yet.

    Raises :class:`ConfigError` for an invalid URL.
    """
    try:
        options = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"store {url!r} has options that cannot be read", _EXAMPLE) from error
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"store {url!r} has an unknown option {name!r}", _EXAMPLE)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc):
        raise ConfigError(f"store {url!r} has no valid bucket name", _EXAMPLE)
    endpoint, region = (options.get(name, [""])[-1] for name in _OPTIONS)
    client = connect(endpoint, region)
    without_tls = client.meta.endpoint_url.startswith("http:")  # boto3's own variables may name it, too
    bucket = S3Store(url, client, parts.netloc, with_digest=without_tls)
    prefix = parts.path.strip("/")
    try:
        return bucket.under(prefix) if prefix else bucket
    except InvalidRequest as error:
        raise ConfigError(f"store {url!r} has a prefix that is not valid", error.next_step) from error


def connect(endpoint: str, region: str) -> Any:  # botocore makes client classes at run time
    """A boto3 client; ``endpoint`` "" means AWS. Nothing is sent yet."""
    addressing = {"addressing_style": "path"} if endpoint else {}
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": 1},
        max_pool_connections=CONNECTIONS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"payload_signing_enabled": False, **addressing},
    )
    session = boto3.session.Session()
    try:
        return session.client(
            "s3",
            endpoint_url=endpoint or None,
            region_name=region or session.region_name or "us-east-1",
            config=config,
        )
    except ValueError as error:
        raise ConfigError(
            f"store endpoint {endpoint!r} is not valid", "Write endpoint=http://host:port"
        ) from error


class S3Store(Store):
    """Objects of one bucket below a prefix. ``with_digest``: only the MD5 of what is put guards it."""

    def __init__(
        self, url: str, client: Any, bucket: str, prefix: str = "", with_digest: bool = False
    ) -> None:
        super().__init__(url, prefix)
        self._client = client
        self._bucket = bucket
        self._with_digest = with_digest

    def put(self, key: str, data: Data) -> None:
        arguments = self._put_arguments(key, joined(data))
        self._retry_call(key, lambda: _check_genuine(self._client.put_object(**arguments), "ETag"))

    def create(self, key: str, data: Data) -> None:
        body = joined(data)
        arguments = self._put_arguments(key, body)
        maybe_ours = False
        for wait in (0.0, *WAITS):
            time.sleep(wait * random.uniform(0.5, 1.5))
            try:
                _check_genuine(self._client.put_object(**arguments, IfNoneMatch="*"), "ETag")
                return
            except (ClientError, BotoCoreError) as error:
                if _http_status(error) == 412:
                    if maybe_ours and self._already_holds(key, body):
                        return
                    raise AlreadyExists(f"{self.url}: {key} exists already") from error
                maybe_ours = maybe_ours or (_is_passing(error) and not isinstance(error, ConnectionError))
                failure = self._typed_errors(key, error)
                # 409: two creates at the same moment, nobody has won yet
                if not _is_passing(error) and _http_status(error) != 409:
                    raise failure from error
        if not (maybe_ours and self._already_holds(key, body)):
            # what is there may have been garbled on its way: only S3's own 412 says that somebody was first
            raise failure

    def _put_arguments(self, key: str, body: bytes | bytearray) -> dict[str, Any]:
        arguments = {"Bucket": self._bucket, "Key": self._full_key(key), "Body": body}
        if self._with_digest:
            digest = hashlib.md5(body, usedforsecurity=False).digest()
            arguments["ContentMD5"] = base64.b64encode(digest).decode()
        return arguments

    def get(self, key: str) -> bytes:
        return self._read_object(key, {})

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        return self._read_object(key, {"Range": f"bytes={start}-{start + length - 1}"})

    def list(self, prefix: str = "") -> list[str]:
        return sorted(self._list_objects(prefix))

    def sizes(self) -> dict[str, int]:
        return dict(sorted(self._list_objects("").items()))

    def _list_objects(self, prefix: str) -> dict[str, int]:
        """Bytes by key, as the server lists them."""
        skip = len(self.prefix) + 1 if self.prefix else 0
        pages = self._client.get_paginator("list_objects_v2")
        arguments = {"Bucket": self._bucket, "Prefix": f"{self.prefix}/{prefix}" if self.prefix else prefix}
        found = self._retry_call(
            prefix,
            lambda: [
                (entry["Key"], int(entry["Size"]))
                for page in pages.paginate(**arguments)
                for entry in _check_genuine(page, "IsTruncated").get("Contents", ())
            ],
        )
        return {key[skip:]: size for key, size in found}

    def delete(self, key: str) -> None:
        self._retry_call(
            key,
            lambda: _check_deleted(self._client.delete_object(Bucket=self._bucket, Key=self._full_key(key))),
        )

    def under(self, prefix: str) -> Self:
        seen = copy(self)
        seen.prefix = self._full_key(prefix)
        return seen

    def _read_object(self, key: str, arguments: dict[str, str]) -> bytes:
        def attempt() -> bytes:
            try:
                answer = _check_genuine(
                    self._client.get_object(Bucket=self._bucket, Key=self._full_key(key), **arguments), "ETag"
                )
            except ClientError as error:
                if _http_status(error) == 416:  # the object ends before the range starts
                    return b""
                if _error_code(error) in ("NoSuchKey", "404"):
                    raise ObjectNotFound(f"{self.url}: {key} does not exist") from error
                raise
            body: bytes = answer["Body"].read()
            return body

        return self._retry_call(key, attempt)

    def _already_holds(self, key: str, body: bytes | bytearray) -> bool:
        """After a lost answer: is our object there?"""
        try:
            return self.get(key) == body
        except ObjectNotFound as error:
            raise StoreUnavailable(f"{self.url}: {key} could not be created") from error

    def _retry_call(self, key: str, attempt: Callable[[], S3Answer]) -> S3Answer:
        for wait in WAITS:
            try:
                return attempt()
            except (ClientError, BotoCoreError) as error:
                if not _is_passing(error):
                    raise self._typed_errors(key, error) from error
                time.sleep(wait * random.uniform(0.5, 1.5))
        try:
            return attempt()
        except (ClientError, BotoCoreError) as error:
            raise self._typed_errors(key, error) from error

    def _typed_errors(self, key: str, error: ClientError | BotoCoreError) -> ScarError:
        where = f"{self.url}: {key}" if key else self.url
        if isinstance(error, NoCredentialsError):
            return StoreUnavailable(f"{where}: no credentials were found", _CREDENTIALS)
        if isinstance(error, SSLError):
            return StoreUnavailable(f"{where}: {error}", _CERTIFICATE)
        if not isinstance(error, ClientError):
            return StoreUnavailable(f"{where}: {error}")
        code = _error_code(error)
        if code == "NoSuchBucket":
            return StoreUnavailable(
                f"{where}: bucket {self._bucket!r} does not exist", "Create the bucket, or correct SCAR_STORE"
            )
        if code == "RequestTimeTooSkewed":
            return StoreUnavailable(f"{where}: the store refuses this machine's time ({code})", _CLOCK)
        if code in _REFUSED or _http_status(error) in (401, 403):
            return StoreUnavailable(f"{where}: the store refuses the credentials ({code})", _CREDENTIALS)
        if code in _FULL or _http_status(error) == 507:
            return StoreFull(f"{where}: the store is full ({code})")
        return StoreUnavailable(f"{where}: {error}")


def _http_status(error: ClientError | BotoCoreError) -> int:
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) or str(_http_status(error))


def _is_passing(error: ClientError | BotoCoreError) -> bool:
    """True when another attempt may succeed. Unless no connection was made, this one may have been carried
    out, too.
    """
    if isinstance(error, ClientError):
        code = _error_code(error)
        return code not in _FULL and (
            (_http_status(error) >= 500 and _http_status(error) != 507) or code in _PASSING
        )
    return isinstance(error, ConnectionError | HTTPClientError | IncompleteReadError | _Garbled)


def _check_deleted(answer: dict[str, Any]) -> None:
    """S3 answers 204 and has nothing to say; a page of a proxy comes with 200."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    if status != HTTPStatus.NO_CONTENT:
        raise _Garbled(missing="being 204")


def _check_genuine(answer: dict[str, Any], mark: str) -> dict[str, Any]:
    if mark not in answer:
        raise _Garbled(missing=mark)
    return answer
