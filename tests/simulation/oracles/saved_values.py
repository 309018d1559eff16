"""What checkpoints hold, as their manifests come: no value from before a recovery comes back behind it, and
what a shard calls saved is in one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from scar.blocks import Array, BlockState
from scar.errors import ScarError
from scar.placement import BlockSource, Epoch
from scar.tables import Job
from scar_ps.core.block_store import BlockStore
from scar_ps.core.checkpoint_round import committed_values
from scar_ps.core.core_state import CoreState
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.store import Store
from scar_runtime.store.layout import saved_round


class SavedValues:
    """Of one job. ``store``: its own. The first element of a block stands for it: no two pushes of the
    counting job add the same.
    """

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._job = job
        self._restored = {table.name: np.zeros(table.blocks, np.int64) for table in job.tables}  # epochs
        self._read: dict[int, set[str]] = {}  # keys of what each epoch has put blocks back from
        self._saved: dict[str, list[set[float]]] = {}  # of each block of each table, what was ever saved
        self._headers: dict[str, ObjectHeader] = {}
        for table in job.tables:
            ids = np.arange(table.blocks, dtype=np.uint32)
            first = table.initial(job.seed, ids)[table.layout.starts[:-1]]
            self._saved[table.name] = [{float(value)} for value in first]

    def epoch_created(self, epoch: Epoch, manifests: Mapping[int, Manifest]) -> list[str]:
        """``manifests``: all that exist. What is wrong with those behind the one that it restores from."""
        for group in epoch.moved:
            if group.source is not BlockSource.DONOR:
                self._restored[group.table][group.ids] = epoch.number
        known = manifests.get(epoch.manifest)
        before = {ref.key for ref in known.objects} if known is not None else set()
        self._read[epoch.number] = before
        later = [
            one
            for number, one in manifests.items()
            if known is not None and number > epoch.manifest and (one.full or not epoch.rollback)
        ]  # nobody rolls back to a mixture
        return [words for manifest in later for words in self._check_lineage(manifest, before)]

    def manifest_created(self, manifest: Manifest, parent: Manifest | None) -> list[str]:
        """``parent``: which it continues, if it still exists."""
        before = {ref.key for ref in parent.objects} if parent is not None else set()
        for ref in manifest.objects:
            if ref.key not in before:
                self._keep_values(ref)
        return self._check_lineage(manifest, before) if parent is not None or not manifest.parent else []

    def _keep_values(self, ref: ObjectRef) -> None:
        header = self._header(ref)
        for section in header.sections if header is not None else ():
            group = section.group
            alone = ObjectHeader((section,))  # more sections would be read by threads
            try:
                values = read_blocks(self._store, ref, alone, self._job, group.table, group.ids).values
            except ScarError:
                continue
            starts = self._job.table(group.table).layout.take(group.ids.astype(np.int64)).starts
            for block, start in zip(group.ids.tolist(), starts[:-1].tolist(), strict=True):
                self._saved[group.table][block].add(float(values[start]))

    def _header(self, ref: ObjectRef) -> ObjectHeader | None:
        if ref.key not in self._headers:
            try:
                self._headers[ref.key] = read_header(self._store, ref, self._job)
            except ScarError:
                return None
        return self._headers[ref.key]

    def _check_lineage(self, manifest: Manifest, before: Collection[str]) -> list[str]:
        """Whether new objects of shards hold blocks as they were before an epoch put them back. What that
        epoch itself has read may come back: a rollback goes there again, whatever partial rounds came since.
        """
        found = []
        for ref in manifest.objects:
            header = self._header(ref) if ref.key not in before and saved_round(ref.key) is not None else None
            for group in header.groups if header is not None else ():
                epochs = np.unique(self._restored[group.table][group.ids]).tolist()
                unread = [one for one in epochs if ref.key not in self._read.get(one, ())]
                newest = max(unread, default=0)
                if newest > ref.epoch:
                    found.append(
                        f"manifest {manifest.number} brings back {ref.key}, from before epoch {newest} put"
                        f" blocks of table {group.table} back"
                    )
        return found

    def live_groups(self, manifest: Manifest) -> Iterable[BlockState]:
        """What this checkpoint holds of each block: the newest object of each wins."""
        seen = {table.name: np.zeros(table.blocks, np.bool_) for table in self._job.tables}
        for ref in reversed(manifest.objects):
            header = self._header(ref)
            for group in header.groups if header is not None else ():
                ids = group.ids[~seen[group.table][group.ids]]
                seen[group.table][ids] = True
                yield BlockState(group.table, ids, group.clock, group.watermark, group.owner)

    def check_shards(self, shards: Mapping[str, CoreState]) -> list[str]:
        """What each calls saved."""
        return [
            f"{key} calls blocks {wrong} of table {name} saved with values that no manifest has"
            for key, state in shards.items()
            for name, store in state.ownership.tables.items()
            if (wrong := self._never_saved(name, store, state))
        ]

    def _never_saved(self, name: str, store: BlockStore, state: CoreState) -> list[int]:
        at = np.flatnonzero(store.loading == 0)
        values: Array = committed_values(store, at, state.round.committed)
        first = values[store.layout.take(at).starts[:-1]]
        known = self._saved[name]
        pairs = zip(store.ids[at].tolist(), first.tolist(), strict=True)
        return [block for block, value in pairs if value >= 0 and float(value) not in known[block]]
