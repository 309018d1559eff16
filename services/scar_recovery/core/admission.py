"""When shards that wait get into an epoch. Pure."""

from __future__ import annotations

from scar.placement import Role
from scar.tables import Job
from scar_recovery.core.membership import Membership

NEVER = float("inf")
MEMBER_BATCH = 0.05  # members that come or go within this time share an epoch
ORPHAN_BATCH = 0.3  # when no shard is left: how long to wait for more of them to return


def admission_due(job: Job | None, members: Membership, survivors: bool) -> float:
    """Infinity: nobody waits. Without ``survivors`` it is worth waiting for more of them."""
    shards = members.arrivals_of(Role.SHARD)
    if not shards or job is None:
        return NEVER
    batch = MEMBER_BATCH if survivors or len(shards) >= job.shards else ORPHAN_BATCH
    return min(arrival.since for arrival in shards) + batch
