"""Blocks whose newest copy cannot be read any more, and what else the store has of them.

    bad = unreadable_blocks(headers, running, "w", ids)
    refs = write_patches(headers, running, {"w": ids}, "objects/compact-00000042-me", "me")

The objects ``refs`` are written then; a manifest that lists them last is whole again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from scar.blocks import BlockState, Ids
from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Table
from scar_runtime.checkpoint.block_records import block_format
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.initial_arrays import initial_contents
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.object_reader import damaged_blocks, read_blocks
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, ObjectHeader, object_ref
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.store.layout import MANIFESTS
from scar_runtime.store.records import numbers, reread

PATCH_BYTES = 64 << 20  # of one object, which is held in memory

Listed = tuple[ObjectRef, ObjectHeader]


def unreadable_in(headers: HeaderCache, ref: ObjectRef, table: str, ids: Ids) -> Ids:
    """Which of these blocks this object cannot give: it is gone, cut off or damaged. Raises
    StoreUnavailable.
    """
    try:
        header = reread(lambda: headers.find(ref))
        return damaged_blocks(headers.store, ref, header, headers.job, table, ids)
    except (CorruptCheckpoint, ObjectNotFound):
        return ids


def unreadable_blocks(headers: HeaderCache, running: RunningCheckpoint, table: str, ids: Ids) -> Ids:
    """Which of these blocks (ascending) the objects cannot give that hold their newest copies."""
    found = [
        unreadable_in(headers, running.objects[origin.index], table, origin.group.ids)
        for origin in running.origins(table, ids)
        if origin.index >= 0
    ]
    return np.unique(np.concatenate([ids[:0], *found]))


def write_patches(
    headers: HeaderCache, running: RunningCheckpoint, suspects: Mapping[str, Ids], prefix: str, author: str
) -> list[ObjectRef]:
    """Write, for the suspects whose newest copy cannot be read, the newest one that can, else x(0), under
    keys with ``prefix``.

    A manifest that lists these objects last is whole again.
    """
    bad = {table: unreadable_blocks(headers, running, table, ids) for table, ids in suspects.items()}
    if not any(len(ids) for ids in bad.values()):
        return []
    listed = list(_listed_objects(headers))
    refs = list[ObjectRef]()
    for table, ids in bad.items():
        for part in split_ids(headers.job.table(table), ids):
            named = [origin.group for origin in running.origins(table, part)]
            groups = [copy for state in named for copy in _older_copies(headers, listed, state)]
            encoded = EncodedObject(headers.job, groups)
            key = f"{prefix}-{len(refs)}"
            headers.store.put_pieces(key, encoded.pieces())
            epoch = running.manifest.epoch
            number = running.manifest.round
            refs.append(object_ref(key, encoded, [group for group, _ in groups], author, epoch, number))
    return refs


def split_ids(table: Table, ids: Ids) -> list[Ids]:
    """``ids`` in runs of about :data:`PATCH_BYTES`."""
    ends = np.cumsum(block_format(table).record_sizes(table.layout.sizes[ids]))
    return [part for part in np.split(ids, np.flatnonzero(np.diff(ends // PATCH_BYTES)) + 1) if len(part)]


def _listed_objects(headers: HeaderCache) -> Iterator[Listed]:
    """Every object that a manifest names, as far as it can be read, from the newest manifest to the
    oldest.
    """
    seen: set[str] = set()
    for number in reversed(numbers(headers.store, MANIFESTS)):
        try:
            manifest = reread(partial(read_manifest, headers.store, number))
        except (CorruptCheckpoint, ObjectNotFound):
            continue
        for ref in reversed(manifest.objects):
            if ref.key not in seen:
                seen.add(ref.key)
                try:
                    yield ref, reread(lambda ref=ref: headers.find(ref))  # type: ignore[misc]
                except (CorruptCheckpoint, ObjectNotFound):
                    continue


def _older_copies(
    headers: HeaderCache, listed: list[Listed], named: BlockState
) -> list[tuple[BlockState, BlockPayload]]:
    """The newest copy of each block that can be read and is not newer than the one that was ``named``.

    A manifest that was passed over may name newer ones. By then workers have reported what the named copy
    lacks as lost, and the ledger would be wrong if it came back.
    """
    offers = [(group, ref, header) for ref, header in listed for group in header.groups]
    offers = [offer for offer in offers if offer[0].table == named.table and not _is_newer(offer[0], named)]
    found: list[tuple[BlockState, BlockPayload]] = []
    left = named.ids
    for group, ref, header in sorted(offers, key=lambda offer: -offer[0].clock):
        inside = np.intersect1d(left, group.ids)
        bad = unreadable_in(headers, ref, named.table, inside) if len(inside) else inside
        good = np.setdiff1d(inside, bad)
        if len(good):
            payload = read_blocks(headers.store, ref, header, headers.job, named.table, good)
            state = BlockState(named.table, good, group.clock, group.watermark, group.owner)
            found.append((state, payload))
            left = np.setdiff1d(left, good)
    if len(left):
        initial = initial_contents(headers.store, headers.job, named.table, left)
        found.append((BlockState(named.table, left), BlockPayload(*initial, np.zeros(len(left), np.int64))))
    return found


def _is_newer(group: BlockState, named: BlockState) -> bool:
    """States of one block follow each other: a higher clock is newer, and so are more pushes of one clock."""
    if group.clock != named.clock:
        return group.clock > named.clock
    return any(push > named.watermark.get(worker, 0) for worker, push in group.watermark.items())
