"""A cluster whose processes know each other by certificates: it trains over renewals and expiry, lets nobody
else in, and heals.
"""

from __future__ import annotations

import http.client
import itertools
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

import scar
from scar import errors
from scar.v1 import recovery_pb2
from scar.v1.recovery_pb2_grpc import RecoveryStub
from scar.wire.certificates import TlsIdentity
from scar.wire.credentials import active_credentials, restore_credentials, use_certificate
from scar.wire.transport import RECOVERY, open_channel
from scar_local import LocalCluster
from scar_local.authority import create_authority, renew_certificates, role_files, role_variables
from tests.system.test_console import LOOKS, looks

pytestmark = pytest.mark.timeout(300)

FILE = """
import time
import numpy as np
import scar

job = scar.Job("sealed", [scar.Table("w", (8, 2), rule=scar.add())], workers=2, shards=2)

def train(worker):
    for clock in worker.clocks(limit=1_000_000):
        worker.pull("w")
        worker.push("w", np.full((8, 2), 0.5))
        time.sleep(0.005)
"""
SECONDS = 90.0
DAY = 86400.0
EXPIRED_SECONDS = 3.0  # several heartbeats and probes
ROLES = {"ps": "shard"}  # the others are called like their component
LEASE = "10"  # a machine that is busy is not what is tested


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("sealed")
    train = folder / "train.py"
    train.write_text(FILE)
    environment = {"SCAR_LEASE_SECONDS": LEASE}
    with LocalCluster(
        folder / "cluster", shards=2, tls=True, respawn_delay=0.3, environment=environment
    ) as cluster:
        job, _ = scar.load_job(train)
        cluster.start_job(job)
        cluster.start_workers(train, 2)
        advance(cluster)
        yield cluster


def advance(cluster: LocalCluster, clocks: int = 10) -> None:
    """Training goes on from here."""
    goal = cluster.status().clock + clocks
    cluster.until(lambda status: status.clock >= goal, SECONDS, f"clock {goal}")


def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return true


def wait_until(condition: Callable[[], bool], what: str) -> None:
    assert comes_true(condition, SECONDS), what


def certificates(cluster: LocalCluster) -> Path:
    return cluster.directory / "tls"


def role_addresses(cluster: LocalCluster) -> list[tuple[str, str]]:
    """(role, address) of every process that serves. Those of workers are known from their heartbeats."""
    names = [process.name for process in cluster.processes() if process.name != "redis"]
    workers = {name for name in names if name.startswith("worker-")}
    members = cluster.until(lambda status: workers <= set(status.members), SECONDS, "heartbeats").members
    found = []
    for name in names:
        component = name.rpartition("-")[0]
        address = members[name].member.address if name in workers else cluster.address(name)
        found.append((ROLES.get(component, component), address))
    return found


def shows_its_file(cluster: LocalCluster, role: str, address: str) -> bool:
    """Whether a new connection is shown the certificate that lies in the folder now."""
    shown = shown_certificate(certificates(cluster), address)
    return shown == ssl.PEM_cert_to_DER_cert(role_files(certificates(cluster), role).cert.read_text())


def shown_certificate(folder: Path, address: str) -> bytes:
    """As DER, whatever it says. It takes over new files at the latest at its next connection but one."""
    own = role_files(folder, "operator")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(own.cert, own.key)
    context.set_alpn_protocols(["h2"])
    host, port = address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=30) as connection,
        context.wrap_socket(connection) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def has_expired(cluster: LocalCluster, role: str, address: str) -> bool:
    """Whether a new connection is shown a certificate that is too old."""
    context = ssl.create_default_context(cafile=str(role_files(certificates(cluster), role).ca))
    host, port = address.rsplit(":", 1)
    name = TlsIdentity(role, "local").name
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            context.wrap_socket(connection, server_hostname=name).close()
        except ssl.SSLCertVerificationError as error:
            return "expired" in error.verify_message
    return False


def all_show_theirs(cluster: LocalCluster, served: list[tuple[str, str]]) -> bool:
    return all(shows_its_file(cluster, role, address) for role, address in served)


def await_renewal(cluster: LocalCluster) -> None:
    """Every process shows what lies in the folder to who connects."""
    served = role_addresses(cluster)
    wait_until(lambda: all_show_theirs(cluster, served), f"one of {served} keeps its former certificate")


@contextmanager
def speaking_as(cluster: LocalCluster, role: str) -> Iterator[grpc.Channel]:
    """A channel to the recovery coordinator, with the certificate of this role."""
    before = active_credentials()
    use_certificate(role_files(certificates(cluster), role))
    try:
        with open_channel(cluster.endpoints.recovery_address, RECOVERY) as channel:
            yield channel
    finally:
        restore_credentials(before)


def refusal(channel: grpc.Channel) -> grpc.RpcError:
    """What a report of a failure is answered."""
    with channel, pytest.raises(grpc.RpcError) as caught:
        RecoveryStub(channel).ReportFailure(recovery_pb2.FailureReport(), timeout=30)
    return caught.value


