"""What a shard believes its next replica to have, against what that replica has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scar_ps.core.block_store import BlockStore
from scar_ps.core.core_state import CoreState


def check_replicas(shards: Mapping[str, CoreState]) -> list[str]:
    """Of shards that have nothing to send. By member key."""
    found = []
    for key, state in shards.items():
        target = state.chain.next_replica
        replica_shard = shards.get(target.key) if target is not None else None
        if replica_shard is None or not _is_up_to_date(state) or replica_shard.number != state.number:
            continue
        if replica_shard.dismissed:  # it has heard of the epoch that puts it out before its owners have
            continue
        replica = replica_shard.replicas.by_owner.get(key)
        stores = replica.stores if replica is not None else {}
        acked = state.chain._acked.get(key, 0)
        for name, store in state.ownership.tables.items():
            if store.marks is not None and not acked:  # it knows that this neighbour has nothing yet
                continue
            if _differs(store, stores.get(name)):
                found.append(f"{replica_shard.member.key} has not all of table {name} that {key} believes")
    return found


def _is_up_to_date(state: CoreState) -> bool:
    """It would say that all of its updates are on the next replica, and sends nothing."""
    chain = state.chain
    idle = not chain.urgent and not chain.unanswered and not state.dismissed
    return idle and 0 < chain.updates <= chain.replicated and state.number > 0


def _differs(store: BlockStore, copy: BlockStore | None) -> bool:
    in_place = ~store.unsettled & (store.loading == 0)
    if store.marks is not None:  # the rest workers could give back, or it goes when the clock closes
        in_place &= store.marks.copied & ~store.changed
    ids = store.ids[in_place]
    if not len(ids):
        return False
    if copy is None or (copy.find_blocks(ids) < 0).any():
        return True
    there = copy.layout.gather(copy.values, copy.find_blocks(ids))
    return not np.array_equal(store.copy_blocks(store.find_blocks(ids)).values, there)
