"""Who else is on this machine: without the token of a local cluster nothing of it answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from scar import errors
from scar.v1 import (
    checkpoint_pb2,
    detector_pb2,
    member_pb2,
    ps_pb2,
    recovery_pb2,
    recovery_pb2_grpc,
    worker_pb2,
)
from scar.wire.credentials import active_token
from scar_local import ClusterDirectory, LocalCluster

pytestmark = pytest.mark.timeout(300)

MODULES = (checkpoint_pb2, detector_pb2, member_pb2, ps_pb2, recovery_pb2, worker_pb2)
NOBODY = 65534

# everything is imported first: the folders of the packages may be closed to others, too
STRANGER = """
import json, os, socket, sys
import grpc
grpc.insecure_channel("127.0.0.1:1").close()
given = json.load(sys.stdin)
os.setgroups([])
os.setgid(given["user"])
os.setuid(given["user"])

def code_of(address, method):
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=30)
        except grpc.RpcError as error:
            return error.code().name
    return "OK"

def reason(read, path):
    try:
        read(path)
    except OSError as error:
        return type(error).__name__
    return "read"

def read_file(path):
    with open(path, "rb") as file:
        file.read(1)

def redis_says(port):
    with socket.socket() as connection:
        connection.settimeout(30)
        connection.connect((b"127.0.0.1", port))
        connection.sendall(b"SET leader:recovery me\\r\\n")
        return connection.recv(7).decode()

json.dump({
    "calls": {f"{at} {method}": code_of(at, method) for at, methods in given["calls"] for method in methods},
    "above": reason(os.listdir, os.path.dirname(given["folder"])),
    "folder": reason(os.listdir, given["folder"]),
    "files": {path: reason(read_file, path) for path in given["files"]},
    "redis": redis_says(given["redis"]),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """In a folder that everybody may enter, as a project's usually is."""
    above = Path(tempfile.mkdtemp(prefix="scar-users-", dir="/tmp"))
    above.chmod(0o755)
    try:
        with LocalCluster(above / "local", shards=1) as running:
            yield running
    finally:
        shutil.rmtree(above)


def calls(cluster: LocalCluster) -> list[tuple[str, list[str]]]:
    """Each address, and every method that is served there."""
    services = [one for module in MODULES for one in module.DESCRIPTOR.services_by_name.values()]
    methods = {
        service.full_name: [f"/{service.full_name}/{name}" for name in service.methods_by_name]
        for service in services
    }
    everybody = methods["scar.v1.MemberService"]
    served = {
        "recovery-0": ("scar.v1.Recovery",),
        "detector-0": ("scar.v1.Detector",),
        "checkpoint-0": ("scar.v1.Checkpoint",),
        "ps-0": ("scar.v1.ShardData", "scar.v1.ShardControl"),
    }
    return [
        (cluster.address(name), [*everybody, *(one for service in own for one in methods[service])])
        for name, own in served.items()
    ]


def code_without_token(address: str, method: str) -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(b"", timeout=30)
    return caught.value.code()


def test_every_method_is_denied_without_the_token(cluster: LocalCluster) -> None:
    tried = [(address, method) for address, methods in calls(cluster) for method in methods]
    codes = {method: code_without_token(address, method) for address, method in tried}
    assert set(codes.values()) == {grpc.StatusCode.PERMISSION_DENIED}, codes
    assert len(codes) > 30


def test_who_is_denied_is_told_where_the_token_is(cluster: LocalCluster) -> None:
    with grpc.insecure_channel(cluster.endpoints.recovery_address) as channel:
        stub = recovery_pb2_grpc.RecoveryStub(channel)
        for carried in ((), (("authorization", f"Bearer {active_token()[:-1]}"),)):
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetJob(recovery_pb2.GetJobRequest(), timeout=30, metadata=carried)
            error = errors.from_rpc(caught.value)
            assert isinstance(error, errors.PermissionDenied)
            assert "token of this cluster" in error.message
            assert "SCAR_TOKEN_FILE" in error.next_step


def test_its_files_are_its_owners_alone(cluster: LocalCluster) -> None:
    home = ClusterDirectory(cluster.directory)
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    for secret in (home.token, home.redis_config, home.path / "cluster.json"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600, secret


def test_no_secret_is_in_the_arguments_of_a_process(cluster: LocalCluster) -> None:
    secrets = [active_token(), str(urlsplit(cluster.redis_url).password)]
    for process in cluster.processes():
        arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert arguments
        assert not any(secret in arguments for secret in secrets), process.name


def test_redis_wants_its_password(cluster: LocalCluster) -> None:
    port = int(urlsplit(cluster.redis_url).port or 0)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(7) == b"-NOAUTH"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reaches_nothing(cluster: LocalCluster) -> None:
    home = ClusterDirectory(cluster.directory)
    environments = [f"/proc/{process.pid}/environ" for process in cluster.processes()]
    given = {
        "user": NOBODY,
        "calls": calls(cluster),
        "folder": str(home.path),
        "files": [str(home.token), str(home.redis_config), *environments],
        "redis": urlsplit(cluster.redis_url).port,
    }
    ran = subprocess.run(
        [sys.executable, "-c", STRANGER],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert set(found["calls"].values()) == {"PERMISSION_DENIED"}, found["calls"]
    assert set(found["files"].values()) == {"PermissionError"}, found["files"]
    assert (found["above"], found["folder"]) == ("read", "PermissionError")
    assert found["redis"] == "-NOAUTH"


def test_two_clusters_of_one_process_share_its_token(cluster: LocalCluster, tmp_path: Path) -> None:
    before = active_token()
    with LocalCluster(tmp_path / "other", shards=1, coordinators=False) as other:
        assert ClusterDirectory(other.directory).token.read_text() == before
    assert cluster.status().recovery is not None
    assert active_token() == before
