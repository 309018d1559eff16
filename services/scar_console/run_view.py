"""Looks at a cluster again and again, and remembers what the page shows of the past: losses, recoveries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import LATE_CLOCKS, ClusterStatus, ProcessInfo
from scar_console.loss_curve import LossCurve
from scar_console.page_model import MAX_FAILURES, is_repaired, page_model


class StatusReader(Protocol):
    """Such as a :class:`scar_admin.observer.ClusterObserver`."""

    def __enter__(self) -> StatusReader: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def read(self, since_clock: int = 0) -> ClusterStatus: ...


class WatchedCluster(Protocol):
    """A cluster that can be looked at. ``can_kill``: and broken."""

    can_kill: bool

    def observer(self) -> StatusReader: ...

    def processes(self) -> tuple[ProcessInfo, ...]: ...

    def ended(self) -> bool: ...

    def kill(self, name: str) -> str:
        """Kill a shard or a worker; returns what was done, in words.

        Raises :class:`scar.errors.ConfigError` for what is none, or does not run.
        """
        ...


@dataclass(frozen=True)
class PageUpdate:
    """One look as JSON. ``whole``: for who has seen nothing; ``step``: for who has seen the look before.

    ``ended``: there will be no other.
    """

    whole: bytes
    step: bytes
    ended: bool = False


@dataclass
class RunHistory:
    """What is remembered of one run, bounded. ``epoch``, ``newest``: highest epoch and clock with a loss.

    ``repaired``: failures that were so at the last look; None: there was none. ``healed``: the clock at which
    a failure was first seen repaired, by number.
    """

    job: str = ""
    epoch: int = 0
    newest: int = -1
    curve: LossCurve = field(default_factory=LossCurve)
    healed: dict[int, int] = field(default_factory=dict)
    repaired: frozenset[int] | None = None

    def is_of(self, status: ClusterStatus) -> bool:
        """Numbers of epochs only grow; where one is lower, the job was removed and began anew."""
        return status.job is None or (status.job.name == self.job and not 0 < status.number < self.epoch)

    def note_repairs(self, failures: Sequence[FailureRecord], clock: int) -> None:
        """Those of the first look may have been repaired at any clock before."""
        repaired = {record.number: record.clock for record in failures if is_repaired(record)}
        if self.repaired is not None:
            fresh = {number: max(clock, at) for number, at in repaired.items() if number not in self.repaired}
            self.healed = {number: at for number, at in (self.healed | fresh).items() if number in repaired}
        self.repaired = frozenset(repaired)


class RunView:
    """Bounded, however long the run is. For one thread at a time."""

    def __init__(self, cluster: WatchedCluster, observer: StatusReader) -> None:
        self._cluster = cluster
        self._observer = observer
        self._run = RunHistory()

    def look(self) -> PageUpdate:
        """Ask all services. One that is silent is a problem on the page, never an error."""
        ended = self._cluster.ended()
        status = self._observer.read(since_clock=max(0, self._run.newest - LATE_CLOCKS))
        another = not self._run.is_of(status)
        if another:
            self._run = RunHistory(job=status.job.name if status.job else "")
            status = self._observer.read()
        since = self._remember(status)
        state = page_model(status, self._cluster.processes(), self._run.healed)
        state |= {"can_kill": self._cluster.can_kill, "ended": ended}
        whole = _encode_json({"state": state, "curve": self._curve_from(0)})
        if another:
            return PageUpdate(whole, whole, ended)
        step = {"state": state, "curve": self._curve_from(since) if since >= 0 else None}
        return PageUpdate(whole, _encode_json(step), ended)

    def _remember(self, status: ClusterStatus) -> int:
        """Returns from which clock on the curve has changed; -1: it has not."""
        run = self._run
        run.epoch = max(run.epoch, status.number)
        run.newest = max(run.newest, status.loss_clock)
        run.note_repairs(status.failures[-MAX_FAILURES:], status.clock)
        return run.curve.add_losses(status.losses)

    def _curve_from(self, clock: int) -> dict[str, Any]:
        points = self._run.curve.points_from(clock)
        return {"from": clock, "clocks": [one[0] for one in points], "losses": [one[1] for one in points]}


def _encode_json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
