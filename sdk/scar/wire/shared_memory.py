"""Memory that two processes of one machine share, so that large payloads need not pass through a socket.

Who asks lends. It makes a *segment*: memory without a name (memfd), which is gone with the last process that
has it open, however that dies. It tells the other side where to find it, under which key, and then only which
part of it to read or write. A side that cannot find it (another machine, another container, another user, no
Linux) says so; payloads travel as messages then.

A segment is lent for one call at a time, or borrowed, as long as somebody holds its memory: for values that a
later call brings, or for those that a call has brought, which are so never copied. After a call that failed
the other side may still be at work on it, so it is not used again.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np

from scar.blocks import Array
from scar.compiled import address_of
from scar.errors import InvalidRequest, ScarError, Temporary
from scar.v1.ps_pb2 import SharedRange, TensorHeader
from scar.wire.codec import Chunk

if sys.platform == "linux":
    import fcntl

LEAST_BYTES = 1 << 20  # of what a call moves: below, a message is as fast
MOST_BYTES = 256 << 20  # above, a second copy in memory would be too much
KEY_BYTES = 16  # random, at the start of a segment: who finds it has found the right one
PIECE_BYTES = 8 << 20  # to which one message points, about
KEPT = 3  # segments that wait for the next call
BORROWED = 6  # segments that are borrowed, at most: who keeps what was pulled gets copies then
SPARE = 2  # a borrowed segment is at most so many times as large as what is wanted
SUPPORTED = sys.platform == "linux"


@dataclass(frozen=True)
class SegmentOffer:
    """Where a segment is found: file descriptor ``number`` of process ``pid``. ``size``: bytes that it can
    carry.
    """

    pid: int
    number: int
    size: int
    key: bytes


class Segment:
    """Memory of this process that another one may open, too. Raises :class:`OSError` where there is none
    to be had.
    """

    def __init__(self, size: int) -> None:
        # __del__ closes it, whatever fails below
        self._file = os.memfd_create("scar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._file, KEY_BYTES + size)
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        memory = memoryview(mmap.mmap(self._file, KEY_BYTES + size))
        self.offer = SegmentOffer(os.getpid(), self._file, size, secrets.token_bytes(KEY_BYTES))
        memory[:KEY_BYTES] = self.offer.key
        self.room = memory[KEY_BYTES:]

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)  # the memory goes with the last view of it

    def fill_segment(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same stream, its data in here instead; fewer chunks, since each is a message. What lies in
        another segment stays there.
        """
        start = at = 0
        waiting: Chunk | None = None
        for chunk in chunks:
            away = chunk.shared is not None
            if waiting is not None and (
                away or chunk.header is not None or at - start + len(chunk.data) > PIECE_BYTES
            ):
                yield self._point_to(waiting.header, start, at)
                waiting = None
                start = at
            if away:
                yield chunk
                continue
            waiting = waiting or chunk
            self.room[at : at + len(chunk.data)] = chunk.data
            at += len(chunk.data)
        if waiting is not None:
            yield self._point_to(waiting.header, start, at)

    def _point_to(self, header: TensorHeader | None, start: int, stop: int) -> Chunk:
        return Chunk(header, shared=SharedRange(key=self.offer.key, offset=start, bytes=stop - start))

    def read_chunk(self, chunk: Chunk) -> Chunk:
        """A chunk of the other side with its data. Raises :class:`InvalidRequest` for a range that is not
        in here.
        """
        if chunk.shared is None:
            return chunk
        return Chunk(chunk.header, shared_range(self.room, chunk.shared))


def shared_range(room: memoryview, shared: SharedRange) -> memoryview:
    """The range of a segment. Raises :class:`InvalidRequest` when it reaches beyond its end."""
    if shared.offset + shared.bytes > len(room):
        raise InvalidRequest(
            f"bytes {shared.offset} to {shared.offset + shared.bytes} of {len(room)} that are shared"
        )
    return room[shared.offset : shared.offset + shared.bytes]


def show_tensors(memory: Array, pointers: Iterable[Chunk]) -> Sequence[Chunk]:
    """The tensors that lie in borrowed ``memory``, one chunk each, whose data stay as long as they are held.

    Raises :class:`InvalidRequest` for a range that is not in there.
    """
    pointers = list(pointers)
    for chunk in pointers:
        if chunk.shared is not None:
            shared_range(memory.data, chunk.shared)
    return [
        one if one.shared is None else Chunk(one.header, shared_range(memory.data, one.shared), lasting=True)
        for one in join_pointers(pointers)
    ]


def join_pointers(chunks: Iterable[Chunk]) -> list[Chunk]:
    """What lies side by side of one tensor in one segment is one chunk."""
    joined: list[Chunk] = []
    for chunk in chunks:
        shared = chunk.shared
        before = joined[-1].shared if joined and chunk.header is None else None
        if before is None or shared is None or before.key != shared.key:
            joined.append(chunk)
        elif shared.offset == before.offset + before.bytes:
            before.bytes += shared.bytes
        else:
            joined.append(chunk)
    return joined


@dataclass(frozen=True, eq=False)
class AttachedSegment:
    """Another process' segment, open here. ``room``: its memory."""

    offer: SegmentOffer
    room: memoryview
    identity: tuple[int, int]

    @property
    def is_lent(self) -> bool:
        """Whether the other process lives and has it still."""
        try:
            status = os.stat(_descriptor_path(self.offer))
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity


