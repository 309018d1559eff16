"""What an epoch change cost this worker, told to the recovery coordinator for its ledger, beside training.

A report is the only word of what is lost, so it is repeated until the coordinator has made it durable, or the
worker ends. Reports are small and as many as epochs; while they cannot be made durable no epoch can either,
so they stay few.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from dataclasses import dataclass

from scar._client.core.comparisons import RecoveredBlocks
from scar._client.core.epoch_change import EpochChange
from scar._client.recovery_client import RecoveryClient
from scar.errors import DeadlineExceeded, ScarError, StoreError, Temporary
from scar.placement import Epoch, Member
from scar.v1 import recovery_pb2
from scar.wire import codec
from scar.wire.lost_pushes import pack_losses
from scar.wire.transport import Backoff, Deadline

log = logging.getLogger(__name__)

ATTEMPT_SECONDS = 30.0
PENDING_BYTES = 64 << 20  # of reports that wait; the oldest go first, with a warning

_PASSING = (Temporary, DeadlineExceeded, StoreError)  # a full store is one that somebody will empty


@dataclass
class ReportDraft:
    """A report that waits for comparisons."""

    message: recovery_pb2.RerouteReport
    pending: int


class RerouteReports:
    """A report of the first epoch and of each that cost something, sent by its own thread.

    Calls need the view's lock.
    """

    def __init__(self, member: Member, recovery: RecoveryClient) -> None:
        self._member = member
        self._recovery = recovery
        self._drafts: dict[int, ReportDraft] = {}
        self._pending: deque[recovery_pb2.RerouteReport] = deque()
        self._changed = threading.Condition()  # guards what is pending
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scar-reports", daemon=True)
        self._thread.start()

    def open_draft(self, epoch: Epoch, change: EpochChange, first: bool = False) -> None:
        """Begin the report of an epoch, if it cost something; it is sent when all comparisons are in.

        ``first``: the worker begins with it. It may stand in earlier ones, of which it cannot tell.
        """
        cost = (epoch.failure and epoch.moved) or change.comparisons or change.losses or change.resent
        if not (first or cost):
            return
        worker = codec.member_to_proto(self._member)
        lost = [pack_losses(loss) for loss in change.losses]
        message = recovery_pb2.RerouteReport(
            epoch=epoch.number, worker=worker, lost=lost, resent=change.resent, first=first
        )
        self._drafts[epoch.number] = ReportDraft(message, change.comparisons)
        self._send_complete(epoch.number)

    def add_comparison(self, blocks: RecoveredBlocks, squared: float | None) -> None:
        """One comparison is over; None: it could not be made."""
        draft = self._drafts.get(blocks.epoch)
        if draft is None:
            return
        draft.pending -= 1
        if squared is not None and math.isfinite(squared):
            deltas = draft.message.delta
            kind = (blocks.table, blocks.sent)
            delta = next((one for one in deltas if (one.table, one.sent) == kind), None)
            delta = delta or deltas.add(table=blocks.table, sent=blocks.sent)
            delta.squared += squared
            delta.blocks += len(blocks.ids)
            delta.behind |= blocks.behind
        self._send_complete(blocks.epoch)

    def release_drafts(self) -> None:
        """No further comparison will come: reports leave with those that they have."""
        for epoch in sorted(self._drafts):
            self._queue_report(self._drafts.pop(epoch).message)

    def flush(self, seconds: float) -> bool:
        """Wait until all complete reports are taken, at most so long; says whether they are. Lock-free."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, seconds)

    def close(self) -> None:
        """What is not taken now is lost; :meth:`flush` waits for it."""
        self._closing.set()
        with self._changed:
            for message in self._pending:
                log.warning("report.lost", extra={"epoch": message.epoch, "error": "the worker ends"})
            self._changed.notify_all()

    def _send_complete(self, epoch: int) -> None:
        if self._drafts[epoch].pending <= 0:
            self._queue_report(self._drafts.pop(epoch).message)

    def _queue_report(self, message: recovery_pb2.RerouteReport) -> None:
        with self._changed:
            self._pending.append(message)
            while len(self._pending) > 1 and sum(one.ByteSize() for one in self._pending) > PENDING_BYTES:
                oldest = self._pending.popleft()
                log.warning("report.lost", extra={"epoch": oldest.epoch, "error": "too many reports wait"})
            self._changed.notify_all()

    def _run(self) -> None:
        backoff = Backoff(0.1, 2.0)
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing.is_set())
                message = self._pending[0] if self._pending else None
            if message is None:
                continue
            if self._is_taken(message):
                backoff.reset()
                self._remove_sent(message)
            else:
                self._closing.wait(backoff.next())

    def _is_taken(self, message: recovery_pb2.RerouteReport) -> bool:
        """Whether nobody has to say it again: it is durable, or will never be accepted."""
        try:
            self._recovery.report_reroute(message, Deadline(ATTEMPT_SECONDS, self._closing))
        except ScarError as error:
            if isinstance(error, _PASSING):
                log.info("report.delayed", extra={"epoch": message.epoch, "error": str(error)})
                return False
            log.warning("report.lost", extra={"epoch": message.epoch, "error": str(error)})
        return True

    def _remove_sent(self, message: recovery_pb2.RerouteReport) -> None:
        with self._changed:
            if self._pending and self._pending[0] is message:
                self._pending.popleft()
            self._changed.notify_all()
