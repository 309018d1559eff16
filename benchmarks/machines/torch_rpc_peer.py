"""torch RPC between machines: servers with a part of the table each, and one client. TCP alone.

    python -m benchmarks.machines.torch_rpc_peer RANK SERVERS MASTER PORT ROWS STEPS

Rank 0 is the client, which prints the seconds of all steps as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

import torch
import torch.distributed.rpc as rpc

from benchmarks.machines.network import DEVICE

WIDTH = 64
LEARNING_RATE = 0.1


class ServedTensor:
    """The rows of the process that serves them; torch calls its methods there."""

    values: torch.Tensor

    @classmethod
    def make(cls, rows: int) -> None:
        cls.values = torch.zeros(rows, WIDTH)

    @classmethod
    def push(cls, gradient: torch.Tensor) -> None:
        cls.values.sub_(gradient, alpha=LEARNING_RATE)

    @classmethod
    def pull(cls) -> torch.Tensor:
        return cls.values

    @classmethod
    def pull_row(cls, row: int) -> torch.Tensor:
        return cls.values[row].clone()


def main(arguments: Sequence[str]) -> None:
    rank, servers = int(arguments[0]), int(arguments[1])
    rows, steps = int(arguments[4]), int(arguments[5])
    os.environ.update(
        MASTER_ADDR=arguments[2], MASTER_PORT=arguments[3], TP_SOCKET_IFNAME=DEVICE, GLOO_SOCKET_IFNAME=DEVICE
    )
    # two namespaces of one machine could share memory: two machines cannot
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    rpc.init_rpc(f"rank-{rank}", rank=rank, world_size=servers + 1, rpc_backend_options=options)
    if not rank:
        print(json.dumps(measure_steps(servers, rows // servers, steps)), flush=True)  # noqa: T201
    rpc.shutdown()  # servers wait here until the client is done


def measure_steps(servers: int, rows: int, steps: int) -> list[float]:
    names = [f"rank-{number}" for number in range(1, servers + 1)]
    for name in names:
        rpc.rpc_sync(name, ServedTensor.make, args=(rows,))
    gradient = torch.full((servers * rows, WIDTH), 1e-6)
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        parts = zip(names, gradient.split(rows), strict=True)
        torch.futures.wait_all([rpc.rpc_async(name, ServedTensor.push, args=(part,)) for name, part in parts])
        torch.cat(torch.futures.wait_all([rpc.rpc_async(name, ServedTensor.pull) for name in names]))
        seconds.append(time.perf_counter() - began)
    return seconds


if __name__ == "__main__":
    main(sys.argv[1:])
