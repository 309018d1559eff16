"""Whoever may call a service has it dial nobody but himself, and not as often as he likes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scar.errors import InvalidRequest, NotServing, StaleEpoch
from scar.placement import Member, Role
from scar.v1 import detector_pb2, detector_pb2_grpc, member_pb2_grpc, ps_pb2, recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.credentials import bind_server
from scar.wire.transport import Link
from scar_detector.watch_list import MAX_STRANGERS
from scar_recovery.servicer import RecoveryServicer
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.claims import ClaimCheck
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.server import bind_port, make_server
from tests.component.machine_address import own_address
from tests.component.processes import Process, Processes, eventually, running_redis
from tests.component.ps_scene import Running, after, declared, first, run_pair

ELSEWHERE = "192.0.2.1:7070"  # reserved for documentation: nobody is there


class Listener:
    """Counts who connects, and says nothing."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.calls = 0
        self._accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._accepted.append(self._socket.accept()[0])
            except OSError:
                return
            self.calls += 1

    def close(self) -> None:
        self._socket.close()
        for one in self._accepted:
            one.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[Running]]:
    yield from run_pair(f"file://{tmp_path}")


def test_a_shard_receives_from_shards_of_the_epoch_where_the_epoch_says(
    shards: list[Running], listener: Listener, tmp_path: Path
) -> None:
    spec = declared()
    epoch = first(spec, shards)
    donor, heir = shards
    donor.adopt(epoch, spec)
    donor.settle(1)
    wanted = [ps_pb2.TableBlocks(table="w", dense=True)]
    donor.call(donor.control.Freeze, ps_pb2.FreezeRequest(epoch=1, tables=wanted))

    def receive(name: str, incarnation: str, number: int = 1) -> int:
        said = Member(Role.SHARD, name, incarnation, listener.address)
        request = ps_pb2.ReceiveRequest(
            epoch=number, donor=codec.member_to_proto(said), tables=wanted, job=spec.name
        )
        return int(heir.call(heir.control.Receive, request).bytes)

    with pytest.raises(NotServing):  # an epoch that nobody has made
        receive(donor.member.name, donor.member.incarnation, 7)
    with pytest.raises(StaleEpoch):
        receive("ps-7", "0" * 12)
    assert receive(donor.member.name, donor.member.incarnation) > 0
    heir.adopt(after(epoch), spec)
    with pytest.raises(StaleEpoch):
        receive("ps-7", "0" * 12)
    assert listener.calls == 0


@contextmanager
def recovery(host: str, any_address: bool = False) -> Iterator[Callable[[str], None]]:
    """A recovery coordinator on standby, which refuses a Join only after it has looked at who asks."""
    server = make_server(workers=4)
    servicer = RecoveryServicer(lambda: None, ClaimCheck(any_address))
    recovery_pb2_grpc.add_RecoveryServicer_to_server(servicer, server)
    address = bind_port(server, f"{host}:0", bind=partial(bind_server, insecure=True))
    server.start()
    link = Link(address, "recovery")
    stub = recovery_pb2_grpc.RecoveryStub(link.channel)

    def join(address: str) -> None:
        member = Member(Role.SHARD, "ps-0", "a" * 12, address)
        link.call(stub.Join, recovery_pb2.JoinRequest(member=codec.member_to_proto(member)), 20)

    yield join
    link.close()
    server.stop(0).wait(5)


def test_who_joins_names_an_address_of_its_own_machine() -> None:
    ours = own_address()
    with recovery(ours) as join:
        for forged in (ELSEWHERE, "localhost:1", "unix:/run/x:1", "no.such.host.invalid:1"):
            with pytest.raises(InvalidRequest):
                join(forged)
        with pytest.raises(NotServing):
            join(f"{ours}:7070")
    with recovery(ours, any_address=True) as join:
        with pytest.raises(NotServing):
            join(ELSEWHERE)
        with pytest.raises(InvalidRequest):
            join("unix:/run/x:1")


def test_who_calls_over_loopback_may_be_a_proxy_for_another() -> None:
    with recovery("127.0.0.1") as join:
        with pytest.raises(NotServing):
            join(ELSEWHERE)
        with pytest.raises(InvalidRequest):
            join("dns://192.0.2.1/x:1")


@pytest.fixture
def detector(tmp_path: Path) -> Iterator[Process]:
    processes = Processes(tmp_path)
    with running_redis(tmp_path) as url:
        try:
            variables = {"SCAR_REDIS": url, "SCAR_RECOVERY": "127.0.0.1:1"}
            yield processes.start("detector-0", "-m", "scar_detector", **variables).serving()
        finally:
            processes.close()


@pytest.fixture
def call(detector: Process) -> Iterator[Callable[..., Any]]:
    """Calls a method of the detector."""
    link = Link(detector.address, "detector")
    stub = detector_pb2_grpc.DetectorStub(link.channel)
    eventually(lambda: link.call(stub.ListMembers, detector_pb2.ListMembersRequest(), 20).redis)
    yield lambda method, request: link.call(getattr(stub, method), request, 20)
    link.close()


def beat(name: str, address: str) -> detector_pb2.BeatRequest:
    member = Member(Role.WORKER, name, "a" * 12, address)
    return detector_pb2.BeatRequest(member=codec.member_to_proto(member), progress=1, epoch=1 << 40)


def test_four_hundred_forged_heartbeats_cost_a_detector_a_few_threads(
    detector: Process, call: Callable[..., Any], listener: Listener
) -> None:
    before = len(os.listdir(f"/proc/{detector.process.pid}/task"))
    for number in range(400):
        call("Beat", beat(f"forged-{number}", listener.address))
    eventually(lambda: len(call("ListMembers", detector_pb2.ListMembersRequest()).members) >= 400, 60)
    # two for each stream (ours and gRPC's), and those that probe
    assert len(os.listdir(f"/proc/{detector.process.pid}/task")) < before + 2 * MAX_STRANGERS + 64


def test_after_forged_heartbeats_an_honest_member_gets_its_turn(
    call: Callable[..., Any], listener: Listener
) -> None:
    server = make_server(workers=4)
    servicer = MemberServicer(Member(Role.WORKER, "honest", "a" * 12), ProgressMonitor())
    member_pb2_grpc.add_MemberServiceServicer_to_server(servicer, server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()

    def forge() -> None:
        for number in range(MAX_STRANGERS):
            call("Beat", beat(f"forged-{number}", listener.address))

    def is_watched() -> bool:
        forge()  # the detector would forget who is silent
        return bool(servicer._watchers)

    forge()
    met = detector_pb2.ListMembersRequest()
    eventually(lambda: len(call("ListMembers", met).members) >= MAX_STRANGERS, 60)
    call("Beat", beat("honest", address))
    eventually(is_watched, 60)
    servicer.close()
    server.stop(0).wait(5)
