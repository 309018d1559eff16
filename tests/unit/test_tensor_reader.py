"""Streams of tensors: every byte goes where it belongs, and none is missing or too many."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar.errors import InvalidRequest
from scar.v1.ps_pb2 import TensorHeader
from scar.wire.codec import Chunk
from scar.wire.tensor_reader import TensorReader, TensorSink, array_sink, read_tensors


def header(table: str, size: int) -> TensorHeader:
    return TensorHeader(table=table, bytes=size)


def read(arrays: dict[str, np.ndarray], *chunks: Chunk) -> None:
    def open_table(opened: TensorHeader) -> TensorSink:
        return array_sink(f"table {opened.table}", arrays[opened.table])

    read_tensors(chunks, open_table, lambda what: InvalidRequest(f"ps-0 sent {what}"))


@given(sizes=st.lists(st.integers(1, 9), max_size=6), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_tensors_arrive_in_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    sent = {f"t{n}": np.arange(size, dtype=np.float32) + n for n, size in enumerate(sizes)}
    arrays = {name: np.zeros_like(array) for name, array in sent.items()}
    chunks = []
    for name, array in sent.items():
        raw = array.tobytes()
        bounds = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
        pieces = [raw[low:high] for low, high in pairwise(bounds)]
        chunks += [Chunk(header(name, len(raw)), pieces[0]), *(Chunk(None, piece) for piece in pieces[1:])]
    read(arrays, *chunks)
    for name, array in sent.items():
        assert arrays[name].tolist() == array.tolist()


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([Chunk(None, b"1234")], "more data than its header says"),
        ([Chunk(header("w", 8), b"12345678"), Chunk(None, b"9")], "more data of table w than"),
        ([Chunk(header("w", 8), b"1234")], "4 of 8 bytes of table w"),
        ([Chunk(header("w", 8), b"1234"), Chunk(header("v", 4), b"1234")], "4 of 8 bytes of table w"),
    ],
)
def test_a_stream_that_does_not_fit_its_headers_is_refused(chunks: list[Chunk], reason: str) -> None:
    arrays = {"w": np.zeros(2, np.float32), "v": np.zeros(1, np.float32)}
    with pytest.raises(InvalidRequest, match=f"ps-0 sent {reason}"):
        read(arrays, *chunks)


def test_who_writes_knows_what_is_still_to_come() -> None:
    seen = []

    def write(data: memoryview | bytes) -> None:
        seen.append((bytes(data), reader.remaining))

    reader = TensorReader(lambda _: TensorSink("w", 6, write), InvalidRequest)
    for chunk in (Chunk(header("w", 6)), Chunk(None, b"abcd"), Chunk(None, b"ef")):
        reader.read_chunk(chunk)
    reader.finish()
    assert seen == [(b"abcd", 2), (b"ef", 0)]
