"""The table that counts pushes: every worker adds one to each of its blocks in each iteration.

So lost or doubled pushes show.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

import scar
from scar.blocks import Ids
from scar.strategies import rolls_back
from scar.v1 import recovery_pb2
from scar.wire.lost_pushes import unpack_losses
from scar_cli.demo.report import BlockCounts, PushTally

TABLE = "tally"
UNIT = 2.0**-12  # what train.py adds; exact in float32
LOOK_SECONDS = 0.2


class RegressionWatcher:
    """Reads the blocks of surviving servers repeatedly, and counts those that ever become smaller."""

    def __init__(self, recovery_address: str, ids: Ids) -> None:
        self._address = recovery_address
        self._ids = ids
        self._back = np.zeros(len(ids), dtype=bool)

    @property
    def went_back(self) -> int:
        """Blocks that were seen to go back."""
        return int(np.count_nonzero(self._back))

    def watch_blocks(self, stop: threading.Event) -> None:
        with scar.connect(self._address) as reader:
            before = np.asarray(reader.pull(TABLE, ids=self._ids))
            while not stop.wait(LOOK_SECONDS):
                now = np.asarray(reader.pull(TABLE, ids=self._ids))
                self._back |= now < before
                before = now


def final_tally(
    recovery_address: str,
    records: Sequence[recovery_pb2.FailureRecord],
    workers: int,
    iterations: int,
    went_back: int,
) -> PushTally:
    """What the model holds at the end, beside what the ledger says was lost."""
    # After a rollback each worker drops what it has computed from values that no longer exist: a push that
    # nobody acknowledged.
    void = workers * sum(rolls_back(record.strategy) for record in records)
    with scar.connect(recovery_address) as reader:
        values = np.asarray(reader.pull(TABLE)).reshape(-1)
    counted = np.rint(values / UNIT).astype(np.int64)
    return PushTally(counted, lost_additions(records, len(values)), workers * iterations, went_back, void)


def lost_additions(records: Sequence[recovery_pb2.FailureRecord], blocks: int) -> BlockCounts:
    """By block: pushes that were acknowledged and are lost.

    A worker pushes once per iteration, so each push adds one.
    """
    lost = np.zeros(blocks, dtype=np.int64)
    entries = (entry for record in records for report in record.lost for entry in report.lost)
    for loss in (unpack_losses(entry, blocks) for entry in entries if entry.table == TABLE):
        lost[loss.ids] += loss.upto - loss.after
    return lost
