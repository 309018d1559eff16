"""Looking at a job's tables without being part of it: :func:`connect`."""

from __future__ import annotations

import os
from typing import Self, overload

from scar._client.cluster_view import ClusterView
from scar._client.pull_requests import Names, PullRequest, TableIds, Values
from scar._client.pulls import Puller
from scar._client.recovery_client import EpochFollower, RecoveryClient
from scar.errors import InvalidRequest, ScarError
from scar.tables import Job
from scar.wire.transport import Deadline, ensure_not_forked

TIMEOUT_SECONDS = 60.0


class Reader:
    """Looks at a job's tables without being part of it."""

    def __init__(self, job: Job, recovery: RecoveryClient, timeout: float) -> None:
        self.job = job
        self._timeout = timeout
        self._view = ClusterView(job)
        self._view.follow_epoch(recovery.wait_for_epoch(0, Deadline(timeout)))
        self._puller = Puller(self._view, None)
        self._pid = os.getpid()
        self._follower = EpochFollower(self._view, recovery, self._view.follow_epoch)

    @property
    def epoch(self) -> int:
        """Number of the newest epoch that this reader follows."""
        return self._view.number

    @overload
    def pull(self, tables: str, ids: TableIds = None) -> Values: ...

    @overload
    def pull(self, tables: list[str] | tuple[str, ...], ids: TableIds = None) -> dict[str, Values]: ...

    def pull(self, tables: Names, ids: TableIds = None) -> Values | dict[str, Values]:
        """As :meth:`Worker.pull`, of values as they are now."""
        ensure_not_forked(self._pid)
        request = PullRequest(self.job, tables, ids)
        self._puller.pull(request.wants, 0, Deadline(self._timeout))
        values: Values | dict[str, Values] = request.values()
        return values

    def close(self) -> None:
        """Stop all threads and connections; later calls raise :class:`InvalidRequest`."""
        self._view.fail(InvalidRequest("the reader is closed"))
        self._follower.close()
        self._puller.close()
        self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(recovery: str, *, timeout: float = TIMEOUT_SECONDS) -> Reader:
    """Read the tables of the cluster whose recovery coordinator is at ``recovery`` ("host:port").

    ``timeout``: seconds for one operation. Raises :class:`DeadlineExceeded` when no job is started in time.
    """
    client = RecoveryClient(recovery)
    try:
        return Reader(client.wait_for_job(Deadline(timeout)), client, timeout)
    except ScarError:
        client.close()
        raise
