"""Object stores behind one interface: a directory, or any S3 with conditional puts."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

from scar.errors import ConfigError, InvalidRequest
from scar_runtime.store.base import Buffer, Data, Store
from scar_runtime.store.directory import DirectoryStore

__all__ = ["Buffer", "Data", "Store", "open_store"]

_EXAMPLES = "Use file:///directory or s3://bucket/prefix?endpoint=http://host:port&region=us-east-1"
_OPTIONS = ("endpoint", "region")


def open_store(url: str) -> Store:
    """The store behind ``file:///directory`` or ``s3://bucket/prefix?endpoint=...&region=...`` (credentials from AWS_*).

    Nothing is asked of an S3 server yet; a directory is made when it is missing. Raises :class:`ConfigError` for a URL that
    cannot be, :class:`scar.errors.StoreUnavailable` for a directory that cannot be made.
    """
    found = urlsplit(url)
    if found.scheme == "file":
        if found.netloc or found.query or not found.path.startswith("/"):
            raise ConfigError(f"store {url!r} is not a directory's URL", "Write three slashes: file:///var/lib/scar")
        return DirectoryStore(url, Path(found.path))
    if found.scheme == "s3":
        return _open_s3(url, found)
    raise ConfigError(f"store {url!r} has no known scheme", _EXAMPLES)


def _open_s3(url: str, found: SplitResult) -> Store:
    from scar_runtime.store.s3 import S3Store, connect  # boto3 takes 0.3 s to import: only for those who use it

    try:
        options = parse_qs(found.query, strict_parsing=bool(found.query))
    except ValueError as error:
        raise ConfigError(f"store {url!r} has options that cannot be read", _EXAMPLES) from error
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"store {url!r} has an unknown option {name!r}", _EXAMPLES)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", found.netloc):
        raise ConfigError(f"store {url!r} has no valid bucket name", _EXAMPLES)
    endpoint, region = (options.get(name, [""])[-1] for name in _OPTIONS)
    bucket = S3Store(url, connect(endpoint, region), found.netloc)
    prefix = found.path.strip("/")
    try:
        return bucket.under(prefix) if prefix else bucket
    except InvalidRequest as error:
        raise ConfigError(f"store {url!r} has a prefix that is not valid", error.next_step) from error
