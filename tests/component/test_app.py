"""The life of a service process: start, readiness, drain, signals, exit codes, and what it shows to
others.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scar.v1 import member_pb2, member_pb2_grpc
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.liveness.progress_monitor import STUCK_SECONDS
from tests.component.processes import DUMMY, Process, Processes, eventually, running_redis
from tests.framework.certificates import HOST, make_ca, tls_before


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.close()


def dummy(
    processes: Processes, redis_url: str, behaviour: str = "calm", role: str = "SHARD", **variables: str
) -> Process:
    return processes.start("dummy-0", DUMMY, role, behaviour, SCAR_REDIS=redis_url, **variables)


def probe(address: str, timeout: float = 20.0) -> member_pb2.ProbeReply:
    with grpc.insecure_channel(address) as channel:
        return member_pb2_grpc.MemberServiceStub(channel).Probe(member_pb2.ProbeRequest(), timeout=timeout)


def test_it_lives_in_order_and_leaves_nothing_behind(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url, "slow").serving()
    assert service.words == ["build", "start"]
    reply = probe(service.address)
    assert (reply.member.name, reply.member.address, reply.epoch) == ("dummy-0", service.address, 1)
    heartbeats = HeartbeatStore(redis_url, "scar")
    key = f"dummy-0@{reply.member.incarnation}"
    eventually(lambda: key in heartbeats.read_heartbeats())

    service.process.send_signal(signal.SIGTERM)
    eventually(lambda: service.health() == "NOT_SERVING")
    eventually(lambda: service.words[-1] == "stop")
    assert probe(service.address).member == reply.member, "it answers while it drains"
    assert service.wait() == 0
    assert service.words == ["build", "start", "stop", "stopped"]
    assert key not in heartbeats.read_heartbeats()
    heartbeats.close()


def test_a_second_signal_ends_it_at_once(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url, "stubborn").serving()
    service.process.send_signal(signal.SIGTERM)
    eventually(lambda: service.words[-1] == "stop")
    service.process.send_signal(signal.SIGINT)
    assert service.wait(30) == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [("raises", 1), ("fenced", 3), ("main", 0), ("main-raises", 1), ("main-exits", 1), ("main-late", 0)],
)
def test_exit_codes(processes: Processes, redis_url: str, behaviour: str, code: int) -> None:
    service = dummy(processes, redis_url, behaviour)
    assert service.wait() == code
    assert ("stopped" in service.words) is (code == 0), "what has failed is not drained"
    assert ("service.failed" in service.log) is (code != 0)


def test_who_needs_redis_says_so_when_it_is_not_there(processes: Processes) -> None:
    service = dummy(processes, "redis://127.0.0.1:1/0", role="RECOVERY")
    assert service.wait() == 2
    (line,) = [line for line in service.log.splitlines() if line.startswith("error: ")]
    assert re.search(
        r"Redis at redis://127\.0\.0\.1:1/0 does not answer: .*\. Start Redis there, or set SCAR_REDIS"
        r" \(--redis\)",
        line,
    )
    assert service.words == []


def test_who_does_not_need_redis_warns_and_goes_on(processes: Processes) -> None:
    service = dummy(processes, "redis://127.0.0.1:1/0").serving()
    assert "redis.unavailable" in service.log


def test_a_worker_does_not_know_redis(processes: Processes) -> None:
    service = dummy(processes, "redis://127.0.0.1:1/0", role="WORKER").serving()
    assert "redis" not in service.log


def test_it_serves_other_machines_without_tls_only_where_that_is_meant(
    processes: Processes, redis_url: str
) -> None:
    refused = dummy(processes, redis_url, SCAR_LISTEN="0.0.0.0:0")
    assert refused.wait() == 2
    assert "SCAR_INSECURE=true (--insecure)" in refused.log
    dummy(processes, redis_url, SCAR_LISTEN="0.0.0.0:0", SCAR_INSECURE="true").serving()


def test_a_taken_port_names_the_variable(processes: Processes, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        service = dummy(processes, redis_url, SCAR_LISTEN=f"127.0.0.1:{other.getsockname()[1]}")
        assert service.wait() == 2
    assert "SCAR_LISTEN (--listen)" in service.log


def test_a_stuck_shard_falls_silent(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url, "stuck").serving()
    key = f"dummy-0@{probe(service.address).member.incarnation}"
    heartbeats = HeartbeatStore(redis_url, "scar")
    eventually(lambda: probe(service.address).idle > STUCK_SECONDS + 0.2)

    def is_silent() -> bool:  # a heartbeat that it sent before may be under way on a busy machine
        count = heartbeats.read_heartbeats()[key].count
        time.sleep(0.4)
        return heartbeats.read_heartbeats()[key].count == count

    eventually(is_silent)
    heartbeats.close()


@pytest.mark.timed
def test_a_watch_ends_with_the_process(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url).serving()
    with grpc.insecure_channel(service.address) as channel:
        stream = member_pb2_grpc.MemberServiceStub(channel).Watch(member_pb2.ProbeRequest(), timeout=30)
        assert next(stream).member.name == "dummy-0"
        killed = time.monotonic()
        threading.Timer(0.1, service.process.kill).start()
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - killed < 1.0


def test_one_on_standby_is_well_but_wants_no_requests(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url, "standby")
    eventually(lambda: service.health("readiness") == "SERVING")
    eventually(lambda: service.health("liveness") == "SERVING")
    assert service.health() == "NOT_SERVING"
    assert service.health("scar.v1.MemberService") == "NOT_SERVING"


def test_it_shows_metrics_health_names_and_reflection(processes: Processes, redis_url: str) -> None:
    service = dummy(processes, redis_url, SCAR_METRICS_PORT="0").serving()
    probe(service.address)
    assert service.health("scar.v1.MemberService") == "SERVING"
    assert service.health("liveness") == "SERVING"
    address = re.search(r"metrics\.started address=(\S+)", service.log)
    assert address is not None
    text = urllib.request.urlopen(f"http://{address.group(1)}/metrics", timeout=20).read().decode()
    assert re.search(r'scar_build_info\{member="dummy-0",role="shard",version="[^"]+"\} 1\.0', text)
    assert 'scar_rpc_seconds_count{code="OK",method="MemberService/Probe"} 1.0' in text
    with grpc.insecure_channel(service.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = stub.ServerReflectionInfo(iter([request]), timeout=20)
    assert "scar.v1.MemberService" in {one.name for one in reply.list_services_response.service}


def test_heartbeats_reach_a_redis_with_a_certificate_of_a_private_ca(
    processes: Processes, redis_url: str, tmp_path: Path
) -> None:
    ca_file, server_file = make_ca(tmp_path / "ca")
    with tls_before(int(redis_url.rpartition(":")[2].partition("/")[0]), server_file) as port:
        service = dummy(processes, f"rediss://{HOST}:{port}/0", SCAR_REDIS_CA=str(ca_file)).serving()
        key = f"dummy-0@{probe(service.address).member.incarnation}"
        eventually(lambda: key in HeartbeatStore(redis_url, "scar").read_heartbeats())
