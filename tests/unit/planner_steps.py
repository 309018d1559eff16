"""What tests of the planner do again and again: start it, create its epochs, fail its members."""

from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar_recovery.core.actions import CommitEpoch
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.events import (
    EpochCommitted,
    EpochLoaded,
    FailureReport,
    JobStarted,
    MemberArrived,
    MemberFailed,
)
from scar_recovery.core.planner import Planner
from scar_recovery.core.settings import PlannerSettings
from tests.framework.recovery import due, make_job

LEASE = 2.0


def shard(name: str, life: str = "1") -> Member:
    return Member(Role.SHARD, name, f"{name}-{life}", "host:1")


def worker(name: str, life: str = "1") -> Member:
    return Member(Role.WORKER, name, f"{name}-{life}")


def commit(planner: Planner, now: float, cause: str = "") -> Epoch:
    """The epoch that is due now, created."""
    action = due(planner, now)
    assert isinstance(action, CommitEpoch), action
    epoch = draft_epoch(action.intent, NothingSaved())
    planner.handle(EpochCommitted(epoch), now)
    assert not cause or epoch.cause == cause
    return epoch


def started(job: Job | None = None, shards: int = 3, **settings: float) -> Planner:
    """A planner in epoch 1 at time 0, everything loaded."""
    planner = Planner("me", PlannerSettings(lease=LEASE, **settings))  # type: ignore[arg-type]
    planner.handle(JobStarted(job or make_job(shards), (), 0), 0.0)
    for number in range(shards):
        planner.handle(MemberArrived(shard(f"ps-{number}")), 0.0)
    commit(planner, 0.0, "start")
    planner.handle(EpochLoaded(1), 0.0)
    return planner


def failed(planner: Planner, member: Member, now: float, proved: bool = True, silence: float = 0.0) -> None:
    planner.handle(MemberFailed(FailureReport(member, proved, silence)), now)
