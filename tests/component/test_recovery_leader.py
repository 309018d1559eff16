"""Who leads: two coordinators over one store, with a lease and without."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar.v1 import types_pb2
from scar.version import PROTOCOL
from scar_recovery.config import RecoverySettings
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.leader_session import RecoverySession
from scar_recovery.service import make_election
from scar_runtime.liveness.heartbeat_store import Heartbeat
from scar_runtime.liveness.leader_election import LeaderElection
from scar_runtime.store import open_store
from scar_runtime.store.records import get_record
from tests.component.recovery_cluster import SECRET, Process, wait_for
from tests.framework.recovery import make_job


@dataclass
class Lease:
    """The lease of both coordinators. ``down``: Redis does not answer."""

    holder: str = ""
    down: bool = False

    def acquire_leader_lease(self, role: str, incarnation: str, ttl: float) -> bool:
        self._check()
        self.holder = self.holder or incarnation
        return self.holder == incarnation

    def read_heartbeats(self) -> dict[str, Heartbeat]:
        self._check()
        return {}

    def read_heartbeat(self, _key: str) -> None:
        self._check()

    def publish_epoch(self, number: int) -> None:
        self._check()

    def _check(self) -> None:
        if self.down:
            raise LivenessUnavailable("no Redis")


def coordinator(number: int, folder: Path, lease: Lease) -> tuple[Process, LeaderElection[RecoverySession]]:
    """Running in threads."""
    settings = RecoverySettings(
        name=f"recovery-{number}", store=f"file://{folder}", lease_seconds=0.5, leader_seconds=0.5
    )
    process = Process(Member(Role.RECOVERY, settings.name, f"{number:012x}", "host:1"), settings, lease)
    election = make_election(process)  # type: ignore[arg-type]
    election.start()
    return process, election


def opened(election: LeaderElection[RecoverySession]) -> bool:
    return election.holds_lease and election.session is not None and election.session.opened


def test_standby_takes_over_with_the_lease(tmp_path: Path) -> None:
    lease = Lease()
    first, one = coordinator(1, tmp_path, lease)
    wait_for(lambda: opened(one))
    second, two = coordinator(2, tmp_path, lease)
    time.sleep(0.3)
    assert two.session is None
    assert not two.holds_lease
    lease.holder = second.incarnation  # the first was paused for too long
    wait_for(lambda: opened(two) and one.session is None)
    lease.holder = first.incarnation
    wait_for(lambda: opened(one) and two.session is None)
    first.stopping.set()
    second.stopping.set()


def test_without_redis_the_store_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # else the first may hear of its successor from the store before it is asked for anything
    monkeypatch.setattr("scar_recovery.background_writer.UPKEEP", 60.0)
    lease = Lease(down=True)
    first, one = coordinator(1, tmp_path, lease)
    second, two = coordinator(2, tmp_path, lease)
    wait_for(lambda: opened(one) and opened(two))
    assert one.session is not None
    assert two.session is not None
    one.session.jobs.start_job(make_job(1), GivenArrays(), resume=False)
    shards = [Member(Role.SHARD, "ps-0", f"{life:012x}", "127.0.0.1:1") for life in (7, 8)]
    one.session.members.join(shards[0], SECRET, PROTOCOL)
    wait_for(lambda: one.session is not None and one.session.epoch_number == 1)
    two.session.jobs.start_job(make_job(1), GivenArrays(), resume=True)  # takes over by an epoch of its own
    wait_for(lambda: two.session is not None and two.session.epoch_number == 2)
    former = one.session
    # this one wants to create epoch 2, too: it loses and steps down
    former.members.join(shards[1], SECRET, PROTOCOL)
    wait_for(lambda: one.session is not former)
    store = open_store(f"file://{tmp_path}").under("test")
    assert get_record(store, "epochs/00000002", types_pb2.Epoch).author == second.incarnation
    first.stopping.set()
    second.stopping.set()