def channel_with(cluster: LocalCluster, folder: Path, role: str) -> grpc.Channel:
    """Whatever these certificates are worth."""
    files = role_files(folder, role)
    believed = role_files(certificates(cluster), role).ca
    credentials = grpc.ssl_channel_credentials(
        believed.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()
    )
    name = TlsIdentity("recovery", "local").name
    return grpc.secure_channel(
        cluster.endpoints.recovery_address, credentials, [("grpc.ssl_target_name_override", name)]
    )


def assert_nothing_failed(cluster: LocalCluster, epoch: int) -> None:
    status = cluster.status()
    assert not status.failures
    assert status.number == epoch, "nobody left, nobody came"
    assert not any(process.restarts for process in cluster.processes())


def test_certificates_are_renewed_in_mid_training_without_a_failure(cluster: LocalCluster) -> None:
    epoch = cluster.status().number
    for _ in range(2):
        renew_certificates(certificates(cluster))
        await_renewal(cluster)
        advance(cluster)
    assert_nothing_failed(cluster, epoch)


def test_expired_certificates_are_no_death(cluster: LocalCluster) -> None:
    """They last until everybody has taken them, and then not for long."""
    epoch = cluster.status().number
    served = role_addresses(cluster)
    for seconds in (3, 6, 12, 24, 48):  # a busy machine needs more
        renew_certificates(certificates(cluster), seconds / DAY)
        if comes_true(lambda: all_show_theirs(cluster, served), seconds):
            break
    wait_until(lambda: all(has_expired(cluster, *one) for one in served), "they do not expire")
    time.sleep(EXPIRED_SECONDS)
    renew_certificates(certificates(cluster))
    await_renewal(cluster)
    advance(cluster)
    assert_nothing_failed(cluster, epoch)


def test_who_has_no_certificate_or_the_wrong_one_reaches_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    create_authority(tmp_path, "local")  # another one of the same name
    anonymous = grpc.insecure_channel(cluster.endpoints.recovery_address)
    for channel in (anonymous, channel_with(cluster, tmp_path, "detector")):
        assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE
    for role in ("worker", "reader", "operator", "shard"):
        with speaking_as(cluster, role) as channel:
            assert isinstance(errors.from_rpc(refusal(channel)), errors.PermissionDenied)
    assert not cluster.status().failures


def test_the_page_of_a_reader_shows_all_and_kills_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """As the chart runs it: with a reader's certificate, and a token that it was given."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    options = ("--recovery", cluster.endpoints.recovery_address, "--token-file", str(token))
    with subprocess.Popen(
        [sys.executable, "-m", "scar_cli", "console", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        | role_variables(certificates(cluster), "reader"),
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            assert command.stdout is not None
            said = command.stdout.readline()
            host = said.split("http://")[1].split("/")[0]
            assert "0123456789abcdef" not in said
            seen = (one["state"] for one in itertools.islice(looks(host, "0123456789abcdef"), LOOKS))
            # after the expiry of the test before, members reach each other again by and by
            look = next(one for one in seen if not one["problems"])
            assert (look["job"]["name"], look["can_break"]) == ("sealed", [])
            assert [row["state"] for row in look["workers"]["rows"]] == ["training", "training"]
            assert ask(host, "GET", "/events?token=wrong") == 403
            assert ask(host, "GET", "/") == 403
            assert ask(host, "POST", "/kill/ps-0") == 403
            assert ask(host, "POST", "/kill/ps-0", **{"X-Scar-Token": "0123456789abcdef"}) == 404
        finally:
            command.terminate()
    assert cluster.status().clock > 0
    assert cluster.status().failures == ()


def ask(host: str, method: str, path: str, **headers: str) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection(host, timeout=SECONDS)
    connection.request(method, path, headers=headers)
    with connection.getresponse() as answer:
        return answer.status


def test_a_reader_pulls_and_starts_nothing(cluster: LocalCluster) -> None:
    with speaking_as(cluster, "reader") as channel:
        with scar.connect(cluster.endpoints.recovery_address) as reader:
            values = reader.pull("w")
        assert np.all(values > 0)
        with pytest.raises(grpc.RpcError) as caught:
            RecoveryStub(channel).StartJob(recovery_pb2.StartJobRequest(), timeout=30)
        assert isinstance(errors.from_rpc(caught.value), errors.PermissionDenied)


def test_a_killed_shard_is_proved_dead_by_its_port_and_training_heals(cluster: LocalCluster) -> None:
    """Last, as only here something fails."""
    cluster.kill("ps-0")
    status = cluster.until(
        lambda status: any(one.epoch for one in status.failures), SECONDS, "the end of the recovery"
    )
    (failure,) = status.failures
    proofs = ("its port is closed", "nobody listens at its address", "has taken its place")
    assert failure.evidence[0].endswith(proofs), "a handshake that fails would prove nothing"
    assert failure.detect_seconds < float(LEASE), "it was proved, not waited for"
    advance(cluster)
    assert len(cluster.status().failures) == 1