def attach_segment(offer: SegmentOffer) -> AttachedSegment | None:
    """Open another process' segment; None when it is not where the offer says.

    Only memory with this very key, which nobody can cut short any more, is taken: a cut would kill who reads.
    """
    whole = KEY_BYTES + offer.size
    if not _is_process(offer.pid):
        return None
    try:
        file = os.open(_descriptor_path(offer), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size != whole:
            return None
        if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return None
        memory = memoryview(mmap.mmap(file, whole))
    except OSError:
        return None
    finally:
        os.close(file)
    if not secrets.compare_digest(bytes(memory[:KEY_BYTES]), offer.key):
        return None
    return AttachedSegment(offer, memory[KEY_BYTES:], (status.st_dev, status.st_ino))


def _is_process(pid: int) -> bool:
    """And no thread: under the numbers of its threads a process would look like many."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return f"Tgid:\t{pid}\n" in status
    except OSError:
        return False


def _descriptor_path(offer: SegmentOffer) -> str:
    return f"/proc/{offer.pid}/fd/{offer.number}"


class SegmentAllocator:
    """The segments of one connection. ``show``: offers one to the other side; False: it cannot find it."""

    def __init__(self, show: Callable[[SegmentOffer], bool]) -> None:
        self._show = show
        self._lock = Lock()
        self._free: list[Segment] = []
        self._borrowed: dict[bytes, tuple[int, Segment]] = {}  # by key, with the address of its room
        self._given_back: deque[bytes] = deque()  # keys, from any thread at any moment
        self._refused = not SUPPORTED
        _allocators.add(self)

    @contextmanager
    def lend_segment(self, size: int) -> Iterator[Segment | None]:
        """A segment for one call that moves ``size`` bytes; None: let them travel as messages."""
        segment = (
            self._take_segment(size) if LEAST_BYTES <= size <= MOST_BYTES and not self._refused else None
        )
        yield segment
        if segment is not None:  # and not after an error
            with self._lock:
                self._free = [*self._free, segment][-KEPT:]

    def borrow_memory(self, size: int) -> Array | None:
        """So many bytes of a segment that is free and known to the other side; None: there is none at hand.

        It is back when the last array that shows them is gone.
        """
        borrowed = self.borrow_segment(size)
        return None if borrowed is None else borrowed[1]

    def borrow_segment(self, size: int) -> tuple[bytes, Array] | None:
        """The same with the segment's key."""
        if not LEAST_BYTES <= size <= MOST_BYTES:
            return None
        with self._lock:
            self._collect_borrowed()
            segment = self._find_free(size, SPARE * size) if len(self._borrowed) < BORROWED else None
            if segment is None:
                return None
            memory: Array = np.frombuffer(segment.room, np.uint8, size)
            key = segment.offer.key
            self._borrowed[key] = address_of(memory), segment
        weakref.finalize(memory, self._given_back.append, key).atexit = False
        return key, memory

    def point_to_borrowed(self, chunk: Chunk) -> Chunk:
        """The same chunk without its data where they lie in borrowed memory."""
        if not len(chunk.data):
            return chunk
        at = address_of(np.frombuffer(chunk.data, np.uint8))
        with self._lock:
            self._collect_borrowed()
            for address, segment in self._borrowed.values():
                offset = at - address
                if 0 <= offset < len(segment.room):
                    shared = SharedRange(key=segment.offer.key, offset=offset, bytes=len(chunk.data))
                    return Chunk(chunk.header, shared=shared)
        return chunk

    def forget_borrowed(self, chunks: Iterable[Chunk]) -> None:
        """Nothing is pointed to again where these lie: who got them may be at work, or not know them."""
        self.forget_keys({chunk.shared.key for chunk in chunks if chunk.shared is not None})

    def forget_keys(self, keys: Iterable[bytes]) -> None:
        """The segments with these keys are not used again."""
        with self._lock:
            for key in keys:
                self._borrowed.pop(key, None)

    def forget_all(self) -> None:
        """Nothing that is borrowed now is used again: a process that was forked shows it, too."""
        with self._lock:
            self._borrowed.clear()

    def _collect_borrowed(self) -> None:
        """What nobody holds any more is free; the lock is held."""
        while self._given_back:
            borrowed = self._borrowed.pop(self._given_back.popleft(), None)
            if borrowed is not None:
                self._free = [*self._free, borrowed[1]][-KEPT:]

    def _find_free(self, size: int, most: int = MOST_BYTES) -> Segment | None:
        """The smallest that is large enough; the lock is held."""
        fitting = [segment for segment in self._free if size <= len(segment.room) <= most]
        if not fitting:
            return None
        segment = min(fitting, key=lambda one: len(one.room))
        self._free.remove(segment)
        return segment

    def _take_segment(self, size: int) -> Segment | None:
        with self._lock:
            self._collect_borrowed()
            found = self._find_free(size)
        if found is not None:
            return found
        try:
            segment = Segment(size)
            self._refused = not self._show(segment.offer)
        except (OSError, Temporary):  # of the latter the call itself will hear
            return None
        except ScarError:
            self._refused = True
        return None if self._refused else segment


def _forget_in_parent() -> None:
    for allocator in list(_allocators):
        allocator.forget_all()


_allocators: weakref.WeakSet[SegmentAllocator] = weakref.WeakSet()
os.register_at_fork(after_in_parent=_forget_in_parent)
