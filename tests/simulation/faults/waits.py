"""What makes others wait: calls that are parked, loads that cannot be made, copies of gigabytes."""

from __future__ import annotations

from functools import partial

import grpc

from scar.v1 import ps_pb2
from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import FaultKind, any_shard, choose_between, lasting
from tests.simulation.plan import SimulatedFault

FUTURE = 1 << 40  # a clock that never comes
PULL_SECONDS, PAUSE = 5.0, 0.02


def _gather_readers(cluster: Cluster, fault: SimulatedFault) -> None:
    scheduler = cluster.world.scheduler
    host = cluster.hosts[_crowd(fault)] = scheduler.host(f"{cluster.name}/{_crowd(fault)}")
    for number in range(int(fault.amount)):
        scheduler.spawn(host, f"reader-{number}", partial(_wait_for_clock, cluster, fault.target))


def _send_away(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.crash(_crowd(fault))


def _crowd(fault: SimulatedFault) -> str:
    return f"readers-{fault.target}-{fault.at}"


def _wait_for_clock(cluster: Cluster, shard: str) -> None:
    """Body of a reader's task: waits, is refused, tries again, until its host is gone."""
    status = None
    while True:
        status = status or cluster.shard_status(cluster.members[shard])
        if status is not None and status.tables:
            table = ps_pb2.TableBlocks(table=status.tables[0].table, dense=True)
            request = ps_pb2.PullRequest(epoch=status.epoch, min_clock=FUTURE, tables=[table])
            if not _is_refused(cluster.members[shard].address, request):
                status = None  # its epoch may be over
        else:
            status = None
        cluster.world.scheduler.sleep(PAUSE)


def _is_refused(address: str, request: ps_pb2.PullRequest) -> bool:
    """A pull that never ends well. Whether it was refused because too many wait already."""
    channel = grpc.insecure_channel(address)
    try:
        stub = channel.unary_stream("/scar.v1.ShardData/Pull", ps_pb2.PullRequest.SerializeToString)
        for _ in stub(request, timeout=PULL_SECONDS):
            pass
    except grpc.RpcError as error:
        return bool(error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
    finally:
        channel.close()
    return False


def _refuse_loads(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.bucket.unread.append(f"{cluster.name}/{fault.target}")


def _allow_loads(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.bucket.unread.remove(f"{cluster.name}/{fault.target}")


def _slow_copies(cluster: Cluster, fault: SimulatedFault) -> None:
    """Of the one thread that touches values; the others are as fast as ever."""
    scheduler = cluster.world.scheduler
    for task in [task for task in cluster.hosts[fault.target].tasks.values() if task.name == "apply"]:
        task.slow = fault.amount
        scheduler.at(scheduler.now + fault.seconds, partial(setattr, task, "slow", 0.0))


KINDS: tuple[FaultKind, ...] = (
    FaultKind(
        "crowd",
        ("M2",),
        lasting(any_shard, 3.0, 15.0, choose_between(42.0, 50.0)),
        _gather_readers,
        _send_away,
    ),
    FaultKind(
        "slow-copies",
        ("P5", "P9"),
        lasting(any_shard, 5.0, 40.0, choose_between(0.01, 0.2)),
        _slow_copies,
    ),
    FaultKind("loads-refused", ("S2", "S3"), lasting(any_shard, 20.0, 250.0), _refuse_loads, _allow_loads),
)
