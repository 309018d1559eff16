"""What a job waits for, in words. Pure."""

from __future__ import annotations

from scar.placement import Epoch, Role
from scar.tables import Job
from scar_recovery.core.membership import Membership


def describe_wait(job: Job, epoch: Epoch | None, members: Membership, orphans: bool) -> str:
    """Empty: nothing. ``orphans``: blocks have no owner, because no shard is left."""
    if epoch is None:
        waiting = len(members.arrivals_of(Role.SHARD))
        missing = waiting < job.shards
        return f"waiting for shards: {waiting} of {job.shards} have joined" if missing else ""
    if orphans:
        return "no shard is left: their blocks wait for one to join"
    absent = _awaited_workers(job, epoch)
    if absent:
        strategy = job.worker_recovery
        return f"clocks wait for {', '.join(absent)} to come back (worker_recovery {strategy})"
    return "; ".join(f"{failure.key} is silent; its lease is awaited" for failure in members.suspects())


def _awaited_workers(job: Job, epoch: Epoch) -> list[str]:
    """Names of dead workers without which no clock closes."""
    if not job.worker_strategy.waits:
        return []
    present = {member.name for member in epoch.workers}
    return [name for name in epoch.ranks if name not in present]
