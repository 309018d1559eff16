"""What one look at a cluster says: is it well, how far are its workers, what is under way."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scar.v1 import types_pb2
from scar.v1.ps_pb2 import ShardStatus
from scar_admin.status import DONE, ClusterStatus


def member_incarnations(status: ClusterStatus) -> dict[str, str]:
    """Name -> incarnation of every member of the newest epoch."""
    epoch = status.epoch or types_pb2.Epoch()
    return {member.name: member.incarnation for member in (*epoch.shards, *epoch.workers)}


def finished_clocks(status: ClusterStatus) -> list[int]:
    """Clocks finished, by every worker on every shard that has heard of it.

    Workers that have left for good do not count.
    """
    return [clock for shard in status.shards.values() for clock in shard.finished.values() if clock < DONE]


def find_problems(status: ClusterStatus, members: Collection[str]) -> list[str]:
    """Everything that is not as it should be, in words.

    ``members``: names of the shards and workers that should be there.
    """
    epoch = status.epoch
    recovery = status.recovery
    if epoch is None or recovery is None:
        return ["recovery does not answer", *status.problems]
    found = []
    present = sorted(member.name for member in (*epoch.shards, *epoch.workers))
    if present != sorted(members):
        found.append(f"members are {present}")
    if recovery.problem:
        found.append(f"recovery: {recovery.problem}")
    if status.checkpoint is None:
        found.append("checkpoint does not answer")
    found += [f"{name} is being recovered" for name in recovery.recovering]
    for record in status.failures:
        if not record.epoch or record.waiting:
            found.append(f"failure {record.number} waits for {list(record.waiting) or 'an epoch'}")
    for name, shard in status.shards.items():
        found += _shard_problems(name, shard, epoch.number)
    return found


def _shard_problems(name: str, shard: ShardStatus, epoch: int) -> list[str]:
    blocks = sum(table.blocks for table in shard.tables)
    loading = sum(table.loading for table in shard.tables)
    unsettled = sum(table.unsettled for table in shard.tables)
    if shard.epoch == epoch and shard.serving and blocks and not loading and not unsettled:
        return []
    return [f"{name}: epoch {shard.epoch}, {blocks} blocks, {loading} loading, {unsettled} unsettled"]


def round_runs(status: ClusterStatus) -> bool:
    """Whether a shard takes part in a round of which the coordinator does not know the end."""
    saved = status.checkpoint
    return saved is not None and any(shard.round > saved.round for shard in status.shards.values())


def recovery_runs(status: ClusterStatus) -> bool:
    return bool((status.recovery and status.recovery.recovering) or status.loading)


MOMENTS: dict[str, Callable[[ClusterStatus], bool]] = {"round": round_runs, "recovery": recovery_runs}
