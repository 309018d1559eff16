"""What status shows against what is in memory and in the store, while nothing moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from scar.placement import Epoch
from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import ClusterStatus
from scar_ps.core.core_state import CoreState
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.failure_records import UNKNOWN_SECONDS


def check_shown(
    status: ClusterStatus,
    epochs: Mapping[int, Epoch],
    shards: Sequence[CoreState],
    manifests: Mapping[int, Manifest],
    ledger: Sequence[FailureRecord],
) -> list[str]:
    """``epochs`` by number, ``manifests``, ``ledger``: as they are in the store."""
    found = []
    number = max(epochs, default=0)
    shown = status.recovery.epoch if status.recovery is not None else 0
    if (status.number, shown) != (number, number):
        found.append(f"status shows epochs {status.number} and {shown}, the store has {number}")
    for state in shards:
        found += _check_shard(status, state)
    if status.checkpoint is not None and status.checkpoint.manifest:
        manifest = manifests.get(status.checkpoint.manifest)
        objects = len(manifest.objects) if manifest is not None else -1
        if objects != status.checkpoint.objects:
            shows = f"manifest {status.checkpoint.manifest} with {status.checkpoint.objects} objects"
            found.append(f"status shows {shows}, the store has {objects}")
    led = {one.number for one in epochs.values() if one.author == epochs[number].author}
    return [*found, *_check_ledger(status.failures, ledger, led)]


def _check_shard(status: ClusterStatus, state: CoreState) -> list[str]:
    name = state.member.name
    shard = status.shards.get(name)
    if shard is None or shard.member.incarnation != state.member.incarnation:
        return [f"status does not show {name}, which is there"]
    counted = {
        table.table: (table.blocks, table.loading, table.unsettled) for table in shard.tables if table.blocks
    }
    truth = {
        one.table.name: (len(one), np.count_nonzero(one.loading), np.count_nonzero(one.unsettled))
        for one in state.ownership.tables.values()
        if len(one)
    }
    shown = {"epoch": shard.epoch, "clock": shard.clock, "blocks": counted, "done": dict(shard.finished)}
    known = {
        "epoch": state.number,
        "clock": state.clock,
        "blocks": truth,
        "done": state.barrier.all_finished(),
    }
    wrong = [what for what in known if shown[what] != known[what]]
    return [f"status shows {what} {shown[what]} of {name}, which has {known[what]}" for what in wrong]


def _check_ledger(
    shown: Sequence[FailureRecord], ledger: Sequence[FailureRecord], led: Collection[int]
) -> list[str]:
    """``led``: epochs of who leads now. Of others their author may know more: how long something took, and
    the clock that a shard told it which has died since. If it stood still, it writes that when it goes on.
    """
    if [record.number for record in shown] != [record.number for record in ledger]:
        return [f"status shows {len(shown)} failures, the store has {len(ledger)}"]
    known = ("epoch", "clock", "lost_blocks", "delta_norm", "delta_exact", "lost_pushes", "resent_pushes")
    durations = ("settle_seconds", "return_seconds")
    found = []
    for one, other in zip(shown, ledger, strict=True):
        for name in (*known, *durations):
            shows = getattr(one, name)
            stored = getattr(other, name)
            untold = name in durations and shows == UNKNOWN_SECONDS
            untold |= name == "clock" and shows < stored and one.epoch not in led
            if shows != stored and not untold:
                found.append(f"failure {one.number}: status shows {name} {shows}, the store has {stored}")
    return found
