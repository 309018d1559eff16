"""One target, two coordinators: calls reach the one that leads, and its successor after a SIGKILL."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar._client.recovery_client import RecoveryClient
from scar.errors import Temporary
from scar.v1 import recovery_pb2 as pb
from scar.v1.recovery_pb2_grpc import RecoveryStub
from scar.wire.transport import LEADER_CONNECTION_MS, RECOVERY, Link
from tests.component.processes import Process, Processes, eventually, running_redis

WATCHERS = 100  # more than a server has threads
SHORT_LEASE = 1.0  # seconds; a busy machine may take it from a leader that is well
LONG_LEASE = 60.0  # who leads stays the leader for the whole test


@contextmanager
def running(folder: Path, replicas: int, lease: float) -> Iterator[list[Process]]:
    """Recovery coordinators over one store."""
    processes = Processes(folder)
    try:
        with running_redis(folder) as url:
            settings = {
                "SCAR_REDIS": url,
                "SCAR_STORE": f"file://{folder / 'store'}",
                "SCAR_LEASE_SECONDS": f"{lease}",
            }
            yield [
                processes.start(f"recovery-{number}", "-m", "scar_recovery", **settings)
                for number in range(replicas)
            ]
    finally:
        processes.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Process]]:
    with running(tmp_path, 2, SHORT_LEASE) as processes:
        yield processes


@pytest.fixture
def steady(tmp_path: Path) -> Iterator[list[Process]]:
    """Two, of which one leads from beginning to end."""
    with running(tmp_path, 2, LONG_LEASE) as processes:
        yield processes


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Process]:
    with running(tmp_path, 1, LONG_LEASE) as (process,):
        yield process


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


def reach_leader(link: Link, seconds: float = 5.0) -> None:
    """Many calls in a row reach who leads. On a busy machine leadership may change in between: then again."""
    stub = RecoveryStub(link.channel)

    def all_reach() -> bool:
        return all(link.call(stub.Status, pb.RecoveryStatusRequest(), seconds).leader for _ in range(20))

    eventually(all_reach, what="calls reach the leader")


def test_calls_follow_the_leader(replicas: list[Process]) -> None:
    for replica in replicas:
        replica.serving("liveness")  # a standby is well, it only does not lead
    link = Link(target(replicas), "recovery", RECOVERY)
    try:
        leader(replicas)
        reach_leader(link)
        first = leader(replicas)
        first.process.kill()
        first.process.wait()
        # a lease of 1 s, and none of the backoffs of up to two minutes
        leader([replica for replica in replicas if replica is not first])
        reach_leader(link)
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


def test_connections_are_renewed_and_no_call_fails(alone: Process) -> None:
    """A client looks a name up only when it loses a connection; without losing one it would never hear of
    a new replica.
    """
    relay = Relay(leader([alone]).address)
    link = Link(relay.address, "recovery", RECOVERY)
    stub = RecoveryStub(link.channel)
    end = time.monotonic() + 4 * LEADER_CONNECTION_MS / 1000
    try:
        while relay.accepted < 2 and time.monotonic() < end:
            link.call(stub.Status, pb.RecoveryStatusRequest(), 20.0)
            time.sleep(0.05)
        assert relay.accepted >= 2
    finally:
        link.close()
        relay.close()


def test_a_frozen_leader_is_left(replicas: list[Process]) -> None:
    """It keeps its connections and answers nothing; pings notice it."""
    link = Link(target(replicas), "recovery", RECOVERY)
    leader(replicas)
    reach_leader(link)
    first = leader(replicas)
    try:
        first.process.send_signal(signal.SIGSTOP)
        reach_leader(link, seconds=1.0)
    finally:
        first.process.send_signal(signal.SIGCONT)
        link.close()


def test_nobody_leads_is_a_temporary_error(steady: list[Process]) -> None:
    first = leader(steady)
    (standby,) = [replica for replica in steady if replica is not first]
    standby.serving("liveness")
    link = RecoveryClient(standby.address)
    try:
        with pytest.raises(Temporary):
            link.get_epochs(0, 0.0)
    finally:
        link.close()


def test_health_watchers_hold_no_thread_of_the_server(alone: Process) -> None:
    """Every member of a cluster watches the health of every coordinator; a server has 64 threads."""
    leader([alone])
    channels = [
        grpc.insecure_channel(alone.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(WATCHERS)
    ]
    request = health_pb2.HealthCheckRequest(service=RECOVERY)
    watches = [health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60) for channel in channels]
    try:
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        link = Link(alone.address, "recovery", RECOVERY)
        assert link.call(RecoveryStub(link.channel).Status, pb.RecoveryStatusRequest(), 20.0).leader
        link.close()
    finally:
        for watch, channel in zip(watches, channels, strict=True):
            watch.cancel()
            channel.close()
