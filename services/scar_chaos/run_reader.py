"""The truth of a run: what its services show, what its store holds, what its workers wrote down."""

from __future__ import annotations

import numpy as np

import scar
from scar.placement import Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar.v1.types_pb2 import Epoch as EpochProto
from scar.wire.epoch_messages import epoch_from_proto
from scar_admin.status import ClusterStatus
from scar_chaos.core.counting_job import per_block, torn_blocks
from scar_chaos.oracles.history import History, ReturnedBlocks
from scar_chaos.oracles.violation import require
from scar_chaos.recorder import Recorder, read_history
from scar_chaos.restore import read_returned
from scar_chaos.targets.base import ChaosTarget
from scar_runtime.store import Store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.layout import EPOCHS, folder
from scar_runtime.store.records import decode_record


class RunReader:
    """``job``: what is trained."""

    def __init__(self, target: ChaosTarget, job: Job, recorder: Recorder) -> None:
        self.target = target
        self.job = job
        self.recorder = recorder
        self._returned: dict[int, list[ReturnedBlocks]] = {}  # epoch -> what it put back

    @property
    def store(self) -> Store:
        """The job's part of the store, opened again: what a fresh process would see."""
        return self.target.store().under(self.job.name)

    def status(self) -> ClusterStatus:
        return self.target.status()

    def read_epochs(self) -> list[Epoch]:
        """All epochs, from the store."""
        store = self.store
        keys = store.list(folder(EPOCHS))
        return [epoch_from_proto(decode_record(EpochProto, store.get(key))) for key in keys]

    def read_ledger(self) -> list[FailureRecord]:
        """All failures, from the store."""
        return FailureLog(self.store).read(lost=True)

    def read_values(self) -> dict[str, np.ndarray]:
        """One value per block of every table, pulled by a reader that is no worker. No block may be torn."""
        with scar.connect(self.target.recovery) as reader:
            arrays = {table.name: reader.pull(table.name) for table in self.job.tables}
        for table in self.job.tables:
            torn = torn_blocks(table, arrays[table.name])
            require(not torn, f"a reader pulled torn blocks of table {table.name}: {torn}")
        return {table.name: per_block(table, arrays[table.name]) for table in self.job.tables}

    def read_history(self) -> History:
        return read_history(self.recorder.folder, self.job)

    def read_returned(self, epoch: Epoch) -> list[ReturnedBlocks]:
        """What this epoch put back.

        Read when it is first asked for: what it was read from is deleted soon.
        """
        if epoch.number not in self._returned:
            blocks = read_returned(self.store, self.job, epoch) if epoch.failure else []
            self._returned[epoch.number] = blocks
        return self._returned[epoch.number]
