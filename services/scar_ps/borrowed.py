"""Segments of other processes of this machine, through which their pushes come and their pulls go. See :mod:`scar.shared`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

from scar.codec import MAX_CHUNK_BYTES, Chunk
from scar.errors import Busy, NotServing, TooLarge
from scar.shared import Found, Offer, found, part

MOST = 16  # segments of one process


class Borrowed:
    """What was offered and found, by key. ``allowed``: False: everything travels as messages."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed
        self._held: dict[bytes, Found] = {}
        self._lock = Lock()

    def take(self, offer: Offer) -> bool:
        """Open a segment; False when it cannot be opened from here. Raises :class:`Busy` when one process offers too many."""
        new = found(offer) if self._allowed else None
        if new is None:
            return False
        self.forget()
        with self._lock:
            if sum(held.offer.pid == offer.pid for held in self._held.values()) >= MOST:
                raise Busy(f"process {offer.pid} has offered {MOST} segments of memory already")
            self._held[offer.key] = new
        return True

    def forget(self) -> None:
        """Let go of what its process does not have any more: it has dropped it, or died."""
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if held.lent}

    def room(self, key: bytes) -> memoryview:
        """Raises :class:`NotServing` for a key that is not known (any more): the caller offers another segment."""
        with self._lock:
            held = self._held.get(key)
        if held is None:
            raise NotServing("this shard does not know the memory that was to be shared")
        return held.room

    def read(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks with their data. It is copied before anybody looks at it: what was checked is what is applied."""
        for chunk in chunks:
            if chunk.shared is not None:
                if chunk.shared.bytes > MAX_CHUNK_BYTES:
                    raise TooLarge(f"a tensor chunk has {chunk.shared.bytes} bytes, the limit is {MAX_CHUNK_BYTES}")
                chunk.data = bytes(part(self.room(chunk.shared.key), chunk.shared))
            yield chunk
