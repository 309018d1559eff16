"""Who gets in, who answers, and what a probe makes of it: real servers and real handshakes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from scar import errors
from scar.placement import Member, Role
from scar.v1 import member_pb2_grpc, recovery_pb2
from scar.v1.member_pb2 import GetStoryRequest, ProbeRequest
from scar.v1.recovery_pb2_grpc import RecoveryServicer, RecoveryStub, add_RecoveryServicer_to_server
from scar.wire import certificates
from scar.wire.certificates import client_context, read_certificate
from scar.wire.credentials import (
    channel_credentials,
)
from scar.wire.transport import open_channel
from scar_detector.core.member_state import ProbeAnswer
from scar_detector.death_watch import DeathWatch
from scar_detector.prober import probe_member
from scar_local.authority import create_authority, renew_certificates, role_files
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.health_board import HealthBoard, probe_threads
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.server import bind_port, make_server, show_services
from tests.component.certificate_roles import become

pytestmark = pytest.mark.usefixtures("nobody")
SHARD = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa")
SECONDS = 20.0


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Authorities: of the cluster, of a stranger who calls himself the same, and one of old certificates."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("ours", "theirs", "old")}
    create_authority(found["ours"], "one")
    create_authority(found["theirs"], "one")
    for name in ("ca.crt", "ca.key"):
        (found["old"] / name).write_bytes((found["ours"] / name).read_bytes())
    renew_certificates(found["old"], days=-1)
    return found


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)


@contextmanager
def served(folder: Path, role: str = "shard") -> Iterator[Member]:
    """A member of this role, by its certificate; the process is somebody else afterwards."""
    become(folder, role)
    server = make_server(workers=8)
    member_pb2_grpc.add_MemberServiceServicer_to_server(MemberServicer(SHARD, ProgressMonitor()), server)
    add_RecoveryServicer_to_server(RecoveryServicer(), server)
    HealthBoard((), probe_threads()).register(server)
    show_services(server, ())
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    try:
        yield replace(SHARD, address=address)
    finally:
        server.stop(0).wait(5)


def probe(channel: grpc.Channel) -> str:
    """Who answers."""
    with channel:
        stub = member_pb2_grpc.MemberServiceStub(channel)
        return str(stub.Probe(ProbeRequest(), timeout=SECONDS).member.name)


def refused(channel: grpc.Channel) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        probe(channel)
    return caught.value.code()


def test_members_of_a_cluster_know_each_other(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        become(folders["ours"], "detector")
        assert probe(open_channel(member.address, role="shard")) == "ps-0"
        assert probe_member(member) is ProbeAnswer.ALIVE


def test_nobody_gets_in_without_a_certificate(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        assert refused(grpc.insecure_channel(member.address)) is grpc.StatusCode.UNAVAILABLE
        authority = (folders["ours"] / "ca.crt").read_bytes()
        anonymous = grpc.secure_channel(
            member.address,
            grpc.ssl_channel_credentials(authority),
            [("grpc.ssl_target_name_override", "shard.one.scar")],
        )
        assert refused(anonymous) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("whose", ["theirs", "old"])
def test_a_certificate_of_another_authority_or_an_expired_one_does_not_get_in(
    folders: dict[str, Path], whose: str
) -> None:
    authority = (folders["ours"] / "ca.crt").read_bytes()
    files = role_files(folders[whose], "detector")
    with served(folders["ours"]) as member:
        credentials = grpc.ssl_channel_credentials(authority, files.key.read_bytes(), files.cert.read_bytes())
        name = [("grpc.ssl_target_name_override", "shard.one.scar")]
        assert refused(grpc.secure_channel(member.address, credentials, name)) is grpc.StatusCode.UNAVAILABLE


def test_a_worker_cannot_pose_as_a_shard(folders: dict[str, Path]) -> None:
    with served(folders["ours"], "worker") as member:
        become(folders["ours"], "detector")
        assert refused(open_channel(member.address, role="shard")) is grpc.StatusCode.UNAVAILABLE
        assert probe(open_channel(member.address, role="worker")) == "ps-0"


def test_methods_say_which_role_has_to_answer(folders: dict[str, Path]) -> None:
    """No caller can forget it: Recovery is answered by recovery coordinators alone."""
    with served(folders["ours"], "shard") as member:
        become(folders["ours"], "detector")
        with open_channel(member.address, role="shard") as channel, pytest.raises(grpc.RpcError) as caught:
            RecoveryStub(channel).ReportFailure(recovery_pb2.FailureReport(), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_role_that_may_not_call_is_told_so(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        become(folders["ours"], "worker")
        with open_channel(member.address, role="shard") as channel:
            stub = member_pb2_grpc.MemberServiceStub(channel)
            for call in (
                lambda: stub.Probe(ProbeRequest(), timeout=SECONDS),
                lambda: next(stub.Watch(ProbeRequest(), timeout=SECONDS)),
                lambda: stub.GetStory.future(GetStoryRequest(), timeout=SECONDS).result(),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call()
                denied = errors.from_rpc(caught.value)
                assert type(denied) is errors.PermissionDenied
                assert "the role worker may not call MemberService/" in denied.message
                assert "detector" in denied.next_step or "operator" in denied.next_step


def test_strangers_are_not_told_what_there_is(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        become(folders["ours"], "operator")
        with open_channel(member.address, role="shard") as channel:
            call = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                request_serializer=bytes,
                response_deserializer=bytes,
            )
            with pytest.raises(grpc.RpcError) as caught:
                next(call(iter([b""]), timeout=SECONDS))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# --- what a failed handshake proves: nothing


def test_a_probe_with_an_expired_certificate_proves_nothing(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        source = become(folders["ours"], "detector")
        old = role_files(folders["old"], "detector")
        context = client_context(old, source.current().ca.decode())
        source._current = replace(source._current, context=context)
        assert probe_member(member, SECONDS) is ProbeAnswer.UNVERIFIED


@pytest.mark.parametrize(("whose", "role"), [("theirs", "shard"), ("ours", "worker")])
def test_a_probe_of_who_is_not_believed_proves_nothing(
    folders: dict[str, Path], whose: str, role: str
) -> None:
    with served(folders[whose], role) as member:
        become(folders["ours"], "detector")
        assert probe_member(member, SECONDS) is ProbeAnswer.UNVERIFIED


def test_a_probe_of_a_server_without_tls_proves_nothing(folders: dict[str, Path]) -> None:
    become(folders["ours"], "detector")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(
            target=lambda: server.accept()[0].sendall(b"HTTP/1.1 400\r\n\r\n"), daemon=True
        ).start()
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
        assert probe_member(member, SECONDS) is ProbeAnswer.UNVERIFIED


def test_a_closed_port_is_a_proof_as_ever_and_a_frozen_process_is_silent(folders: dict[str, Path]) -> None:
    become(folders["ours"], "detector")
    with socket.create_server(("127.0.0.1", 0)) as server:
        member = replace(SHARD, address=f"127.0.0.1:{server.getsockname()[1]}")
        assert probe_member(member, 0.5) is ProbeAnswer.SILENT
    assert probe_member(member) is ProbeAnswer.REFUSED


@contextmanager
def watching(member: Member) -> Iterator[Future[bool]]:
    """Whether the member hung up the first time that the stream broke."""
    heard: Future[bool] = Future()

    def broken(_member: Member, hung_up: bool) -> None:
        if not heard.done():
            heard.set_result(hung_up)

    watcher = DeathWatch(member, broken)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    yield heard
    watcher.close()
    thread.join(5)


def test_a_watch_with_an_expired_certificate_is_no_hanging_up(folders: dict[str, Path]) -> None:
    with served(folders["ours"]) as member:
        source = become(folders["ours"], "detector")
        old = role_files(folders["old"], "detector")
        source._current = replace(source._current, cert=old.cert.read_bytes(), key=old.key.read_bytes())
        with watching(member) as heard:
            assert not heard.result(SECONDS)


# --- rotation


@pytest.mark.usefixtures("looking")
def test_certificates_are_renewed_under_calls_that_go_on(tmp_path: Path) -> None:
    """The old authority is no longer believed afterwards, so every call after it had new certificates."""
    create_authority(tmp_path, "one")
    with served(tmp_path) as member:
        old = read_certificate(role_files(tmp_path, "detector"))
        become(tmp_path, "detector")
        channel = open_channel(member.address, role="shard")
        stub = member_pb2_grpc.MemberServiceStub(channel)
        watch = stub.Watch(ProbeRequest(), timeout=SECONDS)
        assert next(watch).member.name == "ps-0"
        create_authority(tmp_path, "one")
        assert stub.Probe(ProbeRequest(), timeout=SECONDS).member.name == "ps-0"
        assert watch.is_active(), "what began with the old one goes on"
        assert stub.Probe.future(ProbeRequest(), timeout=SECONDS).result().member.name == "ps-0"
        name = [("grpc.ssl_target_name_override", "shard.one.scar")]
        before = grpc.secure_channel(member.address, channel_credentials(old), name)
        assert refused(before) is grpc.StatusCode.UNAVAILABLE
        watch.cancel()
        end = time.monotonic() + SECONDS
        while channel._retired:
            assert time.monotonic() < end
            stub.Probe(ProbeRequest(), timeout=SECONDS)
        channel.close()
        with pytest.raises(ValueError, match="closed channel"):
            stub.Probe(ProbeRequest(), timeout=SECONDS)


@pytest.mark.usefixtures("looking")
def test_closing_ends_calls_of_earlier_connections_too(tmp_path: Path) -> None:
    create_authority(tmp_path, "one")
    with served(tmp_path) as member:
        become(tmp_path, "detector")
        channel = open_channel(member.address, role="shard")
        stub = member_pb2_grpc.MemberServiceStub(channel)
        watch = stub.Watch(ProbeRequest(), timeout=SECONDS)
        next(watch)
        renew_certificates(tmp_path)
        stub.Probe(ProbeRequest(), timeout=SECONDS)
        assert len(channel._retired) == 1
        channel.close()
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
