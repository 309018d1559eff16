"""The ledger: what every failure cost. Pure: failures, epochs and reports in, records out.

A record is opened when the epoch that answers a failure exists, and grows as shards load and workers report. It is open while
somebody may still add to it. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from scar.codec import ids_from_bytes
from scar.errors import InvalidRequest
from scar.placement import Epoch, Source
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord, LostRange, RerouteReport, TableDelta
from scar_recovery.members import Failure
from scar_recovery.plans import Intent

UNKNOWN = -1.0
SOURCE_NAMES: Mapping[Source, str] = {
    Source.INITIAL: "initial",
    Source.OBJECT: "object",
    Source.DONOR: "donor",
    Source.REPLICA: "replica",
}


class Ledger:
    """All failure records of one job. ``records``: of earlier leaders; loading that they left open is timed from ``now``."""

    def __init__(self, job: Job, records: Iterable[FailureRecord] = (), now: float = 0.0) -> None:
        self._job = job
        self._records = {record.number: record for record in records}
        loading = (record.number for record in self._records.values() if record.epoch and not record.load_seconds)
        self._created = dict.fromkeys(loading, now)  # number -> when its epoch was created
        self._deltas: dict[int, dict[str, TableDelta]] = {}
        self._unwritten: set[int] = set()

    @property
    def records(self) -> list[FailureRecord]:
        return [self._records[number] for number in sorted(self._records)]

    @property
    def newest(self) -> int:
        return max(self._records, default=0)

    @property
    def loading(self) -> list[str]:
        """Members whose blocks are not served again yet."""
        return sorted({key for number in self._created for key in self._records[number].members})

    def unwritten(self) -> list[FailureRecord]:
        """Copies of the records that changed since the last call; the caller stores them."""
        numbers, self._unwritten = sorted(self._unwritten), set()
        return [_copy(self._records[number]) for number in numbers]

    def rewrite(self, number: int) -> None:
        """The record could not be stored: it comes again."""
        self._unwritten.add(number)

    # --- failures -----------------------------------------------------------------------------------------------------

    def opened(self, intent: Intent, failures: Sequence[Failure], seconds: float, created: float) -> None:
        """A failure for which an epoch exists. ``seconds``: to plan and create it; ``created``: seconds since 1970."""
        previous = intent.previous
        dead = [f for f in failures if previous is not None and (intent.rewinds or previous.shard_index(f.key) >= 0)]
        if intent.failure in self._records or not dead:
            return
        last = max(dead, key=lambda failure: failure.report.detect_seconds + failure.waits)
        record = FailureRecord(
            number=intent.failure,
            members=[failure.key for failure in dead],
            evidence=[failure.report.evidence for failure in dead],
            strategy=self._job.worker_recovery if intent.rewinds else self._job.recovery,
            lost_blocks=sum(len(blocks) for key, blocks in intent.lost().items() if key in intent.dead),
            total_blocks=self._job.blocks,
            detect_seconds=last.report.detect_seconds,
            wait_seconds=last.waits,
            commit_seconds=seconds,
            delta_norm=UNKNOWN,
            created=created,
        )
        self._records[record.number] = record
        self._changed(record.number)

    def rebuilt(self, before: Epoch, epoch: Epoch, created: float) -> None:
        """A failure whose record the former leader had no time to write: what can be read off its epoch."""
        if not epoch.failure or epoch.failure in self._records:
            return
        rewinds = epoch.restart > before.restart
        dead = [member.key for member in before.shards if epoch.shard_index(member.key) < 0]
        dead += [member.key for member in before.workers if rewinds and member not in epoch.workers]
        self._records[epoch.failure] = FailureRecord(
            number=epoch.failure,
            members=dead,
            evidence=["recorded by a later leader"],
            strategy=self._job.worker_recovery if rewinds else self._job.recovery,
            lost_blocks=sum(len(ids) for key in dead for ids in before.owned_by(key).values()),
            total_blocks=self._job.blocks,
            delta_norm=UNKNOWN,
            created=created,
        )
        self._changed(epoch.failure)

    def followed(self, epoch: Epoch, now: float) -> None:
        """A new epoch: it may repair a failure, and whoever is not in it any more will not report."""
        record = self._records.get(epoch.failure)
        if record is not None and not record.epoch and epoch.shards:
            self._repaired(record, epoch, now)
        workers = {member.key for member in epoch.workers}
        for other in self._records.values():
            staying = [key for key in other.waiting if key in workers or other.epoch > epoch.number]
            if len(staying) < len(other.waiting):
                other.waiting[:] = staying
                self._changed(other.number)

    def _repaired(self, record: FailureRecord, epoch: Epoch, now: float) -> None:
        record.epoch, record.manifest = epoch.number, epoch.manifest
        for group in epoch.moved:
            record.sources[SOURCE_NAMES[group.source]] += len(group.ids)
        record.waiting[:] = [member.key for member in epoch.workers]
        self._created[record.number] = now
        self._changed(record.number)

    def served(self, now: float, clock: int) -> None:
        """Every shard of the newest epoch serves all its blocks. ``clock``: the highest open clock."""
        for number, created in self._created.items():
            record = self._records[number]
            record.load_seconds = now - created
            record.clock = record.clock or clock
            self._changed(number)
        self._created = {}

    def stopped_at(self, number: int, clock: int) -> None:
        """The survivors' open clock when they heard of epoch ``number``."""
        for record in self._records.values():
            if record.epoch == number and clock > record.clock:
                record.clock = clock
                self._changed(record.number)

    # --- reports ------------------------------------------------------------------------------------------------------

    def reported(self, report: RerouteReport) -> None:
        """What an epoch cost one worker. A repeated report, or one about an epoch without a failure, changes nothing."""
        key = f"{report.worker.name}@{report.worker.incarnation}"
        record = next((r for r in self._records.values() if r.epoch == report.epoch and key in r.waiting), None)
        if record is None:
            return
        lost = [self._range(key, entry.table, entry.block_ids, entry.after, entry.upto) for entry in report.lost]
        record.waiting.remove(key)
        record.lost.extend(lost)
        record.lost_pushes = sum(lost_pushes(record.lost).values())
        record.resent_pushes += report.resent
        self._measure(record, report.delta)
        self._changed(record.number)

    def _range(self, worker: str, table: str, block_ids: bytes, after: int, upto: int) -> LostRange:
        ids_from_bytes(block_ids, self._job.table(table).blocks)
        if after >= upto:
            raise InvalidRequest(f"lost pushes of {worker} must be a range, not ({after}, {upto}]")
        return LostRange(worker=worker, table=table, block_ids=block_ids, after=after, upto=upto)

    def _measure(self, record: FailureRecord, deltas: Iterable[TableDelta]) -> None:
        """Workers compare the same blocks: of each table the one that compared most counts, never the sum over workers."""
        best = self._deltas.setdefault(record.number, {})
        for delta in deltas:
            known = best.get(delta.table)
            if delta.blocks and math.isfinite(delta.squared) and (known is None or delta.blocks > known.blocks):
                best[delta.table] = delta
        if best:
            compared = sum(delta.blocks for delta in best.values())
            record.delta_norm = math.sqrt(sum(delta.squared for delta in best.values()))
            record.delta_exact = self._job.consistency == "bsp" and compared >= sum(record.sources.values())

    def _changed(self, number: int) -> None:
        self._unwritten.add(number)


def lost_pushes(lost: Iterable[LostRange]) -> dict[str, int]:
    """Worker -> pushes of which at least one block was lost: the size of the union of its ranges."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for entry in lost:
        ranges.setdefault(entry.worker, []).append((entry.after, entry.upto))
    return {worker: _union(sorted(found)) for worker, found in ranges.items()}


def _union(ranges: Sequence[tuple[int, int]]) -> int:
    """Numbers in the union of half-open ranges (after, upto], sorted by start."""
    total, end = 0, 0
    for after, upto in ranges:
        total += max(0, upto - max(after, end))
        end = max(end, upto)
    return total


def _copy(record: FailureRecord) -> FailureRecord:
    copy = FailureRecord()
    copy.CopyFrom(record)
    return copy
