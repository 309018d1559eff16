"""The key by which a cluster knows records that it has written from those of whoever can write to its store.

    key = read_key("/etc/scar/store-key/key")
    store = open_store(url, key)              # signs the records that it creates, believes no others

A signature is an HMAC-SHA256 over the record's place below the store's root, its first line and its text, so
that no record stands for another one, of this job or of another. Whoever has the key can write records;
whoever has not can remove them, or put one back where it was.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from scar.errors import ConfigError

VARIABLE = "SCAR_STORE_KEY"
LEAST_BYTES = 16
MOST_BYTES = 4096


@dataclass(frozen=True)
class StoreKey:
    """Of one cluster, or of several that share a store."""

    secret: bytes = field(repr=False)

    def sign(self, place: str, head: bytes, body: bytes) -> bytes:
        """Signature of a record, as hexadecimal digits. ``place``: its key below the root of the store."""
        told = b"scar record\n%s\n%s\n%s" % (place.encode(), head, body)
        return hmac.new(self.secret, told, hashlib.sha256).hexdigest().encode()


def read_key(path: str) -> StoreKey | None:
    """The key in this file; None for no path. Raises :class:`ConfigError`."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            secret = file.read(MOST_BYTES + 1).strip()
    except OSError as error:
        raise ConfigError(f"the store's key {path} cannot be read: {error.strerror}", _hint()) from error
    if not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        raise ConfigError(f"the store's key {path} has {len(secret)} bytes", _hint())
    return StoreKey(secret)


def key_beside(url: str) -> Path | None:
    """Where the key of a directory lies: beside it, ``store.key`` of ``store``. None: it is no directory."""
    parts = urlsplit(url)
    return Path(parts.path.rstrip("/") + ".key") if parts.scheme == "file" else None


def find_key(url: str) -> StoreKey | None:
    """For tools: the key that the environment names, or the one beside the store. None: there is none."""
    beside = key_beside(url)
    found = str(beside) if beside is not None and beside.exists() else ""
    return read_key(os.environ.get(VARIABLE) or found)


def _hint() -> str:
    return f"{VARIABLE} names a file of {LEAST_BYTES} to {MOST_BYTES} bytes: `openssl rand -hex 32` makes one"
