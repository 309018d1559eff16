"""A cluster on one machine whose shards other machines reach.

    python -m benchmarks.machines.scar_cluster HOST KIND SHARDS JOB_SHARDS WORKERS ROWS BLOCK_ROWS

Prints, as a line of JSON, where it is and the variables of processes that belong to it, and serves until its
input ends.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import scar
from benchmarks.training import NEVER
from scar_local import LocalCluster
from scar_local.redis import server_command

WIDTH = 64
REDIS_PORT = 6390
START_SECONDS = 10.0
# what is trained: whole tables in step, or rows of them without waiting
KINDS = {"dense": ("bsp", scar.sgd(lr=0.1)), "sparse": ("asp", scar.adagrad(lr=0.1))}


def main(arguments: Sequence[str]) -> None:
    host, kind = arguments[:2]
    shards, job_shards, workers, rows, block_rows = map(int, arguments[2:])
    consistency, rule = KINDS[kind]
    job = scar.Job(
        "machines",
        [scar.Table("w", (rows, WIDTH), rule=rule, blocks=scar.rows(block_rows))],
        consistency=consistency,
        shards=job_shards,
        workers=workers,
        checkpoint=NEVER,
    )
    reached = {"SCAR_LISTEN": f"{host}:0", "SCAR_INSECURE": "true", "SCAR_CLUSTER": "machines"}
    with tempfile.TemporaryDirectory() as folder, _redis(host, Path(folder)) as redis:
        home = Path(folder) / "home"
        with LocalCluster(home, shards=shards, redis=redis, environment=reached) as cluster:
            cluster.start_job(job)
            places = {
                f"SCAR_{kind.upper()}": cluster.address(f"{kind}-0")
                for kind in ("recovery", "detector", "checkpoint")
            }
            settings = {
                **places,
                "SCAR_REDIS": redis,
                "SCAR_STORE": f"file://{home}/store",
                "SCAR_STORE_KEY": str(home / "store.key"),
                "SCAR_TOKEN_FILE": str(home / "token"),
                **reached,
            }
            print(json.dumps(settings), flush=True)  # noqa: T201
            sys.stdin.read()


@contextmanager
def _redis(host: str, folder: Path) -> Iterator[str]:
    """One that other machines reach, too."""
    program = server_command(REDIS_PORT, folder)[0]
    options = f"--port {REDIS_PORT} --bind {host} --protected-mode no --save --appendonly no".split()
    options.insert(options.index("--save") + 1, "")
    with subprocess.Popen([program, *options, "--dir", str(folder)], stdout=subprocess.DEVNULL) as server:
        try:
            _await_port(host)
            yield f"redis://{host}:{REDIS_PORT}/0"
        finally:
            server.terminate()


def _await_port(host: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((host, REDIS_PORT), 1.0).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1:])
