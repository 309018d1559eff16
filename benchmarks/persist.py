"""Writing the whole model to a store: a full round against one plain write of the same bytes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, TimedAction, rate_row, time_pairs
from benchmarks.training import start_training

DIRECTORY_BYTES = 100_000_000
S3_BYTES = 32_000_000
BUCKET = "bench"


def measure_rows(repeat: int) -> list[BenchRow]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        data = np.ones(DIRECTORY_BYTES, dtype=np.uint8)
        # a new one each time, as an object is: for one that is written over, memory is there already
        paths = (Path(folder) / f"plain-{number}" for number in count())
        found.append(
            _measure_row(
                "directory",
                f"file://{folder}/store",
                DIRECTORY_BYTES,
                lambda: yardsticks.write_durable(next(paths), data),
                repeat,
            )
        )
    if find_spec("moto") and find_spec("boto3"):
        with s3_server() as endpoint:
            store = f"s3://{BUCKET}/model?endpoint={endpoint}&region=us-east-1"
            found.append(
                _measure_row(
                    "S3 (moto)", store, S3_BYTES, plain_put(endpoint, bytes(S3_BYTES)), min(repeat, 3)
                )
            )
    return found


def _measure_row(name: str, store: str, size: int, yardstick: TimedAction, repeat: int) -> BenchRow:
    shape = (size // 256, 64)
    with start_training([scar.Table("w", shape)], store=store) as run:
        run.worker.pull("w")  # waits for its initial values: a round does not save what is being loaded
        times = time_pairs(run.save, yardstick, repeat)
    against = "write and fsync of a new file" if store.startswith("file") else "put_object of boto3"
    return rate_row(f"full round of {size // 10**6} MB into a {name}", size / 1e9, times, "GB/s", against)


def plain_put(endpoint: str, data: bytes) -> TimedAction:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    return lambda: client.put_object(Bucket=BUCKET, Key="plain", Body=data)


@contextmanager
def s3_server() -> Iterator[str]:
    """Endpoint of a moto server in a process of its own, with credentials for it in the environment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_port(port)
        with mock.patch.dict(os.environ, AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench"):
            yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
