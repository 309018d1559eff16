"""The table that counts: every worker adds one to each of its blocks in each iteration, so that lost or doubled pushes show."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

import scar
from scar.blocks import Ids
from scar.codec import ids_from_bytes
from scar.v1 import recovery_pb2
from scar_cli.demo.report import Counts, Tally

TABLE = "tally"
UNIT = 2.0**-12  # what train.py adds; exact in float32
LOOK_SECONDS = 0.2


class Witness:
    """Reads the blocks of surviving servers again and again, and notices each that is ever smaller than before."""

    def __init__(self, recovery_address: str, ids: Ids) -> None:
        self._address, self._ids = recovery_address, ids
        self._back = np.zeros(len(ids), dtype=bool)

    @property
    def went_back(self) -> int:
        """Blocks that were seen to go back."""
        return int(np.count_nonzero(self._back))

    def watch(self, stop: threading.Event) -> None:
        with scar.connect(self._address) as reader:
            before = np.asarray(reader.pull(TABLE, ids=self._ids))
            while not stop.wait(LOOK_SECONDS):
                now = np.asarray(reader.pull(TABLE, ids=self._ids))
                self._back |= now < before
                before = now


def final_tally(
    recovery_address: str, records: Sequence[recovery_pb2.FailureRecord], workers: int, iterations: int, went_back: int
) -> Tally:
    """What the model holds at the end, beside what the ledger says was lost."""
    # After a rollback each worker drops what it has computed from values that no longer exist: a push that nobody acknowledged.
    void = workers * sum(record.strategy == "full" for record in records)
    with scar.connect(recovery_address) as reader:
        values = np.asarray(reader.pull(TABLE)).reshape(-1)
    counted = np.rint(values / UNIT).astype(np.int64)
    return Tally(counted, lost_additions(records, len(values)), workers * iterations, went_back, void)


def lost_additions(records: Sequence[recovery_pb2.FailureRecord], blocks: int) -> Counts:
    """By block: pushes that were acknowledged and are lost. A worker pushes once per iteration, so each push adds one."""
    lost = np.zeros(blocks, dtype=np.int64)
    for entry in (entry for record in records for entry in record.lost if entry.table == TABLE):
        lost[ids_from_bytes(entry.block_ids, blocks)] += entry.upto - entry.after
    return lost
