"""Training by a function of the calling program: follow it until the model is saved, and take the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scar.callbacks import TrainingCallback
from scar.errors import DeadlineExceeded, TrainingFailed
from scar.keyed_rows import KeyedValues
from scar.placement import Role
from scar.reader import connect
from scar.v1 import types_pb2
from scar_admin.status import ClusterStatus, ask_from
from scar_admin.tracebacks import failure_reason
from scar_local.callback_feed import CallbackFeed
from scar_local.function_source import FunctionSource
from scar_local.worker_output import WorkerOutput
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto

if TYPE_CHECKING:
    from scar_local.cluster import LocalCluster

LOOK_PAUSE = 0.1  # seconds between two looks
LEFT = "all workers have ended before their work was done: they were stopped, or called exit(0)"

Watch = Callable[[ClusterStatus], object]
Callbacks = Sequence[TrainingCallback]


@dataclass(frozen=True)
class TrainingResult:
    """What a training has come to.

    ``model``: each table by name, in its shape. ``history``: the loss of each clock that has one;
    ``metrics``: what workers logged, by clock and name. ``ledger``: a record for each failure, with what it
    cost.
    """

    model: Mapping[str, Any]
    history: Mapping[int, float]
    metrics: Mapping[int, Mapping[str, float]]
    ledger: tuple[FailureRecord, ...]


class FunctionTraining:
    """``workers`` of ``cluster`` that have been started with ``file``, which was made of ``source``."""

    def __init__(
        self, cluster: LocalCluster, source: FunctionSource, file: Path, workers: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._file = file
        self._workers = workers
        self._output = WorkerOutput(cluster.directory / "logs")
        self._losses: dict[int, float] = {}
        self._metrics: dict[int, Mapping[str, float]] = {}

    def await_result(self, timeout: float, watch: Watch | None, callbacks: Callbacks = ()) -> TrainingResult:
        """Return when all workers have ended and the model is saved. ``watch`` gets every look until then,
        and ``callbacks`` what is new in it.

        Raises :class:`TrainingFailed` with the traceback of the first worker whose function has raised, and
        :class:`DeadlineExceeded` after ``timeout`` seconds.
        """
        feed = CallbackFeed(callbacks)
        try:
            return self._follow(timeout, (feed.take, *([watch] if watch is not None else [])))
        finally:
            feed.close()

    def _follow(self, timeout: float, watches: Sequence[Watch]) -> TrainingResult:
        deadline = time.monotonic() + timeout
        since = 0
        while not self._all_ended():
            status = self._look(watches)
            since = max(since, status.number)
            _check_time(deadline, "the end of the training", status)
        self._show_output(last=True)
        while (status := self._look(watches)).finished is None:
            if status.left_early(since):
                raise TrainingFailed(LEFT)
            _check_time(deadline, "the model to be saved", status)
        with connect(self._cluster.endpoints.recovery_address) as reader:
            values = reader.pull([table.name for table in reader.job.tables])
        return TrainingResult(
            {name: _copy_values(value) for name, value in values.items()},
            dict(sorted(self._losses.items())),
            dict(sorted(self._metrics.items())),
            tuple(failure_from_proto(failure) for failure in status.failures),
        )

    def _all_ended(self) -> bool:
        """Raises :class:`TrainingFailed` for a worker that has failed; one that was killed has not."""
        workers = [process for process in self._cluster.processes() if process.name in self._workers]
        for process in workers:
            if process.final and (process.code or 0) > 0:
                self._show_output(last=True)
                reason = self._reason(process.name)
                raise TrainingFailed(f"{process.name} ended with exit code {process.code}\n{reason}")
        return all(process.final for process in workers)

    def _look(self, watches: Sequence[Watch]) -> ClusterStatus:
        time.sleep(LOOK_PAUSE)
        self._show_output()
        status = self._cluster.status(ask_from(self._losses))
        self._losses.update(status.losses)
        self._metrics.update(status.metrics)
        for watch in watches:
            watch(status)
        return status

    def _show_output(self, last: bool = False) -> None:
        """What workers print appears here, where a person looks; in a notebook, below the cell."""
        for worker, line in self._output.lines(self._workers, last):
            sys.stdout.write(f"{worker} | {line}\n")

    def _reason(self, worker: str) -> str:
        logs = self._cluster.directory / "logs"
        lines = [
            line
            for kind in ("log", "out")
            for line in (logs / f"{worker}.{kind}").read_text(errors="replace").splitlines()
        ]
        return self._source.restore_places(failure_reason(lines, str(self._file)), self._file)


def _copy_values(values: Any) -> Any:
    """That its user may change."""
    return (
        KeyedValues(values.keys.copy(), values.values.copy())
        if isinstance(values, KeyedValues)
        else np.array(values)
    )


def nobody_trains(status: ClusterStatus) -> bool:
    """No worker is known any more: one that was killed is known until it is found dead."""
    recovery = status.recovery
    return recovery is not None and recovery.leader and Role.WORKER not in map(_role_of, recovery.members)


def _role_of(member: types_pb2.Member) -> int:
    return int(member.role)


def _check_time(deadline: float, what: str, status: ClusterStatus) -> None:
    if time.monotonic() > deadline:
        raise DeadlineExceeded(f"waited without result for {what}", "; ".join(status.problems))
