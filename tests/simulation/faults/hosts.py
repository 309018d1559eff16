"""What happens to a process or its machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import (
    FaultKind,
    any_coordinator,
    any_member,
    any_shard,
    choose_between,
    lasting,
    sudden,
)
from tests.simulation.plan import RunShape, SimulatedFault
from tests.simulation.scheduler import Host

REDIS = "redis"
CRASH_MOMENTS = (  # names of events, of which each is a moment at which a crash matters; "done": in the store
    *("send PutObject store/counting/epochs/", "done PutObject store/counting/epochs/"),
    *("send PutObject store/counting/objects/", "done PutObject store/counting/objects/"),
    *("send PutObject store/counting/manifests/", "done PutObject store/counting/manifests/"),
    *("send PutObject store/counting/ledger/", "done PutObject store/counting/ledger/"),
    *("done PutObject store/counting/owners/", "done PutObject store/counting/owner-beat"),
    *("send DeleteObject store/counting/", "done DeleteObject store/counting/"),
    *("done GetObject store/counting/objects/", "done GetObject store/counting/epochs/"),
    *("ShardControl/Adopt", "ShardControl/Settle", "ShardControl/Freeze", "ShardControl/Save"),
    *("ShardControl/Finish", "ShardControl/Receive", "ShardControl/Clock", "ShardData/Push"),
    *("ShardData/Fetch", "ShardData/Pull", "Recovery/Join", "Recovery/Renew", "Recovery/ReportFailure"),
    *("epoch.created", "epoch.adopted", "leadership.taken", "member.accused", "report.taken"),
    *("round.committed", "service.started", "adopt.failed", "beat.path"),
)
# role -> parts of the names of moments to which its members come; others: anybody's. Calls are their callers'
WHO_COMES_THERE = {
    "recovery": (
        *("PutObject store/counting/epochs/", "ledger/", "owner", "PutObject store/counting/manifests/"),
        *("ShardControl/Adopt", "ShardControl/Freeze", "ShardControl/Receive", "epoch.created"),
        *("adopt.failed", "leadership.taken", "GetObject store/counting/epochs/"),
    ),
    "checkpoint": (
        *("PutObject store/counting/manifests/", "DeleteObject", "ShardControl/Save", "ShardControl/Finish"),
        *("round.committed", "leadership.taken"),
    ),
    "ps": (
        *("objects/", "ShardData/Fetch", "epoch.adopted", "Recovery/Renew"),
        "GetObject store/counting/epochs/",
    ),
    "worker": ("ShardControl/Settle", "ShardControl/Clock", "ShardData/Push", "ShardData/Pull"),
    "detector": ("member.accused", "report.taken", "Recovery/ReportFailure"),
}
START_MOMENTS = (  # that come before a job trains, and some of them never again
    *("service.started", "leadership.taken", "done PutObject store/counting/owners/"),
    *("Recovery/Join", "send PutObject store/counting/epochs/"),
)
TRAP_SECONDS = 30.0  # for which a trap is set


def host_of(cluster: Cluster, target: str) -> Host:
    """Of a member, or of Redis."""
    return cluster.world.redis[cluster.redis].host if target == REDIS else cluster.hosts[target]


def hosts_of(cluster: Cluster) -> list[Host]:
    """All machines of a cluster, and the store's."""
    return [*cluster.hosts.values(), host_of(cluster, REDIS), cluster.world.bucket.host]


# --- it dies -----------------------------------------------------------------------------------------------


def _kill(cluster: Cluster, fault: SimulatedFault) -> None:
    for member in fault.target.split("+"):
        cluster.crash(member)


def _terminate(cluster: Cluster, fault: SimulatedFault) -> None:
    for member in fault.target.split("+"):
        cluster.terminate(member)


