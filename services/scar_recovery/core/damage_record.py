"""Blocks that their owners cannot load, and workers that did not send what an epoch had them send. Pure."""

from __future__ import annotations

import numpy as np

from scar.placement import BlockSource, Epoch, global_ids
from scar.tables import Job
from scar_recovery.core.epoch_intent import GlobalIds
from scar_recovery.core.events import DamageFound

NEVER = float("inf")


class DamageRecord:
    """Of the newest epoch.

    ``blocks``: what cannot be read, in words -> blocks; ``since``: when the first was found, infinity: none;
    ``failed_senders``: keys of workers that are no sources until every block is loaded, so each is named at
    most once for a block, and the checkpoint comes after the last of them.
    """

    def __init__(self) -> None:
        self.blocks: dict[str, GlobalIds] = {}
        self.since = NEVER
        self._number = 0
        self.failed_senders: frozenset[str] = frozenset()
        self._owed: list[tuple[str, GlobalIds]] = []  # worker key, what it was named for since all was loaded

    def adopt_epoch(self, job: Job, epoch: Epoch) -> None:
        """A new epoch names other sources for what was damaged."""
        self.blocks = {}
        self.since = NEVER
        self._number = epoch.number
        for group in epoch.moved:
            ids = global_ids(job, group.table, group.ids)
            if self._owed:
                self._owed = [(sender, np.setdiff1d(owed, ids)) for sender, owed in self._owed]
            if group.source is BlockSource.WORKER:
                self._owed.append((group.sender, ids))

    def record_damage(self, event: DamageFound, now: float) -> None:
        """What is said of an older epoch is of no use any more."""
        if event.number != self._number:
            return
        self.since = min(self.since, now)
        self.blocks[event.description] = event.blocks
        self.failed_senders |= {sender for sender, owed in self._owed if np.isin(event.blocks, owed).any()}

    def end_heal(self, number: int) -> None:
        """Every block of epoch ``number`` is loaded."""
        if number == self._number:
            self.failed_senders = frozenset()
            self._owed = []
