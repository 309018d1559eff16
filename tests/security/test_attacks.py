"""What a client could do while nobody was asked for credentials: refused now, and training goes on.

docs/security.md has the table of these attacks, also of those that other tests hold.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest

from scar.member_secrets import SECRET_BYTES
from scar.placement import Member, Role
from scar.v1 import (
    callers_pb2,
    checkpoint_pb2,
    detector_pb2,
    member_pb2,
    ps_pb2,
    recovery_pb2,
    types_pb2,
    worker_pb2,
)
from scar.version import PROTOCOL
from scar.wire.codec import member_to_proto
from scar_runtime.process.access import allowed_roles
from tests.security.scene import SECONDS, Intruder, Victim, resident_mib

STRANGERS = ("plaintext", "anonymous", "stranger", "expired")  # they do not even get a connection
DENIED = ("neighbour", "worker", "reader")
SECRET = b"x" * SECRET_BYTES
WHOLE = [ps_pb2.TableBlocks(table="w", dense=True)]


@dataclass(frozen=True)
class Attack:
    """A call to a server of ``role``. ``entitled``: whose certificate may make it."""

    role: str
    method: str
    request: Callable[[Victim], Any]
    entitled: tuple[str, ...] = ()


def newest_epoch(victim: Victim) -> types_pb2.Epoch:
    request = recovery_pb2.GetEpochsRequest(after=0)
    reply = victim.cluster.endpoints.recovery.GetEpochs(request, timeout=SECONDS)
    return types_pb2.Epoch.FromString(reply.epochs[-1].SerializeToString())


def forge_epoch(victim: Victim) -> ps_pb2.AdoptRequest:
    """One that is in no store. What it says cannot be brought along: a shard reads it there."""
    return ps_pb2.AdoptRequest(epoch=newest_epoch(victim).number + 1, digest=SECRET, job="victim")


def as_member(victim: Victim, name: str) -> types_pb2.Member:
    return member_to_proto(victim.members[name])


def forge_clock(victim: Victim) -> ps_pb2.ClockRequest:
    worker = victim.members["worker-0"]
    epoch = newest_epoch(victim).number
    return ps_pb2.ClockRequest(
        worker=worker.name, incarnation=worker.incarnation, epoch=epoch, finished=1 << 62
    )


def forge_member(role: Role, name: str, victim: Victim) -> types_pb2.Member:
    """A new incarnation, at an address where nobody is."""
    return member_to_proto(Member(role, name, "deadbeef0001", "127.0.0.1:9"))


ATTACKS = {
    "read the model": Attack(
        "shard",
        "ShardData/Pull",
        lambda victim: ps_pb2.PullRequest(
            epoch=newest_epoch(victim).number, tables=[ps_pb2.TableBlocks(table="secret", dense=True)]
        ),
        ("worker", "reader"),
    ),
    "read the model in one message": Attack(
        "shard",
        "ShardData/PullSmall",
        lambda victim: ps_pb2.PullRequest(
            epoch=newest_epoch(victim).number, tables=[ps_pb2.TableBlocks(table="secret", dense=True)]
        ),
        ("worker", "reader"),
    ),
    "stall the job by a worker that is not there": Attack(
        "recovery",
        "Recovery/Join",
        lambda victim: recovery_pb2.JoinRequest(
            member=forge_member(Role.WORKER, "worker-evil", victim), secret=SECRET, protocol=PROTOCOL
        ),
        ("worker",),
    ),
    "register as a shard": Attack(
        "recovery",
        "Recovery/Join",
        lambda victim: recovery_pb2.JoinRequest(
            member=forge_member(Role.SHARD, "ps-evil", victim), secret=SECRET, protocol=PROTOCOL
        ),
    ),
    "usurp the name of a living shard": Attack(
        "recovery",
        "Recovery/Join",
        lambda victim: recovery_pb2.JoinRequest(
            member=forge_member(Role.SHARD, "ps-1", victim), secret=SECRET, protocol=PROTOCOL
        ),
    ),
    "join as a worker that is there": Attack(
        "recovery",
        "Recovery/Join",
        lambda victim: recovery_pb2.JoinRequest(
            member=as_member(victim, "worker-1"), secret=SECRET, protocol=PROTOCOL
        ),
    ),
    "take a worker out": Attack(
        "recovery",
        "Recovery/Leave",
        lambda victim: recovery_pb2.LeaveRequest(
            member=as_member(victim, "worker-1"), finished=True, secret=SECRET
        ),
    ),
    "take a shard out": Attack(
        "recovery",
        "Recovery/Leave",
        lambda victim: recovery_pb2.LeaveRequest(member=as_member(victim, "ps-1")),
    ),
    "lengthen a lease": Attack(
        "recovery",
        "Recovery/Renew",
        lambda victim: recovery_pb2.RenewRequest(member=as_member(victim, "ps-1"), secret=SECRET),
    ),
    "report for another worker": Attack(
        "recovery",
        "Recovery/ReportReroute",
        lambda victim: recovery_pb2.RerouteReport(worker=as_member(victim, "worker-1"), epoch=1),
    ),
    "have a job go back": Attack(
        "recovery",
        "Recovery/RequestRollback",
        lambda victim: recovery_pb2.RollbackRequest(
            worker=as_member(victim, "worker-1"), secret=SECRET, clock=1, reason="because I say so"
        ),
    ),
    "forge a failure": Attack(
        "recovery",
        "Recovery/ReportFailure",
        lambda victim: recovery_pb2.FailureReport(
            member=as_member(victim, "ps-0"), proved=True, evidence="because I say so"
        ),
    ),
    "start another job": Attack(
        "recovery",
        "Recovery/StartJob",
        lambda victim: recovery_pb2.StartJobRequest(job=types_pb2.JobSpec(name="x"), take_over=True),
        ("worker",),
    ),
    "fill the bucket": Attack(
        "recovery",
        "Recovery/UploadInitial",
        lambda victim: recovery_pb2.UploadInitialRequest(job="x", table="w", data=b"x"),
        ("worker",),
    ),
    "forge an epoch": Attack("shard", "ShardControl/Adopt", forge_epoch),
    "freeze": Attack(
        "shard",
        "ShardControl/Freeze",
        lambda victim: ps_pb2.FreezeRequest(epoch=newest_epoch(victim).number, tables=WHOLE),
    ),
    "have a shard dial an address": Attack(
        "shard",
        "ShardControl/Receive",
        lambda victim: ps_pb2.ReceiveRequest(
            epoch=1, donor=forge_member(Role.SHARD, "ps-1", victim), tables=WHOLE
        ),
    ),
    "read as a shard": Attack(
        "shard",
        "ShardData/Fetch",
        lambda victim: ps_pb2.FetchRequest(epoch=newest_epoch(victim).number, tables=WHOLE),
    ),
    "throw the clock to 2^62": Attack("shard", "ShardControl/Clock", forge_clock, ("worker",)),
    "end a round": Attack(
        "shard", "ShardControl/Finish", lambda _victim: ps_pb2.FinishRequest(round=1, committed=True)
    ),
    "cause rounds": Attack(
        "checkpoint", "Checkpoint/Trigger", lambda _victim: checkpoint_pb2.TriggerRequest()
    ),
    "keep a dead shard alive": Attack(
        "detector",
        "Detector/Beat",
        lambda victim: detector_pb2.BeatRequest(
            member=as_member(victim, "ps-0"), progress=1 << 60, epoch=1 << 40
        ),
    ),
    "look into the program": Attack(
        "worker", "Worker/Stack", lambda _victim: worker_pb2.StackRequest(), ("reader",)
    ),
    "listen to stories": Attack(
        "shard", "MemberService/GetStory", lambda _victim: member_pb2.GetStoryRequest(), ("reader",)
    ),
}


@pytest.fixture(autouse=True)
def _undisturbed(victim: Victim) -> Iterator[None]:
    yield
    victim.assert_undisturbed()


def call(channel: grpc.Channel, method: str, request: Any) -> object:
    """The first answer. Raises what it was refused with."""
    rpc = channel.unary_stream(f"/scar.v1.{method}", request_serializer=type(request).SerializeToString)
    return next(rpc(request, timeout=SECONDS))


def refusal(intruder: Intruder, address: str, role: str, method: str, request: Any) -> grpc.StatusCode:
    with intruder.open(address, role) as channel, pytest.raises(grpc.RpcError) as caught:
        call(channel, method, request)
    return caught.value.code()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(name: str, victim: Victim, intruders: dict[str, Intruder]) -> None:
    attack = ATTACKS[name]
    request = attack.request(victim)
    address = victim.addresses()[attack.role]
    codes = {
        who: refusal(intruder, address, attack.role, attack.method, request)
        for who, intruder in intruders.items()
        if who in (*STRANGERS, *DENIED) and who not in attack.entitled
    }
    assert codes == {
        who: grpc.StatusCode.UNAVAILABLE if who in STRANGERS else grpc.StatusCode.PERMISSION_DENIED
        for who in codes
    }
    assert set(codes) == {*STRANGERS, *DENIED} - {*attack.entitled}


@pytest.mark.parametrize("name", ["take a shard out", "lengthen a lease", "take a worker out"])
def test_a_shards_certificate_speaks_for_no_other_member(
    name: str, victim: Victim, intruders: dict[str, Intruder]
) -> None:
    attack = ATTACKS[name]
    address = victim.addresses()[attack.role]
    code = refusal(intruders["shard"], address, attack.role, attack.method, attack.request(victim))
    assert code is grpc.StatusCode.PERMISSION_DENIED


SERVERS = {
    "recovery": recovery_pb2,
    "detector": detector_pb2,
    "checkpoint": checkpoint_pb2,
    "shard": ps_pb2,
    "worker": worker_pb2,
}


@pytest.mark.parametrize("server", SERVERS)
def test_no_method_of_a_server_answers_who_may_not_call_it(
    server: str, victim: Victim, intruders: dict[str, Intruder]
) -> None:
    """None of the 33 that answered everybody. What the pairs are is ``tests/unit/test_access.py``'s."""
    services = [*SERVERS[server].DESCRIPTOR.services_by_name.values()]
    services += [*member_pb2.DESCRIPTOR.services_by_name.values()]
    address = victim.addresses()[server]
    for who, intruder in intruders.items():
        with intruder.open(address, server) as channel:
            for method in [method for service in services for method in service.methods]:
                path = f"{method.containing_service.name}/{method.name}"
                if who in allowed_roles(path):
                    continue
                assert method.GetOptions().Extensions[callers_pb2.callers].roles
                with pytest.raises(grpc.RpcError) as caught:
                    call(channel, path, callers_pb2.Callers())
                expected = "UNAVAILABLE" if who in STRANGERS else "PERMISSION_DENIED"
                assert caught.value.code().name == expected, (who, path)


