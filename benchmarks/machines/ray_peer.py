"""Ray between machines: actors with a part of the table each, a driver on the other machine. Objects go by
plasma. It runs in an interpreter that has Ray.

    PYTHON benchmarks/machines/ray_peer.py HEAD HOST SERVERS ROWS STEPS

Prints the seconds of all steps as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray

WIDTH = 64
LEARNING_RATE = 0.1


class ServingActor:
    """A part of the table."""

    def __init__(self, rows: int) -> None:
        self._values = np.zeros((rows, WIDTH), np.float32)

    def push(self, gradient: np.ndarray) -> None:
        self._values -= np.float32(LEARNING_RATE) * gradient

    def pull(self) -> np.ndarray:
        return self._values


def main(arguments: Sequence[str]) -> None:
    head, host = arguments[:2]
    servers, rows, steps = map(int, arguments[2:])
    ray.init(address=head, _node_ip_address=host, log_to_driver=False, logging_level="error")
    served: Any = ray.remote(num_cpus=0, resources={"server": 1})(ServingActor)
    shards = [served.remote(rows // servers) for _ in range(servers)]
    gradient = np.full((rows, WIDTH), 1e-6, np.float32)
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        parts = zip(shards, np.split(gradient, servers), strict=True)
        ray.get([shard.push.remote(ray.put(part)) for shard, part in parts])
        np.concatenate(ray.get([shard.pull.remote() for shard in shards]))
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
