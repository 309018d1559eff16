"""Small calls: what a request costs when it carries next to nothing, beside unary calls of bare gRPC; over
direct connections, and by gRPC, which carries them where no other port can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import scar
from benchmarks.bare import GrpcPeer, grpc_peer
from benchmarks.measure import BenchRow, Pair, TimedAction, duration_row, time_pairs
from benchmarks.training import BY_GRPC, BenchTraining, start_training

CALLS = 100  # timed together
WAYS: dict[str, dict[str, str]] = {"": {}, ", by gRPC": BY_GRPC}  # settings
Arrays = Mapping[str, np.ndarray]
ROW = {"w": np.ones((1, 64), np.float32)}
LAYERS = {f"layer{number}": np.ones((8, 16), np.float32) for number in range(10)}
TABLES = [scar.Table("w", (64, 64)), *(scar.Table(name, layer.shape) for name, layer in LAYERS.items())]


def measure_rows(repeat: int) -> list[BenchRow]:
    return [row for way in WAYS for row in _measure_way(way, repeat)]


def _measure_way(way: str, repeat: int) -> list[BenchRow]:
    with start_training(TABLES, consistency="asp", settings=WAYS[way]) as run, grpc_peer() as peer:
        return [
            *_measure_pair(run, peer, f"one row of 64{way}", ROW, {"w": [0]}, repeat),
            *_measure_pair(run, peer, f"10 tables of 8 x 16{way}", LAYERS, None, repeat),
        ]


def _measure_pair(
    run: BenchTraining,
    peer: GrpcPeer,
    what: str,
    arrays: Arrays,
    ids: Mapping[str, list[int]] | None,
    repeat: int,
) -> list[BenchRow]:
    """A pull beside one bare call with as many bytes; a push and the end of its clock beside two."""
    message = bytes(sum(array.nbytes for array in arrays.values()))

    def pull() -> None:
        run.worker.pull([*arrays], ids=ids)

    def step() -> None:
        run.step(lambda: run.worker.push(arrays, ids=ids))

    def echo() -> None:
        peer.echo(message)

    def echo_twice() -> None:
        peer.echo(message)
        peer.echo(message)

    pulled = time_pairs(_often(pull), _often(echo), repeat)
    stepped = time_pairs(_often(step), _often(echo_twice), repeat)
    with_clock = f"push of {what}, acknowledged, and the end of the clock"
    return [
        duration_row(f"pull of {what}", _for_one(pulled), "us", "a unary call of bare gRPC"),
        duration_row(with_clock, _for_one(stepped), "us", "two of them"),
    ]


def _often(action: TimedAction) -> TimedAction:
    def repeated() -> None:
        for _ in range(CALLS):
            action()

    return repeated


def _for_one(times: Pair) -> Pair:
    return Pair(times.ours / CALLS, times.yardstick / CALLS)
