"""Segments of other processes of this machine, through which their pushes come and their pulls go.

See :mod:`scar.wire.shared_memory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

import numpy as np

from scar.errors import Busy, NotServing, TooLarge
from scar.row_copies import copy_elements
from scar.wire.codec import MAX_CHUNK_BYTES, Chunk
from scar.wire.shared_memory import AttachedSegment, SegmentOffer, attach_segment, join_pointers, shared_range

MAX_SEGMENTS = 16  # segments of one process


class SharedMemoryPool:
    """What was offered and found, by key. ``allowed``: False: everything travels as messages."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed
        self._segments: dict[bytes, AttachedSegment] = {}
        self._lock = Lock()

    def attach_segment(self, offer: SegmentOffer) -> bool:
        """Open a segment; False when it cannot be opened from here.

        Raises :class:`Busy` when one process offers too many.
        """
        new = attach_segment(offer) if self._allowed else None
        if new is None:
            return False
        self.drop_released()
        with self._lock:
            if sum(held.offer.pid == offer.pid for held in self._segments.values()) >= MAX_SEGMENTS:
                raise Busy(f"process {offer.pid} has offered {MAX_SEGMENTS} segments of memory already")
            self._segments[offer.key] = new
        return True

    @property
    def is_empty(self) -> bool:
        return not self._segments

    def drop_released(self) -> None:
        """Let go of what its process does not have any more: it has dropped it, or died."""
        with self._lock:
            self._segments = {key: held for key, held in self._segments.items() if held.is_lent}

    def find_segment(self, key: bytes) -> memoryview:
        """The memory behind a key.

        Raises :class:`NotServing` for a key that is not known (any more): the caller offers another
        segment.
        """
        with self._lock:
            held = self._segments.get(key)
        if held is None:
            raise NotServing("this shard does not know the memory that was to be shared")
        return held.room

    def read_chunks(self, chunks: Iterable[Chunk], copied: bool) -> Iterator[Chunk]:
        """The chunks with their data, which are the caller's again once the call is answered. Of one message
        those that lie side by side are one: what is done to them is done at once.

        ``copied``: they are kept for longer.

        Else a caller that writes while its push is applied gets past the look for NaN, which protects it from
        its own mistakes: what it may push, it may ruin by finite numbers, too. So one that says that it has
        looked is believed (``TensorHeader.finite``). Nothing but values lies there.
        """
        checked = map(_check_size, chunks)
        for chunk in join_pointers(checked) if isinstance(chunks, list) and not copied else checked:
            if chunk.shared is not None:
                data = shared_range(self.find_segment(chunk.shared.key), chunk.shared)
                chunk.data = _copy(data) if copied else data
            yield chunk


def _copy(data: memoryview) -> memoryview:
    """On several processors, and without Python's lock."""
    copied = np.empty(len(data), np.uint8)
    copy_elements(copied, np.frombuffer(data, np.uint8))
    return copied.data


def _check_size(chunk: Chunk) -> Chunk:
    if chunk.shared is not None and chunk.shared.bytes > MAX_CHUNK_BYTES:
        raise TooLarge(f"a tensor chunk has {chunk.shared.bytes} bytes, the limit is {MAX_CHUNK_BYTES}")
    return chunk
