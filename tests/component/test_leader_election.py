"""Both coordinators come to lead in the same way, whatever the store is like when they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scar.errors import ConfigError, CorruptCheckpoint, ScarError, StoreFull, StoreUnavailable, UnsafeStore
from scar.placement import Member, Role
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.service import CheckpointCandidate
from scar_recovery import service as recovery_service
from scar_recovery.config import RecoverySettings
from scar_runtime.liveness import leader_election
from scar_runtime.liveness.heartbeat_store import Heartbeat
from scar_runtime.liveness.leader_election import LeaderElection
from scar_runtime.process.app import Service
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import Process, wait_for
from tests.component.test_recovery_leader import Lease

Start = Callable[[Path], tuple[Process, LeaderElection]]


def recovery(folder: Path, lease: Lease | None = None) -> tuple[Process, LeaderElection]:
    settings = RecoverySettings(name="recovery-0", store=f"file://{folder}", leader_seconds=0.5)
    process = Process(Member(Role.RECOVERY, "recovery-0", "a" * 12, "host:1"), settings, lease or Lease())
    return process, recovery_service.make_election(process)  # type: ignore[arg-type]


def checkpoint(folder: Path, lease: Lease | None = None) -> tuple[Process, LeaderElection]:
    settings = CheckpointSettings(
        name="checkpoint-0", store=f"file://{folder}", lease_seconds=0.5, recovery="127.0.0.1:1"
    )
    member = Member(Role.CHECKPOINT, "checkpoint-0", "b" * 12, "host:1")
    process = Process(member, settings, lease or Lease())  # type: ignore[arg-type]
    return process, CheckpointCandidate(process, settings).election  # type: ignore[arg-type]


BOTH = pytest.mark.parametrize("coordinator", [recovery, checkpoint])


class Troubled(DirectoryStore):
    """Raises these when it is probed, one after the other; then it is well."""

    troubles: list[ScarError] = []  # noqa: RUF012  one store a test

    def probe(self, key: str = "") -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        super().probe(key)


@pytest.fixture
def troubles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ScarError]:
    monkeypatch.setattr(Troubled, "troubles", [])
    monkeypatch.setattr(leader_election, "open_store", lambda url, _key: Troubled(url, tmp_path))
    return Troubled.troubles


class Keeping(DirectoryStore):
    """Nobody may delete, as where the rights for it were forgotten."""

    attempts = 0

    def delete(self, key: str) -> None:
        Keeping.attempts += 1
        if Keeping.attempts <= 3:
            raise StoreUnavailable("it is not allowed")
        super().delete(key)


@BOTH
def test_a_store_that_lets_nobody_delete_gets_one_probe(
    coordinator: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not one each time that it is tried: five a second, for as long as nobody looks."""
    monkeypatch.setattr(Keeping, "attempts", 0)
    most: list[int] = []

    def open_keeping(url: str, _key: object) -> Keeping:
        store = Keeping(url, tmp_path)
        most.append(len(store.list("probe/")))
        return store

    monkeypatch.setattr(leader_election, "open_store", open_keeping)
    process, election = coordinator(tmp_path)
    election.start()
    wait_for(lambda: election.holds_lease)
    assert Keeping.attempts > 3
    assert max(most) == 1
    assert Keeping("file://x", tmp_path).list("probe/") == []
    process.stopping.set()


@BOTH
def test_a_store_in_trouble_is_waited_for(
    coordinator: Start, tmp_path: Path, troubles: list[ScarError]
) -> None:
    troubles += [StoreFull("no space"), StoreUnavailable("away"), CorruptCheckpoint("garbage")]
    process, election = coordinator(tmp_path)
    election.start()
    wait_for(lambda: election.holds_lease)
    assert election.can_lead
    assert not troubles
    assert not process.problems
    process.stopping.set()


@BOTH
def test_what_is_wrong_with_the_store_can_be_asked(
    coordinator: Start, tmp_path: Path, troubles: list[ScarError]
) -> None:
    troubles += [StoreFull("no space")] * 10_000
    process, election = coordinator(tmp_path)
    election.start()
    wait_for(lambda: "no space" in election.problem)
    assert not any((election.holds_lease, election.can_lead, election.session))
    process.stopping.set()


@BOTH
@pytest.mark.parametrize("error", [UnsafeStore("two winners"), ConfigError("no such scheme")])
def test_what_waiting_cannot_mend_ends_the_process(
    coordinator: Start, error: ScarError, tmp_path: Path, troubles: list[ScarError]
) -> None:
    troubles.append(error)
    process, election = coordinator(tmp_path)
    election.start()
    wait_for(lambda: process.problems == [error])
    assert not any((election.holds_lease, election.can_lead, election.session))
    process.stopping.set()


@BOTH
def test_a_directory_that_cannot_be_made_yet_is_waited_for(coordinator: Start, tmp_path: Path) -> None:
    (tmp_path / "mount").write_text("not there yet")
    process, election = coordinator(tmp_path / "mount" / "store")
    election.start()
    wait_for(lambda: str(tmp_path) in election.problem)
    (tmp_path / "mount").unlink()
    wait_for(lambda: election.holds_lease)
    process.stopping.set()


@BOTH
def test_a_standby_is_not_ready_and_says_why(
    coordinator: Callable[[Path, Lease], tuple[Process, LeaderElection]], tmp_path: Path
) -> None:
    lease = Lease(holder="somebody")
    process, election = coordinator(tmp_path, lease)
    election.start()
    wait_for(lambda: "coordinator leads" in election.problem)
    assert election.can_lead
    assert not election.holds_lease
    lease.holder = ""
    wait_for(lambda: election.holds_lease)
    process.stopping.set()


def test_health_is_what_is_tested_here(tmp_path: Path) -> None:
    """The service that ships answers its health checks from this election."""
    process, _ = recovery(tmp_path)
    service: Service = recovery_service.build(process)  # type: ignore[arg-type]
    assert not service.ready()
    assert not service.settled()  # type: ignore[misc]
    service.start()
    wait_for(service.ready)
    assert service.settled()  # type: ignore[misc]
    process.stopping.set()
    assert not process.problems


def test_a_coordinator_that_serves_no_older_members_does_not_lead_while_they_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it ready, so that an upgrade keeps the coordinators of the version before."""
    monkeypatch.setattr(leader_election, "OBSTACLE_PAUSE", 0.05)
    lease = Older()
    process, election = recovery(tmp_path, lease)
    election.start()
    wait_for(lambda: "ps-0 speaks protocol 1" in election.problem)
    assert not any((election.can_lead, election.holds_lease, lease.holder))
    lease.lives = False
    wait_for(lambda: election.holds_lease)
    assert election.can_lead
    process.stopping.set()


@dataclass
class Older(Lease):
    """With a shard of the first version."""

    lives: bool = True
    looks: int = 0

    def read_heartbeats(self) -> dict[str, Heartbeat]:
        self.looks += self.lives
        member = Member(Role.SHARD, "ps-0", "c" * 12, "host:1")
        return {member.key: Heartbeat(member, 1, 1, self.looks, 1)}
