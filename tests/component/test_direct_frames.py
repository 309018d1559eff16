"""Frames of direct connections: whole, aligned, bounded in bytes and in time."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from scar.errors import InvalidRequest
from scar.v1.direct_pb2 import DirectCall
from scar.wire import direct_frames
from scar.wire.direct_frames import FRAME_BYTES, FrameReader, frame_seconds, send_frame

SECONDS = 10.0


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("size", [0, 12, (64 << 10) - 1, 64 << 10, FRAME_BYTES])
def test_frames_of_every_size_arrive_whole_and_aligned(size: int, parts: int):
    ours, theirs = socket.socketpair()
    call = DirectCall(method="A/B", seconds=1.5)
    message = np.random.default_rng(size).bytes(size)
    cuts = [size * part // parts for part in range(parts + 1)]
    pieces = [message[start:stop] for start, stop in itertools.pairwise(cuts)]
    sender = threading.Thread(target=send_frame, args=(ours, call.SerializeToString(), *pieces))
    sender.start()
    head, arrived = FrameReader(theirs).read(SECONDS)
    sender.join()
    assert (DirectCall.FromString(head), bytes(arrived)) == (call, message)
    assert not size or np.frombuffer(arrived, np.uint8).ctypes.data % 16 == 0
    ours.close()
    theirs.close()


def test_frames_that_come_together_are_told_apart():
    ours, theirs = socket.socketpair()
    sent = [b"a" * size for size in (0, 5, 70_000, 3, 0, 64 << 10, 1)]
    sender = threading.Thread(target=lambda: [send_frame(ours, b"head", message) for message in sent])
    sender.start()
    reader = FrameReader(theirs)
    assert [bytes(reader.read(SECONDS)[1]) for _ in sent] == sent
    sender.join()
    reader.ensure_end()
    ours.sendall(struct.pack(">II", 0, 0) + b"more")
    reader.read(SECONDS)
    with pytest.raises(InvalidRequest, match="beyond its end"):
        reader.ensure_end()
    ours.close()
    theirs.close()


def test_a_frame_after_a_long_silence_has_its_time_from_its_first_bytes(monkeypatch: pytest.MonkeyPatch):
    """Nobody sends anything for longer than a frame may take; then one comes in two parts."""
    monkeypatch.setattr(direct_frames, "FRAME_SECONDS", 1.0)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(direct_frames, "time", SimpleNamespace(monotonic=lambda: clock.now))
    parts = [struct.pack(">II", 0, 4) + b"ab", b"cd"]

    class Peer:
        timeout: float | None = None

        def settimeout(self, seconds: float | None) -> None:
            self.timeout = seconds

        def recv(self, _size: int) -> bytes:
            if self.timeout is not None and self.timeout < 0.5:
                raise TimeoutError
            clock.now += 100.0 if self.timeout is None else 0.5
            return parts.pop(0)

        def recv_into(self, room: memoryview) -> int:
            some = self.recv(len(room))
            room[: len(some)] = some
            return len(some)

    assert FrameReader(Peer()).read(None) == (b"", b"abcd")


def test_a_frame_that_trickles_is_whole_within_its_time_or_fails():
    ours, theirs = socket.socketpair()
    ours.sendall(struct.pack(">II", 0, 4) + b"abc")
    with pytest.raises(TimeoutError):
        FrameReader(theirs).read(SECONDS, 0.05)
    ours.sendall(b"d" + struct.pack(">II", 0, 4) + b"abc")
    ours.close()
    with pytest.raises((OSError, InvalidRequest)):
        FrameReader(theirs).read(SECONDS)
    theirs.close()


def test_a_large_frame_of_a_slow_network_has_more_time():
    assert frame_seconds(0) == 10.0
    assert frame_seconds(FRAME_BYTES) == 18.0
