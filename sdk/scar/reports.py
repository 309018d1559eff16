"""What an epoch change cost this worker, told to the recovery coordinator for its ledger. Never in the way of training."""

from __future__ import annotations

import logging
import math
import queue
import threading
from dataclasses import dataclass

from scar import codec
from scar.epochs import Recovery
from scar.errors import ScarError
from scar.placement import Epoch, Member
from scar.reroute import Outcome
from scar.transport import Deadline
from scar.v1 import recovery_pb2

log = logging.getLogger(__name__)

REPORT_SECONDS = 30.0
CLOSE_SECONDS = 3.0


@dataclass
class Draft:
    """A report that waits for comparisons."""

    message: recovery_pb2.RerouteReport
    pending: int


class Reports:
    """One report for each epoch that cost something. Its calls need the view's lock; sending happens in a thread of its own."""

    def __init__(self, member: Member, recovery: Recovery) -> None:
        self._member, self._recovery = member, recovery
        self._drafts: dict[int, Draft] = {}
        self._ready: queue.SimpleQueue[recovery_pb2.RerouteReport | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scar-reports", daemon=True)
        self._thread.start()

    def open(self, epoch: Epoch, outcome: Outcome, comparisons: int) -> None:
        """Begin the report of an epoch; it leaves when all comparisons are in. No failure and no cost: no report."""
        if not (epoch.failure or comparisons or outcome.losses or outcome.resent):
            return
        worker = codec.member_to_proto(self._member)
        message = recovery_pb2.RerouteReport(epoch=epoch.number, worker=worker, resent=outcome.resent)
        for loss in outcome.losses:
            message.lost.add(table=loss.table, block_ids=codec.ids_to_bytes(loss.ids), after=loss.after, upto=loss.upto)
        self._drafts[epoch.number] = Draft(message, comparisons)
        self._send_complete(epoch.number)

    def compared(self, epoch: int, table: str, blocks: int, squared: float | None) -> None:
        """One comparison is over; None: it could not be made."""
        draft = self._drafts.get(epoch)
        if draft is None:
            return
        draft.pending -= 1
        if squared is not None and math.isfinite(squared):
            delta = next((delta for delta in draft.message.delta if delta.table == table), None)
            delta = delta or draft.message.delta.add(table=table)
            delta.squared += squared
            delta.blocks += blocks
        self._send_complete(epoch)

    def close(self) -> None:
        """Wait a little for reports that are being sent."""
        self._ready.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _send_complete(self, epoch: int) -> None:
        if self._drafts[epoch].pending <= 0:
            self._ready.put(self._drafts.pop(epoch).message)

    def _run(self) -> None:
        while (message := self._ready.get()) is not None:
            try:
                self._recovery.report(message, Deadline(REPORT_SECONDS))
            except ScarError as error:
                log.warning("report.lost", extra={"epoch": message.epoch, "error": str(error)})
