"""Object stores behind one interface: a directory, or any S3 with conditional puts."""

from __future__ import annotations

import logging
from threading import Event
from urllib.parse import urlsplit

from scar.errors import ConfigError, ScarError, UnsafeStore
from scar.wire.transport import Backoff, Deadline
from scar_runtime.store.base import Buffer, Data, Store
from scar_runtime.store.schemes import SCHEMES, URL_EXAMPLES
from scar_runtime.store.signatures import StoreKey

__all__ = ["Buffer", "Data", "Store", "await_store", "open_store"]

NEXT = "Mend the store, or set SCAR_STORE to one that can be opened"

_log = logging.getLogger(__name__)


def open_store(url: str, key: StoreKey | None = None) -> Store:
    """The store behind ``file:///directory`` or ``s3://bucket/prefix?endpoint=...&region=...`` (credentials
    from AWS_*).

    ``key`` signs its records and is asked of them; None: they are as they are. Nothing is asked of an S3
    server yet; a directory is made when it is missing. Raises :class:`ConfigError` for an invalid URL,
    :class:`scar.errors.StoreUnavailable` for a directory that cannot be made.
    """
    parts = urlsplit(url)
    for scheme in SCHEMES:
        if scheme.name == parts.scheme:
            return scheme.open_url(url, parts).signed_by(key)
    raise ConfigError(f"store {url!r} has no known scheme", f"Use {URL_EXAMPLES}")


def await_store(url: str, seconds: float, stopping: Event, key: StoreKey | None = None) -> Store:
    """The same, once it can be opened: a disk may answer with errors for a while.

    Raises :class:`ConfigError`, which says what was wrong last, after so many seconds, or when the process
    stops; at once what no waiting mends: :class:`ConfigError` and :class:`UnsafeStore`.
    """
    deadline = Deadline(seconds, stopping)
    backoff = Backoff()
    while True:
        try:
            return open_store(url, key)
        except (ConfigError, UnsafeStore):
            raise
        except ScarError as error:
            wait = backoff.next()
            if deadline.remaining <= wait:
                waited = deadline.exceeded(f"store {url} to be opened", error)
                raise ConfigError(waited.message, NEXT) from error
            _log.warning("store.unavailable", extra={"reason": str(error)})
            stopping.wait(wait)
