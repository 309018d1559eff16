"""Plain TCP between machines: as many bytes there and back, over one connection.

python -m benchmarks.machines.tcp_peer serve HOST | measure HOST PORT BYTES STEPS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import time_action
from benchmarks.yardsticks import TcpPeer, serve_client


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "serve":
        serve_client(lambda port: print(port, flush=True), arguments[1])  # noqa: T201
        return
    peer = TcpPeer(int(arguments[2]), arguments[1])
    up, down = np.ones(int(arguments[3]), np.uint8), np.zeros(int(arguments[3]), np.uint8)
    seconds = [time_action(lambda: peer.exchange(up, down)) for _ in range(int(arguments[4]))]
    print(json.dumps(seconds), flush=True)  # noqa: T201
    peer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
