"""What happens to clocks."""

from __future__ import annotations

import random
from functools import partial

from tests.simulation.cluster import Cluster
from tests.simulation.faults.hosts import any_machine, host_of, hosts_of
from tests.simulation.faults.kind import FaultKind, choose_between, lasting
from tests.simulation.plan import RunShape, SimulatedFault
from tests.simulation.scheduler import Host

FARTHEST = 6 * 3600.0  # seconds of a jump
STROBES = 0.5  # seconds between two jumps of a clock that jumps on and on
EVERYTHING = "everything"


def _move(host: Host, seconds: float) -> None:
    host.skew += seconds


def _jump(cluster: Cluster, fault: SimulatedFault) -> None:
    """And back at the end, where the machine is still there: its process may have a new one by then."""
    host, scheduler = host_of(cluster, fault.target), cluster.world.scheduler
    _move(host, fault.amount)
    scheduler.at(scheduler.now + fault.seconds, partial(_move, host, -fault.amount))


def _strobe(cluster: Cluster, fault: SimulatedFault) -> None:
    """To and fro; at the end it is right again."""
    host, scheduler = host_of(cluster, fault.target), cluster.world.scheduler
    for number in range(2 * int(fault.seconds / STROBES / 2)):
        amount = -fault.amount if number % 2 else fault.amount
        scheduler.at(scheduler.now + number * STROBES, partial(_move, host, amount))


def _drift(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.scheduler.set_rate(host_of(cluster, fault.target), 1.0 + fault.amount)


def _drift_no_more(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.scheduler.set_rate(host_of(cluster, fault.target), 1.0)


def _suspend(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.scheduler.suspend(host_of(cluster, fault.target), fault.seconds)


def _suspend_all(cluster: Cluster, fault: SimulatedFault) -> None:
    """The laptop on which everything runs."""
    for host in hosts_of(cluster):
        cluster.world.scheduler.suspend(host, fault.seconds)


def _freeze_all(cluster: Cluster, fault: SimulatedFault) -> None:
    for host in hosts_of(cluster):
        cluster.world.scheduler.pause(host, fault.seconds)


def _hours(draw: random.Random) -> float:
    """Seconds, either way, few as often as many."""
    return draw.choice([-1.0, 1.0]) * choose_between(1.0, FARTHEST)(draw)


def _drifts(draw: random.Random) -> float:
    """A thousandth is twice what NTP corrects."""
    return draw.choice([-1.0, 1.0]) * draw.uniform(1e-5, 1e-3)


def _everything(_draw: random.Random, _shape: RunShape) -> str:
    return EVERYTHING


KINDS: tuple[FaultKind, ...] = (
    FaultKind("clock-jump", ("T1", "S9"), lasting(any_machine, 1.0, 60.0, _hours), _jump),
    FaultKind("clock-strobe", ("T1",), lasting(any_machine, 2.0, 20.0, _hours), _strobe),
    FaultKind("clock-drift", ("T1",), lasting(any_machine, 10.0, 60.0, _drifts), _drift, _drift_no_more),
    FaultKind("suspend", ("P4", "T2"), lasting(any_machine, 0.5, 300.0), _suspend),
    FaultKind("suspend-all", ("T2",), lasting(_everything, 1.0, 300.0), _suspend_all),
    FaultKind("freeze-all", ("T2",), lasting(_everything, 1.0, 60.0), _freeze_all),
)
