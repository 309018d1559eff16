"""One target, two coordinators: calls reach the one that leads, and its successor after a SIGKILL."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar.epochs import Recovery
from scar.errors import Temporary
from scar.transport import LEADER_CONNECTION_MS, RECOVERY, Link
from scar.v1 import recovery_pb2 as pb
from scar.v1.recovery_pb2_grpc import RecoveryStub
from tests.component.processes import Process, Processes, eventually, running_redis

WATCHERS = 100  # more than a server has threads


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def replicas(tmp_path: Path, redis_url: str) -> Iterator[list[Process]]:
    """Two recovery coordinators over one store."""
    processes = Processes(tmp_path)
    settings = {"SCAR_REDIS": redis_url, "SCAR_STORE": f"file://{tmp_path / 'store'}", "SCAR_LEASE_SECONDS": "1"}
    yield [processes.start(f"recovery-{number}", "-m", "scar_recovery", **settings) for number in range(2)]
    processes.close()


def leader(replicas: list[Process]) -> Process:
    """The only one that says SERVING."""
    found: list[Process] = []

    def one() -> bool:
        found[:] = [replica for replica in replicas if replica.health(RECOVERY) == "SERVING"]
        return len(found) == 1

    eventually(one, what="exactly one leader")
    return found[0]


def target(replicas: list[Process]) -> str:
    return "ipv4:" + ",".join(replica.address for replica in replicas)


def test_calls_follow_the_leader(replicas: list[Process]) -> None:
    first = leader(replicas)
    (standby,) = [replica for replica in replicas if replica is not first]
    assert standby.health("liveness") == "SERVING", "a standby is well, it only does not lead"
    link = Link(target(replicas), "recovery", RECOVERY)
    stub = RecoveryStub(link.channel)
    try:
        for _ in range(20):
            assert link.call(stub.Status, pb.RecoveryStatusRequest(), 5.0).leader
        first.process.kill()
        killed = time.monotonic()
        eventually(lambda: link.call(stub.Status, pb.RecoveryStatusRequest(), 5.0).leader, what="the successor")
        assert time.monotonic() - killed < 20.0, "a lease of 1 s, and none of the backoffs of up to two minutes"
        assert leader([standby]) is standby
        for _ in range(20):
            assert link.call(stub.Status, pb.RecoveryStatusRequest(), 5.0).leader
    finally:
        link.close()


class Relay:
    """Passes connections on, and counts them."""

    def __init__(self, address: str) -> None:
        self.accepted = 0
        self._far = address.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                far = socket.create_connection((self._far[0], int(self._far[2])))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_connections_are_renewed_and_no_call_fails(replicas: list[Process]) -> None:
    """A client looks a name up only when it loses a connection; without losing one it would never hear of a new replica."""
    relay = Relay(leader(replicas).address)
    link = Link(relay.address, "recovery", RECOVERY)
    stub = RecoveryStub(link.channel)
    end = time.monotonic() + 2.5 * LEADER_CONNECTION_MS / 1000
    try:
        while relay.accepted < 2 and time.monotonic() < end:
            assert link.call(stub.Status, pb.RecoveryStatusRequest(), 5.0).leader
            time.sleep(0.05)
        assert relay.accepted >= 2
    finally:
        link.close()
        relay.close()


def test_a_frozen_leader_is_left(replicas: list[Process]) -> None:
    """It keeps its connections and answers nothing; pings notice it."""
    first = leader(replicas)
    link = Link(target(replicas), "recovery", RECOVERY)
    stub = RecoveryStub(link.channel)
    try:
        assert link.call(stub.Status, pb.RecoveryStatusRequest(), 5.0).leader
        first.process.send_signal(signal.SIGSTOP)
        eventually(lambda: all(link.call(stub.Status, pb.RecoveryStatusRequest(), 0.5).leader for _ in range(10)))
    finally:
        first.process.send_signal(signal.SIGCONT)
        link.close()


def test_nobody_leads_is_a_temporary_error(replicas: list[Process]) -> None:
    first = leader(replicas)
    (standby,) = [replica for replica in replicas if replica is not first]
    link = Recovery(standby.address)
    try:
        with pytest.raises(Temporary):
            link.epochs(0, 0.0)
    finally:
        link.close()


def test_health_watchers_hold_no_thread_of_the_server(replicas: list[Process]) -> None:
    """Every member of a cluster watches the health of every coordinator; a server has 64 threads."""
    first = leader(replicas)
    channels = [grpc.insecure_channel(first.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(WATCHERS)]
    request = health_pb2.HealthCheckRequest(service=RECOVERY)
    watches = [health_pb2_grpc.HealthStub(channel).Watch(request, timeout=30) for channel in channels]
    try:
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        link = Link(first.address, "recovery", RECOVERY)
        assert link.call(RecoveryStub(link.channel).Status, pb.RecoveryStatusRequest(), 5.0).leader
        link.close()
    finally:
        for watch, channel in zip(watches, channels, strict=True):
            watch.cancel()
            channel.close()
