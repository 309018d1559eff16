"""Looks at a cluster again and again, and makes of it what viewers are sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol

from scar.errors import ScarError
from scar.v1.recovery_pb2 import HistorySample
from scar_admin.log_text import LogReader
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_console.block_map import BlockMap
from scar_console.log_ring import LogRing, read_line
from scar_console.map_reader import BlockMapReader
from scar_console.moments import moments_document
from scar_console.page_model import MAX_FAILURES, SeenBefore, page_model
from scar_console.page_update import PageUpdate, curve_document, encode_json
from scar_console.run_history import RunHistory
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store

NO_MAP = BlockMap()
STEP_LINES = 60  # of logs that a look sends at most, the newest
NO_LOGS = (
    "The logs of these members cannot be read from here: see them where they run, or use `scar console --on"
    " kubernetes`"
)


class StatusReader(Protocol):
    """Such as a :class:`scar_admin.observer.ClusterObserver`."""

    def __enter__(self) -> StatusReader: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def read(self, since_clock: int = 0) -> ClusterStatus: ...


class WatchedCluster(Protocol):
    """A cluster that can be looked at. ``can_break``: what may be done to its members: "kill", "freeze",
    "cut"; empty: it is only looked at. ``cannot_break``: why not the rest, and what would allow it.
    """

    can_break: tuple[str, ...]
    cannot_break: tuple[str, ...]

    def observer(self) -> StatusReader: ...

    def processes(self) -> tuple[ProcessInfo, ...]: ...

    def ended(self) -> bool: ...

    def store(self) -> Store | None:
        """With its jobs; None: it cannot be read from here. Raises :class:`scar.errors.ScarError`."""
        ...

    def logs(self) -> LogReader | None:
        """Of its members; None: they cannot be read from here."""
        ...

    def break_member(self, how: str, name: str) -> str:
        """Do this to a shard or a worker; returns what was done, in words.

        Raises :class:`scar.errors.ConfigError` for what is none, or does not run.
        """
        ...


@dataclass(frozen=True)
class ShownBefore:
    """What the last look sent. ``line``: number of the newest of the logs."""

    state: dict[str, Any] = field(default_factory=dict)
    blocks: BlockMap | None = None
    samples: tuple[HistorySample, ...] = ()
    line: int = 0


class RunView:
    """Bounded, however long the run is. For one thread at a time; two others may call :meth:`read_saved` and
    :meth:`read_logs`.
    """

    def __init__(self, cluster: WatchedCluster, observer: StatusReader) -> None:
        self._cluster = cluster
        self._observer = observer
        self._run = RunHistory()
        self._status = ClusterStatus()  # as it was seen last
        self._saved = BlockMapReader(cluster.store)
        self._map = NO_MAP
        self._earlier: ProgressHistory | None = None  # of the run, before anybody looked
        self._shown = ShownBefore()
        self._logs = cluster.logs()
        self._log_problem = "" if self._logs else NO_LOGS
        self._lines = LogRing()

    def read_saved(self) -> None:
        """Ask the store what is saved, for the looks that follow. It may take its time, beside them."""
        saved = self._saved
        found = saved.read(self._status)
        earlier = saved.read_history(self._status)
        if saved is not self._saved:  # another run has begun meanwhile
            return
        if found is not None:
            self._map = found
        if earlier is not None:
            self._earlier = earlier

    def read_logs(self) -> None:
        """Take what members have written since. It may take its time, beside the looks."""
        if self._logs is None:
            return
        try:
            self._lines.add([read_line(one) for one in self._logs.read()])
            self._log_problem = ""
        except ScarError as error:
            self._log_problem = f"{error.message}. {error.next_step}"

    def look(self) -> PageUpdate:
        """Ask all services. One that is silent is a problem on the page, never an error."""
        ended = self._cluster.ended()
        status = self._observer.read(since_clock=self._run.ask_from)
        another = not self._run.is_of(status)
        if another:
            self._run = RunHistory(job=status.job.name if status.job else "")
            self._saved = BlockMapReader(self._cluster.store)
            self._map = NO_MAP
            self._earlier = None
            self._shown = ShownBefore()
            status = self._observer.read()
        since = self._remember(status)
        blocks = self._map if self._map.job == self._run.job else NO_MAP
        rates = self._run.rates.note(status.shards, time.monotonic())
        before = SeenBefore(self._run.healed, self._run.costs, rates, blocks.oldest)
        state = page_model(status, self._cluster.processes(), before)
        state |= {"can_break": self._cluster.can_break, "cannot_break": self._cluster.cannot_break}
        state |= {"ended": ended, "log_problem": self._log_problem}
        return self._update(state, 0 if another else since, blocks)

    def _update(self, state: dict[str, Any], since: int, blocks: BlockMap) -> PageUpdate:
        """Everything, and what is new; ``since``: from which clock on the curve has changed, -1: nowhere."""
        lines = self._lines.newest()
        samples = tuple(self._run.progress.samples)
        whole = {
            "state": state,
            "curve": self._curve_from(0),
            "metrics": self._metrics_from(dict.fromkeys(self._run.progress.metrics.curves, 0)),
            "moments": moments_document(samples),
            "blocks": _map_document(blocks),
            "logs": [asdict(one) for one in lines],
        }
        shown = self._shown
        step = {
            "state": _changed_parts(state, shown.state),
            "curve": self._curve_from(since) if since >= 0 else None,
            "metrics": self._metrics_from(self._run.fresh_metrics),
            "moments": moments_document(samples, shown.samples),
            "blocks": whole["blocks"] if blocks is not shown.blocks else None,
            "logs": [asdict(one) for one in lines if one.number > shown.line][-STEP_LINES:],
        }
        newest = max((one.number for one in lines), default=0)
        self._shown = ShownBefore(state, blocks, samples, newest)
        return PageUpdate(encode_json(whole), encode_json(step), state["ended"])

    def _remember(self, status: ClusterStatus) -> int:
        """Returns from which clock on the curve has changed; -1: it has not."""
        self._status = status
        earlier, self._earlier = self._earlier, None
        self._run.note_failures(status, status.failures[-MAX_FAILURES:])
        since = self._run.note_look(status, time.time())
        return 0 if earlier is not None and self._run.note_earlier(earlier) else since

    def _curve_from(self, clock: int) -> dict[str, Any]:
        return curve_document(self._run.progress.curve, clock)

    def _metrics_from(self, clocks: dict[str, int]) -> dict[str, Any]:
        curves = self._run.progress.metrics.curves
        return {name: curve_document(curves[name], clock) for name, clock in clocks.items()}


def _changed_parts(state: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in before or before[name] != value}


def _map_document(drawn: BlockMap) -> dict[str, Any]:
    return {
        "manifest": drawn.manifest,
        "blocks": drawn.blocks,
        "width": drawn.width,
        "cells": drawn.cells,
        "epoch": drawn.epoch,
        "moved": drawn.moved,
    }


@contextmanager
def live_view(cluster: WatchedCluster) -> Iterator[RunView]:
    """As long as it lasts."""
    with cluster.observer() as observer:
        yield RunView(cluster, observer)
