"""A whole tensor stream in one message: what a small push, and a small answer to a pull, travel as.

A stream costs several messages and switches of threads on both ends, which is most of a small call. What is
inside is the same, chunk by chunk, and is read by the same readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scar.errors import InvalidRequest, TooLarge
from scar.wire.codec import Chunk, aligned_field, decode_chunk, read_varint

SMALL_BYTES = 512 << 10  # of a message, with its headers and ids
HEADER_BYTES = 256  # for the header of one table of an answer, at most
METRICS_BYTES = 18 << 10  # more in each, at most, where it has metrics
MOST_CHUNKS = 1 << 12  # of a message: a table has one
CONTENTS_BYTES = 4 << 10  # the same where it says what the values contain
ENTRY_BYTES = 24  # of a worker's entry in that beside its key, at most

_CHUNK_TAG = 0x0A  # field 1, length-delimited


def answer_fits(payload: int, tables: int, with_metrics: bool = False, with_contents: bool = False) -> bool:
    """Whether values of so many bytes, of so many tables, go into one message with their headers.

    The client asks before it chooses the call, and the shard before it answers: both must say the same.
    """
    header = HEADER_BYTES + METRICS_BYTES * with_metrics + CONTENTS_BYTES * with_contents
    return payload + tables * header <= SMALL_BYTES


def contents_fit(contents: Mapping[str, int]) -> bool:
    """Whether what the values of one table contain, by worker, has room beside them: of some 80 workers it
    has. Only the shard knows, and refuses; then the client pulls as a stream.
    """
    return sum(len(worker) + ENTRY_BYTES for worker in contents) <= CONTENTS_BYTES


def encode_small(wires: Iterable[bytes]) -> bytes:
    """Wire bytes of ``SmallTensors`` from those of its chunks, each of which starts aligned."""
    message = bytearray()
    for wire in wires:
        message += aligned_field(_CHUNK_TAG, len(message), len(wire))
        message += wire
    return bytes(message)


def decode_small(wire: bytes) -> list[Chunk]:
    """Deserializer for gRPC: the chunks, whose data are views of the message.

    Raises :class:`TooLarge`, and :class:`InvalidRequest` for anything but well-formed chunks.
    """
    if len(wire) > SMALL_BYTES:
        raise TooLarge(f"a small message has {len(wire)} bytes, the limit is {SMALL_BYTES}")
    view = memoryview(wire)
    chunks: list[Chunk] = []
    at = 0
    while at < len(wire):
        if len(chunks) == MOST_CHUNKS:
            raise TooLarge(f"a small message has more than {MOST_CHUNKS} chunks")
        tag, at = read_varint(view, at)
        size, at = read_varint(view, at)
        if tag != _CHUNK_TAG or at + size > len(wire):
            raise InvalidRequest("a small message is malformed")
        chunks.append(decode_chunk(view[at : at + size]))
        at += size
    return chunks
