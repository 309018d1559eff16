"""The runs of a store as the store has them: finished, dead or under way, each by itself and side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scar.errors import ObjectNotFound, ScarError
from scar.v1.recovery_pb2 import FailureRecord, FinishedRecord, RecoveryStatus
from scar.v1.types_pb2 import Epoch, JobSpec
from scar_admin.status import ClusterStatus
from scar_console.moments import moments_document
from scar_console.page_model import SeenBefore, is_repaired, page_model
from scar_console.page_update import PageUpdate, curve_document, encode_json
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.job_records import read_job_spec
from scar_runtime.store.layout import (
    EPOCHS,
    FINISHED,
    HISTORY,
    JOB,
    LEDGER,
    epoch_key,
    finished_key,
    jobs_among,
    kind_of,
)
from scar_runtime.store.records import get_record, newest

MAX_RUNS = 20  # on one page, those that were seen last
SHOWN = (JOB, EPOCHS, LEDGER, FINISHED, HISTORY)  # kinds of keys that a run's page is made of


@dataclass(frozen=True)
class StoredRun:
    """One job. ``end``: None unless it is finished."""

    spec: JobSpec
    epoch: Epoch
    end: FinishedRecord | None
    failures: tuple[FailureRecord, ...]
    history: ProgressHistory

    @property
    def seen(self) -> float:
        """When somebody looked last, in seconds since 1970; 0: never."""
        return self.history.samples[-1].time if self.history.samples else 0.0


def read_run(root: Store, name: str) -> StoredRun:
    """Raises :class:`ScarError` for what is damaged, forged, or away."""
    store = root.under(name)
    number = newest(store, EPOCHS)
    epoch = get_record(store, epoch_key(number), Epoch) if number else Epoch()
    return StoredRun(
        read_job_spec(store),
        epoch,
        _read_end(store, epoch),
        tuple(FailureLog(store).read()),
        HistoryLog(store).read(),
    )


def _read_end(store: Store, epoch: Epoch) -> FinishedRecord | None:
    if not epoch.finished:
        return None
    try:
        return get_record(store, finished_key(epoch.finished), FinishedRecord)
    except ObjectNotFound:
        return None


def run_document(name: str, run: StoredRun, store: str) -> dict[str, Any]:
    """What the page shows of it: as of a live run, what the store knows."""
    points = run.history.curve.points_from()
    recovery = RecoveryStatus(leader=True, store=store, finished=run.end)
    status = ClusterStatus(recovery, run.spec, run.epoch, failures=run.failures, losses=dict(points))
    samples = run.history.samples
    clock = run.end.clock if run.end else samples[-1].clock if samples else 0
    return {
        "name": name,
        "error": "",
        "state": page_model(status, (), SeenBefore(_healed_clocks(run))) | {"clock": int(clock)},
        "curve": curve_document(run.history.curve),
        "metrics": {name: curve_document(one) for name, one in run.history.metrics.curves.items()},
        "moments": moments_document(samples),
        "lowest": min((loss for _, loss in points), default=None),
        "pace": run.history.clocks_per_second,
        "workers": int(samples[-1].workers) if samples else 0,
        "shards": int(samples[-1].shards) if samples else 0,
        "seen": run.seen,
    }


def _healed_clocks(run: StoredRun) -> dict[int, int]:
    """The open clock when all blocks of a failure were served again, as far as somebody looked."""
    found = {}
    for record in run.failures:
        if is_repaired(record):
            phases = (record.wait_seconds, record.commit_seconds, record.load_seconds)
            served = record.created + sum(max(0.0, phase) for phase in phases)
            found[record.number] = max(run.history.clock_at(served), int(record.clock))
    return found


class StoredRuns:
    """``root``: the store of all jobs. What has not changed is not read again."""

    def __init__(self, root: Store) -> None:
        self._root = root
        self._read: dict[str, tuple[frozenset[str], dict[str, Any]]] = {}  # by name: of which keys
        self._shown: dict[str, dict[str, Any]] = {}

    def look(self) -> PageUpdate:
        """A job that cannot be read is shown with the reason; raises nothing."""
        problem = ""
        try:
            self._read_changed()
        except ScarError as error:
            problem = f"the store {self._root.url} cannot be read: {error.message}"
        newest_first = sorted(self._read, key=lambda name: (-self._read[name][1]["seen"], name))
        runs = {name: self._read[name][1] for name in newest_first[:MAX_RUNS]}
        changed = [run for name, run in runs.items() if self._shown.get(name) != run]
        self._shown = runs
        head = {"store": self._root.url, "names": list(runs), "total": len(self._read), "problem": problem}
        return PageUpdate(
            encode_json(head | {"runs": list(runs.values())}), encode_json(head | {"runs": changed})
        )

    def read_saved(self) -> None:
        """There is nothing beside."""

    def read_logs(self) -> None:
        """Nor are there logs."""

    def _read_changed(self) -> None:
        keys = self._root.list("")
        found: dict[str, set[str]] = {name: set() for name in jobs_among(keys)}
        for key in keys:
            name, _, rest = key.partition("/")
            if name in found and kind_of(rest) in SHOWN:
                found[name].add(rest)
        self._read = {name: self._read_again(name, frozenset(of)) for name, of in found.items()}

    def _read_again(self, name: str, keys: frozenset[str]) -> tuple[frozenset[str], dict[str, Any]]:
        """If its keys are others than before. What could not be read is tried again the next time."""
        known = self._read.get(name)
        if known is not None and known[0] == keys:
            return known
        try:
            return keys, run_document(name, read_run(self._root, name), self._root.url)
        except ScarError as error:
            return frozenset(), {"name": name, "error": error.message, "seen": 0.0}


@contextmanager
def stored_view(root: Store) -> Iterator[StoredRuns]:
    yield StoredRuns(root)
