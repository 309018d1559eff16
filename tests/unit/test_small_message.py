"""A tensor stream in one message: valid protobuf, aligned, bounded; a ScarError for the rest."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import errors
from scar.losses import MAX_METRICS, MAX_NAME
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.small_message import (
    CONTENTS_BYTES,
    HEADER_BYTES,
    METRICS_BYTES,
    SMALL_BYTES,
    answer_fits,
    contents_fit,
    decode_small,
    encode_small,
)

SEEDED = settings(max_examples=60, derandomize=True)
PAYLOADS = st.lists(st.binary(max_size=300), max_size=6)


def message(payloads: list[bytes]) -> bytes:
    chunks = [
        Chunk(ps_pb2.TensorHeader(table=f"t{number}", seq=number), data)
        for number, data in enumerate(payloads)
    ]
    return encode_small(map(codec.encode_chunk, chunks))


@SEEDED
@given(PAYLOADS)
def test_ours_reads_protobufs_and_protobuf_reads_ours(payloads: list[bytes]) -> None:
    theirs = ps_pb2.SmallTensors.FromString(message(payloads))
    assert [chunk.data for chunk in theirs.chunks] == payloads
    back = decode_small(theirs.SerializeToString())
    assert [bytes(chunk.data) for chunk in back] == payloads
    assert [chunk.header.table for chunk in back if chunk.header] == [f"t{n}" for n in range(len(payloads))]


@SEEDED
@given(PAYLOADS)
def test_all_data_lie_where_numpy_computes_on_them(payloads: list[bytes]) -> None:
    wire = message(payloads)
    start = np.frombuffer(wire, np.uint8).ctypes.data if wire else 0
    for chunk in decode_small(wire):
        if len(chunk.data):
            assert (np.frombuffer(chunk.data, np.uint8).ctypes.data - start) % codec.ALIGNMENT == 0


@SEEDED
@given(st.integers(0, 800), st.integers(0, 255))
def test_damaged_messages(position: int, value: int) -> None:
    wire = bytearray(message([b"y" * 200, b"x" * 100]))
    wire[position % len(wire)] = value
    for damaged in (bytes(wire), bytes(wire[: position % len(wire)])):
        with contextlib.suppress(errors.ScarError):
            decode_small(damaged)


def test_a_message_beyond_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(errors.TooLarge, match=f"{SMALL_BYTES + 1} bytes, the limit is {SMALL_BYTES}"):
        decode_small(bytes(SMALL_BYTES + 1))


def test_an_answer_that_fits_is_within_the_limit_with_the_longest_headers() -> None:
    """Else a client would refuse what a shard may send."""
    most = (1 << 64) - 1
    longest = ps_pb2.TensorHeader(
        table="t" * 64,
        dtype="float64",
        dense=True,
        bytes=most,
        epoch=most,
        clock=most,
        loss=1.5,
        loss_clock=most,
        loss_fraction=0.5,
    )
    tables = SMALL_BYTES // (2 * HEADER_BYTES)
    payload = SMALL_BYTES - tables * HEADER_BYTES
    assert answer_fits(payload, tables)
    assert not answer_fits(payload + 1, tables)
    each = payload // tables
    assert len(encode_small([codec.encode_chunk(Chunk(longest, bytes(each)))] * tables)) <= SMALL_BYTES
    for number in range(MAX_METRICS):
        longest.metrics["\U0001f600" * (MAX_NAME - 2) + f"{number:02}"] = 0.1
    tables = 2
    payload = SMALL_BYTES - tables * (HEADER_BYTES + METRICS_BYTES)
    assert answer_fits(payload, tables, with_metrics=True)
    assert not answer_fits(payload + 1, tables, with_metrics=True)
    each = payload // tables
    assert len(encode_small([codec.encode_chunk(Chunk(longest, bytes(each)))] * tables)) <= SMALL_BYTES


def test_what_fits_by_its_size_fits_with_what_the_values_contain() -> None:
    contents = {f"worker-{number}@{number:012x}": (1 << 64) - 1 for number in range(200)}
    while not contents_fit(contents):
        contents.popitem()
    assert len(contents) > 80
    tables = 3
    payload = SMALL_BYTES - tables * (HEADER_BYTES + CONTENTS_BYTES)
    assert answer_fits(payload, tables, with_contents=True)
    assert not answer_fits(payload + 1, tables, with_contents=True)
    header = ps_pb2.TensorHeader(table="w" * 100, dtype="float32", watermark=contents, settled=True)
    chunk = codec.encode_chunk(Chunk(header, bytes(payload // tables)))
    assert len(encode_small([chunk] * tables)) <= SMALL_BYTES
