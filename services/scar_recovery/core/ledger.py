"""The ledger: what every failure cost. Pure: failures, epochs and reports in, records out.

A record is opened when the epoch that answers a failure exists, and grows as shards load and workers report.
It is open while somebody may still add to it. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scar.lost_ranges import LostRanges, count_lost_pushes
from scar.placement import BlockSource, Epoch, Member
from scar.strategies import ROLLBACK
from scar.tables import Job
from scar_recovery.core.epoch_intent import EpochIntent, rewinds_workers
from scar_recovery.core.membership import MemberFailure
from scar_runtime.failure_records import (
    UNKNOWN_NORM,
    UNKNOWN_SECONDS,
    FailureRecord,
    TableDelta,
    WorkerReport,
    merge_records,
)

MEMORIES = frozenset({BlockSource.WORKER, BlockSource.REPLICA})
REBUILT = "recorded by a later leader"
AT_ONCE = 1e-6  # seconds; 0 means that they are not served yet
SOURCE_NAMES: Mapping[BlockSource, str] = {
    BlockSource.INITIAL: "initial",
    BlockSource.OBJECT: "object",
    BlockSource.DONOR: "donor",
    BlockSource.REPLICA: "replica",
    BlockSource.WORKER: "worker",
}


@dataclass(frozen=True)
class RerouteReport:
    """What an epoch cost one worker. ``worker``: its key; ``resent``: pushes that went to new owners.

    ``first``: the worker begins with this epoch, and tells of no earlier one in which it stood.
    """

    epoch: int
    worker: str
    lost: tuple[LostRanges, ...] = ()
    delta: tuple[TableDelta, ...] = ()
    resent: int = 0
    first: bool = False


class Ledger:
    """All failure records of one job. ``records``: of earlier leaders."""

    def __init__(self, job: Job, records: Iterable[FailureRecord] = ()) -> None:
        self._job = job
        self._records = {record.number: record for record in records}
        self._loading = {
            number for number, record in self._records.items() if record.epoch and not record.load_seconds
        }
        # number -> when its epoch was created; nothing: while an earlier leader led, whose clock is another
        self._repaired_at: dict[int, float] = {}
        self._epoch: Epoch | None = None  # the newest
        self._unwritten: set[int] = set()
        self._heard: dict[str, Mapping[int, int]] = {}  # shard key -> open clocks when epochs came to it
        self._untold: dict[int, set[str]] = {}  # number -> shards that have yet to tell their clock after it

    @property
    def records(self) -> list[FailureRecord]:
        return [self._records[number] for number in sorted(self._records)]

    @property
    def newest(self) -> int:
        """Highest number; 0: there is no record."""
        return max(self._records, default=0)

    @property
    def loading(self) -> list[str]:
        """Members whose blocks are not served again yet."""
        records = [self._records[number] for number in self._loading]
        return sorted({key for record in records if record.sources for key in record.members})

    def take_unwritten(self) -> list[FailureRecord]:
        """Records that changed since the last call; the caller stores them."""
        numbers = sorted(self._unwritten)
        self._unwritten = set()
        return [self._records[number] for number in numbers]

    def mark_unwritten(self, number: int) -> None:
        """The record could not be stored: it comes again."""
        self._unwritten.add(number)

    def merge_stored(self, stored: Iterable[FailureRecord]) -> None:
        """What the store has, perhaps from a former leader that wrote until we created our first epoch."""
        for record in stored:
            mine = self._records.get(record.number)
            whole = record if mine is None else merge_records([mine, record])
            self._records[record.number] = whole
            if whole != record:
                self.mark_unwritten(record.number)

    def _put(self, record: FailureRecord) -> None:
        self._records[record.number] = record
        self.mark_unwritten(record.number)

    # --- failures

    def open_record(
        self, intent: EpochIntent, failures: Sequence[MemberFailure], seconds: float, created: float
    ) -> None:
        """A failure for which an epoch exists.

        ``seconds``: to plan and create it; ``created``: seconds since 1970.
        """
        if not intent.failure or not (failures or intent.damage or intent.asked):
            return
        keys = tuple(failure.key for failure in failures)
        slowest = max(failures, key=_seconds_until_allowed, default=None)
        lost = sum(len(blocks) for key, blocks in intent.lost_blocks().items() if key in intent.dead)
        damaged = 0 if intent.rollback else sum(len(blocks) for blocks in intent.damaged.values())
        record = FailureRecord(
            number=intent.failure,
            members=keys,
            evidence=tuple(failure.report.evidence for failure in failures),
            damage=intent.damage,
            strategy=self._strategy(intent.previous, keys, intent.rewinds_workers, bool(intent.asked)),
            rollback=intent.asked.reason if intent.asked else "",
            lost_blocks=lost + damaged,
            total_blocks=self._job.blocks,
            suspect_seconds=slowest.report.suspect_seconds if slowest is not None else UNKNOWN_SECONDS,
            detect_seconds=slowest.report.detect_seconds if slowest is not None else UNKNOWN_SECONDS,
            wait_seconds=slowest.wait_seconds if slowest is not None else 0.0,
            commit_seconds=seconds,
            delta_norm=UNKNOWN_NORM,
            created=created,
        )
        self._add_record(record)

    def rebuild_record(self, before: Epoch, epoch: Epoch, created: float) -> None:
        """A failure whose record the former leader had no time to write, as its epoch tells it."""
        if not epoch.failure or epoch.failure in self._records:
            return
        inside = {member.key for member in (*epoch.shards, *epoch.workers)}
        gone = [one for one in (*before.shards, *before.workers) if one.key not in inside]
        dead = tuple(member.key for member in gone if member.incarnation in epoch.fenced)
        rewinds = rewinds_workers(self._job, before, epoch.shards, dead)
        asked = epoch.restart > before.restart and not rewinds
        record = FailureRecord(
            number=epoch.failure,
            members=dead,
            evidence=(REBUILT,) * len(dead),
            strategy=self._strategy(before, dead, rewinds, asked),
            rollback=REBUILT if asked else "",
            lost_blocks=sum(len(ids) for key in dead for ids in before.owned_by(key).values()),
            total_blocks=self._job.blocks,
            wait_seconds=UNKNOWN_SECONDS,
            commit_seconds=UNKNOWN_SECONDS,
            delta_norm=UNKNOWN_NORM,
            created=created,
        )
        self._add_record(record)

    def _strategy(self, before: Epoch | None, dead: Sequence[str], rewinds: bool, asked: bool) -> str:
        """What answers this failure: the job's choice for workers when workers alone have died.

        ``asked``: a worker has asked for a rollback, which answers all else, too.
        """
        if asked:
            return ROLLBACK
        shards = before is not None and any(before.shard_index(key) >= 0 for key in dead)
        return self._job.strategy.name if (shards or not dead) and not rewinds else self._job.worker_recovery

    def _add_record(self, record: FailureRecord) -> None:
        """A worker that dies while blocks wait for a shard stands in the record of what they wait for."""
        known = self._records.get(record.number, record)
        known = known.with_members(record.members, record.evidence, record.damage)
        if record.rollback:  # it goes back as a whole, whatever else it repairs
            known = replace(known, strategy=record.strategy, rollback=record.rollback)
        self._put(known)

    def follow_epoch(self, epoch: Epoch, now: float | None) -> None:
        """A new epoch: it may repair a failure, and whoever is not in it any more will not report.

        ``now`` None: an earlier leader created it.
        """
        self._epoch = epoch
        record = self._records.get(epoch.failure)
        if record is not None and not record.epoch and (epoch.shards or not record.lost_blocks):
            self._record_repair(record, epoch, now)
        workers = {member.key for member in epoch.workers}
        for other in self.records:
            if other.epoch <= epoch.number and not workers.issuperset(other.waiting):
                self._put(self._without_waiting(other, set(other.waiting) - workers, now))
        for number in self._loading - self._untold.keys():
            self._untold[number] = {shard.key for shard in epoch.shards}  # who joins later survived nothing
            for key, adopted in self._heard.items():  # shards that were faster than we
                self._add_clock(number, key, adopted)
        self._heard = {key: adopted for key, adopted in self._heard.items() if max(adopted) >= epoch.number}

    def _record_repair(self, record: FailureRecord, epoch: Epoch, now: float | None) -> None:
        sources = dict(record.sources)
        for group in epoch.moved:
            name = SOURCE_NAMES[group.source]
            sources[name] = sources.get(name, 0) + len(group.ids)
        saved = [group.clock for group in epoch.moved if group.source is not BlockSource.DONOR]
        if now is not None:
            self._repaired_at[record.number] = now
        waiting = tuple(member.key for member in epoch.workers) if epoch.moved else ()
        self._put(
            replace(
                record.with_members((), (), _unread_saves(epoch)),
                epoch=epoch.number,
                manifest=epoch.manifest,
                clock=max(saved, default=0),  # all that is known where nobody is left to tell
                restored_clock=max(saved, default=0) if record.rollback else 0,
                sources=sources,
                replayed=self._is_replayed(epoch),
                waiting=waiting,
                settle_seconds=0.0 if waiting else self._seconds_since(record.number, now),
            )
        )
        self._loading.add(record.number)

    def _is_replayed(self, epoch: Epoch) -> bool:
        """Whether blocks came from memory, to have all that was pushed since sent again."""
        exact = self._job.heals_by_clock or self._job.heals_by_watermark
        return exact and any(group.source in MEMORIES for group in epoch.moved)

    def _seconds_since(self, number: int, now: float | None) -> float:
        """Since the epoch that repaired this failure."""
        since = self._repaired_at.get(number)
        return UNKNOWN_SECONDS if since is None or now is None else max(now - since, AT_ONCE)

    def finish_loading(self, now: float, clock: int, epoch: int) -> list[FailureRecord]:
        """Every shard of the newest epoch serves all its blocks. ``clock``: the highest open clock.

        Returns the records of what was being loaded.
        """
        numbers = sorted(self._loading)
        for number in numbers:
            record = self._records[number]
            seconds = self._seconds_since(number, now)
            self._put(replace(record, load_seconds=seconds, clock=record.clock or clock))
        self._loading = set()
        self._untold = {}
        if self._epoch is not None and self._epoch.number == epoch:  # else it will be told once more
            self._record_returns(self._epoch, now)
        return [self._records[number] for number in numbers]

    def _record_returns(self, epoch: Epoch, now: float) -> None:
        """Of those who had died, who is back in this epoch under its name; shards with blocks."""
        missing = [record for record in self.records if record.epoch and not record.return_seconds]
        names = {_name(key) for record in missing for key in record.members}
        back = {worker.name for worker in epoch.workers}
        back |= {shard.name for shard in epoch.shards if shard.name in names and _owns_blocks(epoch, shard)}
        for record in missing:
            if record.members and back.issuperset(map(_name, record.members)):
                self._put(replace(record, return_seconds=self._seconds_since(record.number, now)))

    def record_clocks(self, key: str, adopted: Mapping[int, int]) -> None:
        """A shard's open clock when each of these epochs came to it, by number; at least one.

        A failure's record has the highest of the epoch that repaired it, be it told when training has long
        gone on; of a shard that does not know that one any more, of the next that it knows.
        """
        self._heard[key] = adopted
        for failure in self._loading:
            self._add_clock(failure, key, adopted)

    def _add_clock(self, failure: int, key: str, adopted: Mapping[int, int]) -> None:
        record = self._records[failure]
        untold = self._untold.get(failure, set())
        number = min((number for number in adopted if number >= record.epoch), default=0)
        if not number or key not in untold:
            return
        untold.remove(key)
        if adopted[number] > record.clock:
            self._put(replace(record, clock=adopted[number]))

    # --- reports

    def awaiting_record(self, report: RerouteReport) -> int:
        """Number of the record to which this report belongs.

        0: it was reported already, or the epoch answers no failure.
        """
        record = self._find_awaiting(report)
        return record.number if record is not None else 0

    def add_report(self, report: RerouteReport, now: float) -> None:
        """One that :meth:`awaiting_record` does not know changes no record of its own epoch."""
        if report.first:  # a new leader takes in whoever beats, perhaps epochs before that worker has begun
            for earlier in self.records:
                if earlier.epoch < report.epoch and report.worker in earlier.waiting:
                    self._put(self._without_waiting(earlier, {report.worker}, now))
        record = self._find_awaiting(report)
        if record is None:
            return
        cost = WorkerReport(report.worker, count_lost_pushes(report.lost), report.resent, report.delta)
        record = self._without_waiting(record, {report.worker}, now).with_reports([cost])
        known = {name for name, blocks in record.sources.items() if blocks}
        can_tell = self._job.consistency == "bsp" or known == {SOURCE_NAMES[BlockSource.WORKER]}
        exact = can_tell and 0 < sum(record.sources.values()) <= record.exact_blocks
        self._put(replace(record, delta_exact=exact))

    def _find_awaiting(self, report: RerouteReport) -> FailureRecord | None:
        for record in self._records.values():
            if record.epoch == report.epoch and report.worker in record.waiting:
                return record
        return None

    def _without_waiting(self, record: FailureRecord, gone: set[str], now: float | None) -> FailureRecord:
        """These workers have reported, or will not."""
        waiting = tuple(key for key in record.waiting if key not in gone)
        seconds = 0.0 if waiting else self._seconds_since(record.number, now)
        return replace(record, waiting=waiting, settle_seconds=seconds)


def _name(key: str) -> str:
    return key.partition("@")[0]


def _owns_blocks(epoch: Epoch, shard: Member) -> bool:
    return any(len(ids) for ids in epoch.owned_by(shard.key).values())


def _unread_saves(epoch: Epoch) -> tuple[str, ...]:
    """What a recovery had to leave out since it cannot be read any more, in words: blocks come back older."""
    sources = {group.source for group in epoch.moved}
    if not epoch.resave or not sources & {BlockSource.OBJECT, BlockSource.INITIAL}:
        return ()
    if not epoch.manifest:
        return ("nothing that was saved can be read: back to x(0)",)
    return (f"manifest {epoch.manifest} leaves out what was saved later and cannot be read",)


def _seconds_until_allowed(failure: MemberFailure) -> float:
    return max(0.0, failure.report.detect_seconds) + failure.wait_seconds
