"""Failure records in the store. None is ever overwritten; what several authors wrote is merged when it is
read.

    ledger/00000003/00000002-0123456789ab         # failure 3: version 2 of this recovery coordinator
    ledger/00000003/lost-worker-0@6c2f0a91b7de    # which pushes this worker lost: written once, rarely read
    ledger/00000003/blocks-<sha256>               # of which blocks: once for all who lost pushes of them

A leader that was paused may write after its successor, and a put that timed out may arrive after a newer one.
So each coordinator creates versions of its own, and every record only grows: a reader that has all of them
has everything that anybody was told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from scar.errors import AlreadyExists, ObjectNotFound, StoreUnavailable
from scar.v1.recovery_pb2 import (
    FailureRecord,
    ListFailuresReply,
    ListFailuresRequest,
    LostBlocks,
    LostPushes,
    LostReport,
)
from scar_runtime.failure_records import merge_records
from scar_runtime.store import Store
from scar_runtime.store.failure_codec import failure_from_proto, failure_to_proto
from scar_runtime.store.layout import (
    LEDGER,
    failure_key,
    failure_version,
    folder,
    lost_blocks_key,
    lost_key,
    lost_prefix,
)
from scar_runtime.store.records import create_record, get_record

READS = 8  # attempts to read versions that their author replaces meanwhile


class FailureLog:
    """The failure records of one job. ``store`` is the job's. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._versions: dict[int, set[str]] = {}  # failure -> keys of the versions that are known to be there

    def read(self, lost: bool = False) -> list[FailureRecord]:
        """All records, ascending. ``lost``: with the pushes that are gone. Raises what the store raises."""
        for _ in range(READS):
            with suppress(ObjectNotFound):  # a newer version has just taken its place
                records = self._read_records()
                for record in records if lost else ():
                    record.lost.extend(self.lost(record.number))
                return records
        raise StoreUnavailable("the ledger changes faster than it can be read")

    def _read_records(self) -> list[FailureRecord]:
        found: dict[int, set[str]] = {}
        for key in self._store.list(folder(LEDGER)):
            if version := failure_version(key):
                found.setdefault(version[0], set()).add(key)
        records = [self._read_versions(sorted(keys)) for _, keys in sorted(found.items())]
        self._versions = found
        return records

    def _read_versions(self, keys: Sequence[str]) -> FailureRecord:
        return merge_versions([get_record(self._store, key, FailureRecord) for key in keys])

    def lost(self, number: int) -> list[LostReport]:
        """Which pushes are gone, by worker. Raises what the store raises."""
        keys = self._store.list(lost_prefix(number))
        reports = [get_record(self._store, key, LostReport) for key in keys]
        blocks: dict[str, bytes] = {}
        for entry in (entry for report in reports for entry in report.lost):
            if entry.blocks not in blocks:
                blocks[entry.blocks] = get_record(self._store, entry.blocks, LostBlocks).block_ids
            entry.block_ids = blocks[entry.blocks]
        return reports

    def write_lost(self, number: int, worker: str, lost: Iterable[LostPushes]) -> None:
        """Durable when it returns. What a worker lost in one epoch is always the same, whoever takes its
        report.
        """
        report = LostReport(worker=worker)
        for one in lost:
            key = lost_blocks_key(number, hashlib.sha256(one.block_ids).hexdigest())
            self._create_once(key, LostBlocks(block_ids=one.block_ids))
            report.lost.add(table=one.table, after=one.after, upto=one.upto, blocks=key)
        if report.lost:
            self._create_once(lost_key(number, worker), report)

    def _create_once(self, key: str, message: Message) -> None:
        with suppress(AlreadyExists):
            create_record(self._store, key, message)

    def write(self, record: FailureRecord, author: str) -> None:
        """Durable when it returns. The versions that were read or written before are in it, and go."""
        known = self._versions.setdefault(record.number, set())
        version = max((_version_of(key) for key in known), default=0)
        while True:
            version += 1
            key = failure_key(record.number, version, author)
            try:
                create_record(self._store, key, record)
                break
            except AlreadyExists:  # from an attempt whose answer was lost
                known.add(key)
        for old in sorted(known):
            with suppress(StoreUnavailable):  # costs space until the record is written again
                self._store.delete(old)
                known.remove(old)
        known.add(key)


def list_failures(
    ask: Callable[[ListFailuresRequest], ListFailuresReply], after: int = 0, lost: bool = False
) -> list[FailureRecord]:
    """All records of a higher number, page by page. ``lost``: with the pushes that are gone."""
    found: list[FailureRecord] = []
    more = True
    while more:
        reply = ask(ListFailuresRequest(after=found[-1].number if found else after, lost=lost))
        found += reply.failures
        more = reply.more and bool(reply.failures)
    return found


def _version_of(key: str) -> int:
    found = failure_version(key)
    return found[1] if found else 0


def merge_versions(records: Sequence[FailureRecord]) -> FailureRecord:
    """What all versions of one record know together; the same in whatever order they come."""
    return failure_to_proto(merge_records([failure_from_proto(record) for record in records]))
