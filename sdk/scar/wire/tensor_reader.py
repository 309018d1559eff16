"""Reads tensor streams: bytes go where they belong, and tensors are as large as their headers say.

The sending end is in :mod:`scar.wire.codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array
from scar.errors import ScarError
from scar.v1 import ps_pb2
from scar.wire.codec import Chunk

TensorData = memoryview | bytes


@dataclass(frozen=True, slots=True)
class TensorSink:
    """Where the bytes of one tensor go.

    ``name`` is for errors; ``write`` gets its ``size`` bytes in order, in pieces. ``keep`` gets all of them
    where they come at once and last (:attr:`scar.wire.codec.Chunk.lasting`); False: they have to be written.
    """

    name: str
    size: int
    write: Callable[[TensorData], None]
    keep: Callable[[TensorData], bool] | None = None


def array_sink(name: str, array: Array) -> TensorSink:
    """The bytes of a contiguous array, which is written over."""
    view = array.reshape(-1).view(np.uint8)
    at = 0

    def write(data: TensorData) -> None:
        nonlocal at
        view[at : at + len(data)] = np.frombuffer(data, np.uint8)
        at += len(data)

    return TensorSink(name, array.nbytes, write)


class TensorReader:
    """``open_tensor`` checks a header and says where the bytes that follow go.

    ``mismatch`` makes the error for a stream that does not fit its headers, from the reason in words.

    The stream of a process that is killed may end as if it were whole: gRPC for Python does not always tell
    the two apart. So the first header says how many there are.
    """

    def __init__(
        self,
        open_tensor: Callable[[ps_pb2.TensorHeader], TensorSink],
        mismatch: Callable[[str], ScarError],
    ) -> None:
        self._open_tensor = open_tensor
        self._mismatch = mismatch
        self._sink: TensorSink | None = None
        self._arrived = 0  # bytes of the current tensor
        self._opened = 0
        self._announced = 0  # tensors; 0: nobody has said how many there are

    @property
    def remaining(self) -> int:
        """Bytes of the current tensor that have not arrived."""
        return 0 if self._sink is None else self._sink.size - self._arrived

    def read_chunk(self, chunk: Chunk) -> None:
        """Raises what ``open_tensor`` raises, and ``mismatch``."""
        if chunk.header is not None:
            self._finish_tensor()
            self._sink = self._open_tensor(chunk.header)
            self._arrived = 0
            self._announced = self._announced if self._opened else chunk.header.tensors
            self._opened += 1
        if not len(chunk.data):
            return
        if self._sink is None or len(chunk.data) > self.remaining:
            name = "" if self._sink is None else f" of {self._sink.name}"
            raise self._mismatch(f"more data{name} than its header says")
        self._arrived += len(chunk.data)
        sink = self._sink
        whole = chunk.lasting and len(chunk.data) == sink.size
        if not (whole and sink.keep is not None and sink.keep(chunk.data)):
            sink.write(chunk.data)

    def finish(self) -> None:
        """The stream is over."""
        self._finish_tensor()
        if self._announced and self._opened != self._announced:
            raise self._mismatch(f"{self._opened} of {self._announced} tensors")

    def _finish_tensor(self) -> None:
        if self._sink is not None and self.remaining:
            raise self._mismatch(f"{self._arrived} of {self._sink.size} bytes of {self._sink.name}")


def read_tensors(
    chunks: Iterable[Chunk],
    open_tensor: Callable[[ps_pb2.TensorHeader], TensorSink],
    mismatch: Callable[[str], ScarError],
) -> None:
    """Read a whole stream."""
    reader = TensorReader(open_tensor, mismatch)
    for chunk in chunks:
        reader.read_chunk(chunk)
    reader.finish()
