"""What failures cost: records of the ledger, and how what several leaders wrote comes together. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

UNKNOWN_NORM = -1.0
UNKNOWN_SECONDS = -1.0
MAX_COUNT = (1 << 63) - 1


@dataclass(frozen=True)
class TableDelta:
    """What a worker compared of one table. ``squared``: summed over the ``blocks`` that were compared.

    ``behind``: they may not be the values that were lost: it had finished a clock since it pulled them, or
    they had been put back before. ``sent``: it has put them back itself, so nobody else compares them.
    """

    table: str
    squared: float
    blocks: int
    behind: bool = False
    sent: bool = False


@dataclass(frozen=True)
class WorkerReport:
    """What a failure cost one worker. ``worker``: member key.

    ``lost_pushes``: acknowledged pushes of which at least one block was lost; ``resent_pushes``: that went to
    new owners.
    """

    worker: str
    lost_pushes: int = 0
    resent_pushes: int = 0
    delta: tuple[TableDelta, ...] = ()


@dataclass(frozen=True)
class FailureRecord:
    """What one failure cost. Fields as in ``scar.v1.FailureRecord``; durations in seconds.

    ``epoch`` 0: nothing has repaired it yet. ``sources``: kind of source -> blocks. ``detect_seconds`` -1:
    nobody had noticed the silence before a successor or a new leader found the member dead;
    ``suspect_seconds`` is a part of it. ``load_seconds`` 0: its blocks are not served yet;
    ``settle_seconds``: workers have yet to report; ``return_seconds``: who died is not back; these three
    begin with the epoch. Durations of -1: a leader ended before it had written them down.
    ``waiting``: keys of workers that have not reported yet. ``rollback``: why a worker has asked for it;
    empty: none has. ``replayed``: blocks came from memory at a clock of their own, from which on pushes are
    done again; they are compared as of that clock.
    """

    number: int
    members: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    strategy: str = ""
    epoch: int = 0
    manifest: int = 0
    clock: int = 0
    lost_blocks: int = 0
    total_blocks: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    detect_seconds: float = UNKNOWN_SECONDS
    wait_seconds: float = 0.0
    commit_seconds: float = 0.0
    load_seconds: float = 0.0
    delta_norm: float = 0.0
    delta_exact: bool = False
    lost_pushes: int = 0
    resent_pushes: int = 0
    created: float = 0.0
    waiting: tuple[str, ...] = ()
    reports: tuple[WorkerReport, ...] = ()
    damage: tuple[str, ...] = ()
    rollback: str = ""
    restored_clock: int = 0
    replayed: bool = False
    suspect_seconds: float = UNKNOWN_SECONDS
    settle_seconds: float = 0.0
    return_seconds: float = 0.0

    @property
    def exact_blocks(self) -> int:
        """Of which a worker had the values that were lost, if the job is synchronous."""
        if self.delta_norm == UNKNOWN_NORM:
            return 0
        return sum(delta.blocks for delta in best_comparisons(self.reports) if not delta.behind)

    def with_members(
        self, members: Sequence[str], evidence: Sequence[str], damage: Sequence[str] = ()
    ) -> FailureRecord:
        """Names members and damage that it did not name yet."""
        fresh = {key: words for key, words in zip(members, evidence, strict=False) if key not in self.members}
        if not fresh and not damage:
            return self
        return replace(
            self,
            members=(*self.members, *fresh.keys()),
            evidence=(*self.evidence, *fresh.values()),
            damage=tuple(dict.fromkeys((*self.damage, *damage))),
        )

    def with_reports(self, reports: Iterable[WorkerReport]) -> FailureRecord:
        """Adds reports of workers that had not reported, and the sums over all reports."""
        known = {report.worker for report in self.reports}
        together = (*self.reports, *(report for report in reports if report.worker not in known))
        best = best_comparisons(together)
        norm = math.sqrt(sum(delta.squared for delta in best)) if best else self.delta_norm
        lost = _total(report.lost_pushes for report in together)
        # such a copy is compared as of its own clock: what was lost after that nobody can compare
        unknown = bool(lost and self.replayed)
        return replace(
            self,
            reports=together,
            lost_pushes=lost,
            resent_pushes=_total(report.resent_pushes for report in together),
            delta_norm=UNKNOWN_NORM if unknown else norm,
            delta_exact=self.delta_exact and not unknown,
        )


def _total(counts: Iterable[int]) -> int:
    """Of what workers have said of themselves: no sum of theirs is too large for a record."""
    return min(sum(counts), MAX_COUNT)


def best_comparisons(reports: Iterable[WorkerReport]) -> list[TableDelta]:
    """For each table the comparison of most blocks, and all of blocks that workers have put back themselves.

    Else workers compare the same blocks: of each table the report that compared most counts, never the sum
    over workers; of equals the one that had pulled last.
    """
    best: dict[str, TableDelta] = {}
    sent = []
    for delta in _valid_deltas(reports):
        known = best.get(delta.table)
        if delta.sent:
            sent.append(delta)
        elif known is None or _rank(delta) > _rank(known):
            best[delta.table] = delta
    return [*best.values(), *sent]


def _rank(delta: TableDelta) -> tuple[int, bool, float]:
    return delta.blocks, not delta.behind, delta.squared


def _valid_deltas(reports: Iterable[WorkerReport]) -> Iterator[TableDelta]:
    for report in reports:
        for delta in report.delta:
            if delta.blocks and 0 <= delta.squared < math.inf:
                yield delta


def merge_records(records: Sequence[FailureRecord]) -> FailureRecord:
    """What all versions of one record know together; the same in whatever order they come."""
    ordered = sorted(records, key=_sort_key) if len(records) > 1 else records
    best = max(reversed(ordered), key=lambda one: (_measured_seconds(one), bool(one.epoch)))
    for other in ordered:
        if other.epoch and not best.epoch:
            best = replace(best, epoch=other.epoch, manifest=other.manifest, sources=other.sources)
        # a worker may be named by later versions only: it died while the blocks of others waited
        best = best.with_members(other.members, other.evidence, other.damage)
        best = replace(
            best,
            clock=max(best.clock, other.clock),
            restored_clock=max(best.restored_clock, other.restored_clock),
            replayed=best.replayed or other.replayed,
            load_seconds=_known_seconds(best.load_seconds, other.load_seconds),
            settle_seconds=_known_seconds(best.settle_seconds, other.settle_seconds),
            return_seconds=_known_seconds(best.return_seconds, other.return_seconds),
            delta_exact=best.delta_exact or other.delta_exact,
        )
        best = best.with_reports(other.reports)
    repaired = [set(one.waiting) for one in records if one.epoch]
    waiting = set.intersection(*repaired) if repaired else set()
    waiting -= {one.worker for one in best.reports}
    settled = best.settle_seconds or (UNKNOWN_SECONDS if best.epoch and not waiting else 0.0)
    return replace(best, waiting=tuple(sorted(waiting)), settle_seconds=settled)


def _measured_seconds(record: FailureRecord) -> float:
    """Above 0: by who answered the failure, not by a successor that has read of it."""
    return sum(max(0.0, one) for one in (record.detect_seconds, record.wait_seconds, record.commit_seconds))


def _known_seconds(one: float, other: float) -> float:
    """Of two versions of a record: a duration, or that it is not known, rather than that it is not over."""
    return max(one, other) or min(one, other)


def _sort_key(record: FailureRecord) -> str:
    return repr(replace(record, sources=dict(sorted(record.sources.items()))))