def _hold_down(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.hold_down(fault.target)


def _release(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.release(fault.target)


def _repeat(cluster: Cluster, fault: SimulatedFault, strike: Callable[[], None]) -> None:
    """Every ``amount`` seconds, as long as the fault lasts."""
    for number in range(int(fault.seconds / fault.amount) + 1):
        cluster.world.scheduler.at(cluster.world.scheduler.now + number * fault.amount, strike)


def _crash_loop(cluster: Cluster, fault: SimulatedFault) -> None:
    _repeat(cluster, fault, partial(cluster.crash, fault.target))


def _light_fuse(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.scheduler.light_fuse(cluster.hosts[fault.target], int(fault.amount))


def _put_fuse_out(cluster: Cluster, fault: SimulatedFault) -> None:
    host = cluster.hosts[fault.target]
    if host.fuse:
        host.fuse = 0
        host.slow = 0.0


def _set_trap(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.hosts[fault.target].trap = CRASH_MOMENTS[int(fault.amount)]


def _take_trap_away(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.hosts[fault.target].trap = ""


# --- it is late --------------------------------------------------------------------------------------------


def _pause(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.scheduler.pause(host_of(cluster, fault.target), fault.seconds)


def _stutter(cluster: Cluster, fault: SimulatedFault) -> None:
    """It runs half of the time."""
    host, scheduler = host_of(cluster, fault.target), cluster.world.scheduler
    _repeat(cluster, fault, lambda: scheduler.pause(host, fault.amount / 2))


def _slow_host(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.hosts[fault.target].slow = fault.amount


def _fast_host(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.hosts[fault.target].slow = 0.0


def _slow_thread(cluster: Cluster, fault: SimulatedFault) -> None:
    """Which one, a digit of the amount says."""
    tasks = list(cluster.hosts[fault.target].tasks.values())
    if tasks:
        task = tasks[int(1e6 * fault.amount) % len(tasks)]
        task.slow = fault.amount
        scheduler = cluster.world.scheduler
        scheduler.at(scheduler.now + fault.seconds, partial(setattr, task, "slow", 0.0))


# --- draws -------------------------------------------------------------------------------------------------


def any_machine(draw: random.Random, shape: RunShape) -> str:
    """Of a member, or of Redis."""
    return draw.choice([*shape.members, *shape.shard_names, REDIS])


def _several_shards(draw: random.Random, shape: RunShape) -> str:
    return "+".join(sorted(draw.sample(shape.shard_names, draw.randint(2, shape.shards))))


def _all_shards(draw: random.Random, shape: RunShape) -> str:
    return "+".join(shape.shard_names)


def _everybody(draw: random.Random, shape: RunShape) -> str:
    return "+".join(shape.members)


def _node(draw: random.Random, shape: RunShape) -> str:
    """A shard, a worker and a coordinator that run on one machine."""
    found = (draw.choice(names) for names in (shape.shard_names, shape.worker_names, shape.coordinators))
    return "+".join(found)


def _with_moment(draw: random.Random, shape: RunShape) -> tuple[str, float, float]:
    return any_member(draw, shape), TRAP_SECONDS, float(draw.randrange(len(CRASH_MOMENTS)))


def apt_moment(draw: random.Random, shape: RunShape) -> tuple[str, float, float]:
    """Draws a moment first, and then a member that may come to it."""
    number = draw.randrange(len(CRASH_MOMENTS))
    return draw.choice(_apt(CRASH_MOMENTS[number], shape.members)), TRAP_SECONDS, float(number)


def report_moment(draw: random.Random, shape: RunShape) -> tuple[str, float, float]:
    """Of those that only detectors come to."""
    moment = draw.choice(WHO_COMES_THERE["detector"])
    return draw.choice(_apt(moment, shape.members)), TRAP_SECONDS, float(CRASH_MOMENTS.index(moment))


def start_moment(draw: random.Random, shape: RunShape) -> tuple[str, float, float]:
    """The same of moments that come before the job trains, for those that are there by then."""
    moment = draw.choice(START_MOMENTS)
    there = [*shape.coordinators, *shape.shard_names]
    return draw.choice(_apt(moment, there)), TRAP_SECONDS, float(CRASH_MOMENTS.index(moment))


def _apt(moment: str, members: Sequence[str]) -> list[str]:
    """Those of these members that may come to it."""
    roles = [role for role, parts in WHO_COMES_THERE.items() if any(part in moment for part in parts)]
    return [name for name in members if not roles or name.partition("-")[0] in roles]


def _kinds() -> Iterator[FaultKind]:
    """``amount``: of a fuse, switching points; of a trap, which moment; else seconds."""
    yield FaultKind("kill", ("P1", "P2", "P9", "C1", "C2", "C4"), sudden(any_member), _kill)
    yield FaultKind("kill-shards", ("P7", "D1"), sudden(_several_shards), _kill)
    yield FaultKind("kill-all-shards", ("P8",), sudden(_all_shards), _kill)
    yield FaultKind("kill-everybody", ("P8", "T2"), sudden(_everybody), _kill)
    yield FaultKind("kill-node", ("D3",), sudden(_node), _kill)
    yield FaultKind("terminate", ("G15",), sudden(any_member), _terminate)
    yield FaultKind("terminate-everybody", ("G15", "K1"), sudden(_everybody), _terminate)
    yield FaultKind("hold-down", ("P1", "C2", "D2"), lasting(any_member, 1.0, 60.0), _hold_down, _release)
    crash_loop = lasting(any_member, 3.0, 20.0, choose_between(0.5, 3.0))
    yield FaultKind("crash-loop", ("D2", "P6"), crash_loop, _crash_loop)
    anywhere = lasting(any_member, 20.0, 20.0, choose_between(1.0, 3000.0))
    rows = ("P1", "P10", "C1", "C2")
    yield FaultKind("crash-anywhere", rows, anywhere, _light_fuse, _put_fuse_out)
    yield FaultKind("crash-at-moment", ("P10", "C1", "C2", "D1"), _with_moment, _set_trap, _take_trap_away)
    yield FaultKind("blink", ("P3",), lasting(any_machine, 0.05, 0.8), _pause)
    yield FaultKind("pause", ("P3", "P4", "P9", "R3"), lasting(any_machine, 0.8, 300.0), _pause)
    yield FaultKind("depose", ("C3", "C4"), lasting(any_coordinator, 2.0, 30.0), _pause)
    stutter = lasting(any_machine, 1.0, 20.0, choose_between(0.05, 0.6))
    yield FaultKind("stutter", ("P3", "N5"), stutter, _stutter)
    slow_host = lasting(any_member, 1.0, 40.0, choose_between(0.0005, 0.02))
    yield FaultKind("slow-host", ("P9", "N5"), slow_host, _slow_host, _fast_host)
    slow_thread = lasting(any_member, 1.0, 40.0, choose_between(0.05, 0.5))
    yield FaultKind("slow-thread", ("P5", "P9"), slow_thread, _slow_thread)
    hung_thread = lasting(any_shard, 5.0, 30.0, choose_between(2.0, 10.0))
    yield FaultKind("hung-thread", ("P5",), hung_thread, _slow_thread)


KINDS: tuple[FaultKind, ...] = tuple(_kinds())
