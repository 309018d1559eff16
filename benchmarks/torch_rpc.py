"""PyTorch's own RPC as a parameter server: the same transfers between two processes, when torch is installed.

Its two processes are its own, since torch keeps one RPC state per process; one of them acts on words that
come through a pipe.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection

import numpy as np

import scar
from benchmarks.measure import BenchRow, Pair, TimedAction, duration_row, rate_row, time_pairs
from benchmarks.training import start_training

SIZE = 64 << 20
SHAPE = (SIZE // 256, 64)
LEARNING_RATE = 0.1
CALLS = 20  # small calls timed together, so that the pipe does not count
TIMEOUT_SECONDS = 60.0


def measure_rows(repeat: int) -> list[BenchRow]:
    """Nothing without torch, or when its build has no RPC."""
    if not find_spec("torch"):
        return []
    with _torch_pair() as pipe:
        if not pipe.recv():
            return []
        return [
            _measure_dense(lambda: _ask_torch(pipe, "dense"), repeat),
            _measure_small(lambda: _ask_torch(pipe, "small"), repeat),
        ]


def _measure_dense(torch_dense: TimedAction, repeat: int) -> BenchRow:
    gradient = np.full(SHAPE, 1e-6, dtype=np.float32)
    with start_training([scar.Table("w", SHAPE, rule=scar.sgd(lr=LEARNING_RATE))], consistency="asp") as run:

        def ours() -> None:
            run.step(lambda: run.worker.push("w", gradient))
            run.worker.pull("w")

        times = time_pairs(ours, torch_dense, repeat)
    return rate_row("push + apply + pull of 64 MiB", 2 * SIZE / 1e9, times, "GB/s", "torch RPC")


def _measure_small(torch_small: TimedAction, repeat: int) -> BenchRow:
    one = np.zeros(1, dtype=np.uint32)
    with start_training([scar.Table("w", (64, 64))], consistency="asp") as run:
        times = time_pairs(lambda: [run.worker.pull("w", ids=one) for _ in range(CALLS)], torch_small, repeat)
    return duration_row(
        "pull of one row of 64", Pair(times.ours / CALLS, times.yardstick / CALLS), "us", "torch RPC"
    )


# --- the two processes of torch
# -----------------------------------------------------------------------------------------


@contextmanager
def _torch_pair() -> Iterator[Connection]:
    """A pipe to the client.

    It first says whether torch has RPC, then answers each word when the work is done.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    processes = [
        context.Process(target=_run_rank, args=(rank, port, there if rank == 0 else None), daemon=True)
        for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    there.close()  # so that the death of the client ends recv
    try:
        yield here
    finally:
        here.send("stop")
        for process in processes:
            process.join(10)
            process.kill()


def _ask_torch(pipe: Connection, word: str) -> None:
    pipe.send(word)
    if not pipe.poll(TIMEOUT_SECONDS):
        raise TimeoutError(f"torch RPC did not finish {word!r} within {TIMEOUT_SECONDS:g} s")
    pipe.recv()


def _run_rank(rank: int, port: int, pipe: Connection | None) -> None:
    import torch.distributed.rpc as rpc
    from torch import distributed

    if not distributed.rpc.is_available():
        if pipe:
            pipe.send(False)
        return
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo"
    )
    rpc.init_rpc(("client", "server")[rank], rank=rank, world_size=2)
    if pipe:
        _run_client(pipe)
    rpc.shutdown()  # the server waits here until the client is done


def _run_client(pipe: Connection) -> None:
    import torch
    import torch.distributed.rpc as rpc

    from benchmarks.machines.torch_rpc_peer import ServedTensor

    gradient = torch.full(SHAPE, 1e-6)
    rpc.rpc_sync("server", ServedTensor.make, args=(SHAPE[0],))
    pipe.send(True)
    while (word := pipe.recv()) != "stop":
        if word == "dense":
            rpc.rpc_sync("server", ServedTensor.push, args=(gradient,))
            rpc.rpc_sync("server", ServedTensor.pull)
        else:
            for _ in range(CALLS):
                rpc.rpc_sync("server", ServedTensor.pull_row, args=(0,))
        pipe.send(word)
