"""What SCAR asks of an object store: immutable bytes under a key, and creation that only one of many callers
wins.

    store = open_store("s3://bucket/prefix?endpoint=http://127.0.0.1:8333")
    store.probe()                                # refuses a store on which two coordinators could both win
    store.under("mnist").create("job", data)     # AlreadyExists when somebody was first

Keys are relative to the store's prefix. Every failure is a :class:`scar.errors.StoreError` or
:class:`scar.errors.StoreUnavailable` whose text names the key and the next step.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from operator import itemgetter
from typing import Self

from scar.errors import AlreadyExists, InvalidRequest, UnsafeStore
from scar_runtime.store.layout import probe_key
from scar_runtime.store.signatures import StoreKey

Buffer = bytes | bytearray | memoryview
Data = Buffer | Sequence[Buffer]

RACERS = 8
_SEGMENT = re.compile(r"[A-Za-z0-9_.@-]{1,200}")


class Store(ABC):
    """One prefix of one store. Safe to use from any thread. ``url`` is for messages.

    ``signing_key``: by which records are signed and known; None: they are not. ``root``: the part of the
    prefix that signatures leave out, so that a whole store can be copied elsewhere.
    """

    signing_key: StoreKey | None = None
    root = ""

    def __init__(self, url: str, prefix: str = "") -> None:
        self.url = url
        self.prefix = prefix

    @abstractmethod
    def put(self, key: str, data: Data) -> None:
        """Write or replace an object. When it returns the object is durable."""

    def put_pieces(self, key: str, pieces: Iterable[tuple[int, Buffer]]) -> None:
        """The same of pieces, each with the byte at which it begins, in any order, as they are made."""
        self.put(key, [piece for _, piece in sorted(pieces, key=itemgetter(0))])

    @abstractmethod
    def create(self, key: str, data: Data) -> None:
        """Write an object that must not exist yet. Raises :class:`AlreadyExists` when somebody else's is
        there.
        """

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The whole object. Raises :class:`ObjectNotFound`."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes from byte ``start``; fewer where the object ends earlier. Raises
        :class:`ObjectNotFound`.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> list[str]:
        """All keys that begin with ``prefix`` ("" or a folder and "/"), ascending."""

    def sizes(self) -> dict[str, int]:
        """Bytes of every object, by key. Stores that know them without reading the objects say so."""
        return {key: len(self.get(key)) for key in self.list()}

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; one that is absent is fine."""

    @abstractmethod
    def under(self, prefix: str) -> Self:
        """The same store seen from ``prefix``: its keys are relative to there."""

    def probe(self, key: str = "") -> None:
        """Check reading, writing and, by a race of creates, that just one caller wins. Raises
        :class:`UnsafeStore` if not.

        ``key``: of the scratch object, which may be left behind when the store fails; empty: any.
        """
        key = key or scratch_key()
        racers = [f"racer {number}".encode() for number in range(RACERS)]
        try:
            with ThreadPoolExecutor(RACERS) as pool:
                won = [
                    racer
                    for racer, first in zip(
                        racers, pool.map(lambda data: self._wins_create(key, data), racers), strict=True
                    )
                    if first
                ]
            if len(won) != 1 or self.get(key) != won[0] or self._wins_create(key, b"too late"):
                raise UnsafeStore(
                    f"{self.url} let {len(won)} of {RACERS} callers create one object, or lost it"
                )
        finally:
            self.delete(key)

    def signed_by(self, key: StoreKey | None) -> Self:
        """The same store, of which records are believed only with this key's signature. None: as they are."""
        seen = copy(self)
        seen.signing_key = key
        seen.root = self.prefix
        return seen

    def place_of(self, key: str) -> str:
        """The key of an object below the root of the store."""
        return self._full_key(key)[len(self.root) :].lstrip("/")

    def _wins_create(self, key: str, data: bytes) -> bool:
        try:
            self.create(key, data)
        except AlreadyExists:
            return False
        return True

    def _full_key(self, key: str) -> str:
        """The key with the prefix. Keys come out of manifests, too, so nothing may lead out of the prefix."""
        if any(segment in (".", "..") or not _SEGMENT.fullmatch(segment) for segment in key.split("/")):
            raise InvalidRequest(
                f"store key {key!r} is not valid",
                "Keys are segments of letters, digits, '_.@-' joined by '/'",
            )
        return f"{self.prefix}/{key}" if self.prefix else key


def scratch_key() -> str:
    """A key for a probe, and for no other: what was sent for a former one may arrive late."""
    return probe_key(uuid.uuid4().hex)


def joined(data: Data) -> bytes | bytearray:
    """The data as one buffer; copied only when it is in parts."""
    if isinstance(data, bytes | bytearray):
        return data
    return bytes(data) if isinstance(data, memoryview) else b"".join(data)


def parts(data: Data) -> list[memoryview]:
    """The data as flat byte views, not copied; empty ones left out."""
    found = [data] if isinstance(data, bytes | bytearray | memoryview) else data
    return [memoryview(part).cast("B") for part in found if len(part)]
