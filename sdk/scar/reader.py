"""Looking at a job's tables without being part of it: :func:`connect`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self, overload

import numpy as np

from scar._client.cluster_view import ClusterView
from scar._client.core.pull_buffer import PullBuffer
from scar._client.pull_requests import Names, PullRequest, TableIds, Values
from scar._client.pulls import Puller, PullReply
from scar._client.recovery_client import EpochFollower, RecoveryClient
from scar.errors import ClockPassed, DeadlineExceeded, InvalidRequest, ScarError, StaleEpoch, Temporary
from scar.snapshots import ClockChoice, Snapshot
from scar.tables import Job
from scar.wire.transport import Backoff, Deadline, ensure_not_forked

TIMEOUT_SECONDS = 60.0


class Reader:
    """Looks at a job's tables without being part of it."""

    def __init__(self, job: Job, recovery: RecoveryClient, timeout: float) -> None:
        self.job = job
        self._timeout = timeout
        self._view = ClusterView(job)
        self._view.follow_epoch(recovery.wait_for_epoch(0, Deadline(timeout)))
        self._opened = 0  # clock of the shard that has answered last
        self._puller = Puller(self._view, None, self._note_reply)
        self._pid = os.getpid()
        self._follower = EpochFollower(self._view, recovery, self._view.follow_epoch)

    @property
    def epoch(self) -> int:
        """Number of the newest epoch that this reader follows."""
        return self._view.number

    @overload
    def pull(self, tables: str, ids: TableIds = None, rows: TableIds = None) -> Values: ...

    @overload
    def pull(
        self, tables: list[str] | tuple[str, ...], ids: TableIds = None, rows: TableIds = None
    ) -> dict[str, Values]: ...

    def pull(self, tables: Names, ids: TableIds = None, rows: TableIds = None) -> Values | dict[str, Values]:
        """As :meth:`Worker.pull`, of values as they are now."""
        ensure_not_forked(self._pid)
        request = PullRequest(self.job, tables, ids, rows)
        self._puller.pull(request.wants, 0, Deadline(self._timeout))
        values: Values | dict[str, Values] = request.values()
        return values

    def snapshot(self, tables: Sequence[str] | None = None, *, clock: int | None = None) -> Snapshot:
        """All values of these tables (default: all) at exactly one clock, while training goes on.

        ``clock``: this one, waited for; default: the next that all shards can say. Needs consistency="bsp",
        else :class:`InvalidRequest`. Raises :class:`ClockPassed` for a ``clock`` that is over, and
        :class:`DeadlineExceeded`.
        """
        ensure_not_forked(self._pid)
        names = list(tables) if tables is not None else [table.name for table in self.job.tables]
        choice = ClockChoice(clock)
        deadline = Deadline(self._timeout)
        backoff = Backoff()
        last: ScarError | None = None
        while not deadline.expired:
            self._view.check_failure()
            one_block = PullBuffer(self.job.tables[0], np.zeros(1, np.uint32))
            self._puller.pull([one_block], 0, deadline)
            chosen = choice.next_clock(self._opened)
            request = PullRequest(self.job, names)
            epoch = self._view.number
            try:
                number = self._puller.pull_exact(request.wants, chosen, deadline)
                return Snapshot(self.job.name, chosen, number, request.values())
            except ClockPassed as error:
                if clock is not None:
                    raise
                choice.note_passed()
                last = error
            except (Temporary, StaleEpoch, DeadlineExceeded) as error:
                choice.note_silence()
                last = error
                self._view.wait_beyond(epoch, min(backoff.next(), deadline.remaining))
        raise deadline.exceeded(f"{', '.join(names)} at one clock", last)

    def _note_reply(self, _: str, reply: PullReply) -> None:
        self._opened = reply.clock

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