WRAPPING = np.array([0, 2**63 - 1, -2, 10], dtype="<i8")
HOSTILE_TABLES = {
    "offsets that wrap": types_pb2.TableSpec(
        name="w", dtype="float32", shape=[10], offsets=zlib.compress(WRAPPING.tobytes())
    ),
    "a table of 2^27 blocks": types_pb2.TableSpec(
        name="w", dtype="float32", shape=[(1 << 27) - 2], rows_per_block=1
    ),
}


@pytest.mark.parametrize("name", HOSTILE_TABLES)
def test_a_workers_certificate_starts_no_job_that_cannot_be_held(
    name: str, victim: Victim, intruders: dict[str, Intruder]
) -> None:
    table = types_pb2.TableSpec.FromString(HOSTILE_TABLES[name].SerializeToString())
    table.rule.kind = "add"
    table.init.kind = "zeros"
    table.norm = "l2"
    policy = types_pb2.CheckpointPolicy(selection="priority", fraction=0.1, period=8, keep=3)
    job = types_pb2.JobSpec(
        name="x",
        tables=[table],
        consistency="bsp",
        shards=1,
        workers=1,
        recovery="partial",
        checkpoint=policy,
    )
    pid = victim.cluster.pid("recovery-0")
    before = resident_mib(pid)
    code = refusal(
        intruders["worker"],
        victim.addresses()["recovery"],
        "recovery",
        "Recovery/StartJob",
        recovery_pb2.StartJobRequest(job=job),
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert resident_mib(pid) < before + 256


def test_silent_streams_of_a_workers_certificate_stop_nobody(
    victim: Victim, intruders: dict[str, Intruder]
) -> None:
    """Eighty on one connection, more than a shard has threads; training goes on while they stand."""
    enough = threading.Event()

    def say_nothing() -> Iterator[bytes]:
        enough.wait(SECONDS)
        yield from ()

    with intruders["worker"].open(victim.addresses()["shard"], "shard") as channel:
        push = channel.stream_stream("/scar.v1.ShardData/Push")
        streams = [push(say_nothing(), timeout=SECONDS) for _ in range(80)]
        victim.assert_undisturbed()
        enough.set()
        for stream in streams:
            stream.cancel()
