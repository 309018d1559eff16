"""Compaction: the live blocks of mostly dead objects are rewritten as one object."""

from __future__ import annotations

import numpy as np

from scar.blocks import BlockState
from scar.tables import Job
from scar_checkpoint.core.rounds import Rewrite
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, ObjectHeader, object_ref
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.store import Store
from scar_runtime.store.layout import compact_key


class Compactor:
    """``store`` is the job's; ``author``: this coordinator's member key."""

    def __init__(self, store: Store, job: Job, author: str) -> None:
        self._store = store
        self._job = job
        self._author = author

    def compact_objects(self, running: RunningCheckpoint, epoch: int) -> Rewrite | None:
        """Write the live blocks of mostly dead objects as one object; None: it is not worth while. The next
        manifest lists it.

        Raises store errors and :class:`scar.errors.CorruptCheckpoint`.
        """
        picked = set(running.plan_compaction())
        if not picked:
            return None
        groups = self._read_live_blocks(running, picked)
        states = [state for state, _ in groups]
        encoded = EncodedObject(self._job, groups)
        manifest = running.manifest
        key = compact_key(manifest.number, self._author)
        self._store.put_pieces(key, encoded.pieces())
        ref = object_ref(key, encoded, states, self._author, epoch, manifest.round)
        return Rewrite(
            manifest.number,
            old=frozenset(running.objects[index].key for index in picked),
            base=frozenset(one.key for one in running.objects),
            ref=ref,
            header=read_header(self._store, ref, self._job),
        )

    def _read_live_blocks(
        self, running: RunningCheckpoint, picked: set[int]
    ) -> list[tuple[BlockState, BlockPayload]]:
        """Of the objects with these indices."""
        groups: list[tuple[BlockState, BlockPayload]] = []
        baselines: dict[str, ObjectHeader] = {}  # read once for all, and kept no longer than this
        for table in self._job.tables:
            for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32)):
                if origin.index in picked:
                    ref = running.objects[origin.index]
                    header = ObjectHeader(running.headers[origin.index].sections, baselines)
                    payload = read_blocks(self._store, ref, header, self._job, table.name, origin.group.ids)
                    groups.append((origin.group, payload))
        return groups
