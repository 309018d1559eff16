"""What a user's training code holds: a :class:`Worker`, by :func:`scar.join`.

with scar.join("host:port", "worker-0") as worker:  # waits for the job and for all workers
    for clock in worker.clocks(limit=200, until=0.42):  # every worker stops at the same clock (BSP)
        x = data[worker.data_slice(len(data))]  # in every clock: it changes when workers come and go
        w = worker.pull("w")  # the whole table, read-only
        loss, gradient = step(x, w)
        worker.push("w", gradient)  # returns at once; the end of the clock waits for acknowledgements
        worker.report(loss)  # summed over the workers
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self, overload

import numpy as np
from numpy.typing import ArrayLike

from scar._client.client import Client
from scar._client.heartbeats import HeartbeatStream
from scar._client.loss_listener import Heard, hear_loss
from scar._client.pace import Pace
from scar._client.pull_requests import Names, PullFuture, PullRequest, Several, Short, TableIds, Values
from scar._client.push_requests import pack_tables
from scar._client.recovery_client import RecoveryClient
from scar.errors import DeadlineExceeded, Fenced, NonFinite, ScarError
from scar.event_log import EventRing
from scar.losses import EARLY_STOPPING, EVALUATIONS, LossReport
from scar.snapshots import Snapshot
from scar.stopping import Divergence, EarlyStopping, StopRules
from scar.wire.transport import Deadline, ensure_not_forked
from scar.worker_state import STATE_TABLE, WorkerState, ensure_declared, unpack_state

_log = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 600.0
LEAVE_SECONDS = 5.0
REPORT_SECONDS = 30.0  # for recovery to take what epochs cost a worker that has finished


class Worker:
    """A worker of the job. All methods belong to one thread; every error is a :class:`scar.errors.ScarError`.

    ``loss``: of the last closed clock with a loss that this worker has heard of, summed over workers; NaN
    before. ``loss_clock``: number of clocks that were closed then, so the loss is that of clock ``loss_clock
    - 1``; 0: none yet. ``loss_fraction``: of the data that it is of; below 1 only where the share of the dead
    is dropped.
    """

    def __init__(
        self,
        client: Client,
        recovery: RecoveryClient,
        heartbeats: HeartbeatStream | None,
        leave_timeout: float = START_TIMEOUT_SECONDS,
    ) -> None:
        self._joined = client
        self._recovery = recovery
        self._heartbeats = heartbeats
        self._leave_timeout = leave_timeout
        self._pid = os.getpid()
        self._report = LossReport(client.member.name)
        self._rules = StopRules(None, None, "ignore", client.job.consistency)
        self._step = 0
        self._stopping = False
        self._closed = False
        self.is_leaving = False  # the work is done, or given up
        self.job = client.job
        self.member = client.member

    @property
    def _client(self) -> Client:
        ensure_not_forked(self._pid)
        return self._joined

    # --- where it is

    @property
    def clock_number(self) -> int:
        """Clocks that this worker has finished, which is the number of the open one."""
        return self._client.finished

    @property
    def epoch(self) -> int:
        """Number of the newest epoch that this worker follows."""
        return self._client.view.number

    @property
    def rank(self) -> int:
        """Position among the workers that share the data, from 0."""
        return self._report.read_rank(self._client.view.epoch)

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Names in rank order. Who asks for :attr:`rank` and :attr:`world_size` deals the data by it."""
        return self._client.view.epoch.ranks

    @property
    def _own_rank(self) -> int:
        return self._client.view.epoch.rank(self.member.name)

    @property
    def world_size(self) -> int:
        """Number of workers that share the data: those of the epoch, and the dead whose seat is kept."""
        return self._report.read_world_size(self._client.view.epoch)

    @property
    def is_leader(self) -> bool:
        """First of the workers that live: for what one of them has to do."""
        return self._client.view.epoch.workers[:1] == (self.member,)

    @property
    def loss(self) -> float:
        return self._client.pulls.loss.loss if self._client.pulls.loss else math.nan

    @property
    def loss_clock(self) -> int:
        return self._client.pulls.loss.clock + 1 if self._client.pulls.loss else 0

    @property
    def loss_fraction(self) -> float:
        return self._client.pulls.loss.fraction if self._client.pulls.loss else 1.0

    @property
    def reroutes(self) -> int:
        """Epochs followed without a restart."""
        return self._client.reroutes

    @property
    def pace(self) -> Pace:
        """How fast it is, and what its time goes to: pull, compute, push and wait."""
        return self._client.pace

    @property
    def story(self) -> EventRing:
        """Epochs that it followed, what shards refused: `scar doctor --story worker-0`."""
        return self._client.state.story

    def data_slice(self, n: int) -> slice:
        """This worker's contiguous part of ``n`` examples. Ask in every clock: workers come and go.

        Within a clock it stays, as :attr:`rank` and :attr:`world_size` do. A clock has a loss only when every
        share of one deal has been reported.
        """
        return self._report.data_slice(self._client.view.epoch, n)

    # --- work
    def clocks(
        self,
        limit: int | None = None,
        until: float | None = None,
        *,
        stopping: EarlyStopping | None = None,
        on_nan: str = "ignore",
        divergence: Divergence | None = None,
    ) -> Iterator[int]:
        """Numbers of the clocks to work on, from the open one. Each is finished when the loop's body ends.

        ``limit``: clock to stop before. ``until``: stop when the loss (loss / fraction) is this low; BSP: all
        at the same clock. ``stopping``: the same without progress. ``on_nan``: when the loss is NaN or
        infinite, "stop" raises :class:`Diverged`, and "restore" has the job go back to what was saved before.
        ``divergence``: when it rises, too.
        """
        self._rules = StopRules(until, stopping, on_nan, self.job.consistency, self.clock_number, divergence)
        while not self._stopping and (limit is None or self.clock_number < limit):
            heard = hear_loss(self._client, self._rules) if self._rules.listens else Heard.GO_ON
            if heard is Heard.OVER:
                return
            if heard is Heard.GO_ON:
                yield self.clock_number
                self.clock()

    def evaluate(
        self, function: Callable[[Mapping[str, Values]], Mapping[str, float]], every: int
    ) -> Mapping[str, float]:
        """In the loop's body: every so many clocks the first living worker calls ``function`` with the tables
        and logs the metrics that it returns; the others get {} at once. :class:`scar.EarlyStopping` keeps the
        best model, where it has ``keep_best``.
        """
        if self.clock_number % every or not self.is_leader:
            return {}
        tables = self.pull([table.name for table in self.job.tables])
        metrics = function(tables)
        self.log({**metrics, EVALUATIONS: 1.0})
        self._rules.keep_best(metrics, Snapshot(self.job.name, self.clock_number, self.epoch, tables))
        return metrics

    @overload
    def pull(
        self, tables: str, ids: TableIds = None, rows: TableIds = None, bfloat16: Short = ()
    ) -> Values: ...

    @overload
    def pull(
        self, tables: Several, ids: TableIds = None, rows: TableIds = None, bfloat16: Short = ()
    ) -> dict[str, Values]: ...

    def pull(
        self, tables: Names, ids: TableIds = None, rows: TableIds = None, bfloat16: Short = ()
    ) -> Values | dict[str, Values]:
        """Read-only values of a table, in its shape, or a dict of several; change a ``.copy()`` of them.
        ``rows``: these of the first axis, in any order. ``ids``: these blocks, rows packed. ``bfloat16``:
        names of float32 tables that come rounded, in half the bytes, and are no exact copy.
        """
        client = self._client
        with client.pace.time_pull() as timed:
            request = PullRequest(self.job, tables, ids, rows, bfloat16)
            timed.moving = client.pulls.pull(request.wants)
            values: Values | dict[str, Values] = request.values()
        return values

    def pull_async(
        self, tables: Names, ids: TableIds = None, rows: TableIds = None, bfloat16: Short = (), ahead: int = 0
    ) -> PullFuture:
        """The same in the background, while this thread computes. ``ahead``: as promised for a clock so many
        later, which BSP has not before the open one is closed.
        """
        request = PullRequest(self.job, tables, ids, rows, bfloat16)
        pulls = self._client.pulls.pull_async(request.wants, ahead)
        return PullFuture(request, pulls, self._client.pace.note_pull)

    def push(
        self,
        tables: str | Mapping[str, ArrayLike],
        values: ArrayLike | None = None,
        ids: TableIds = None,
        bfloat16: Short = (),
        rows: TableIds = None,
    ) -> None:
        """Send an update: ``push("w", gradient)``, with ``rows`` or ``ids`` (blocks) for some only, or
        ``push({"a": ..., "b": ...})`` as one.

        Returns at once, unless too much is unacknowledged; the arrays may be changed then. A repeated row or
        block is summed (rule ``assign``: the last wins). ``bfloat16``: names of float32 tables that travel
        rounded, in half the bytes; the rule gets float32. Raises :class:`NonFinite`; with
        ``on_nan="restore"`` the push is left out instead, and the clock's loss is NaN.
        """
        client = self._client
        with client.pace.time_push():
            try:
                packed = pack_tables(self.job, tables, values, ids, bfloat16, rows)
                client.pushes.push(packed, client.deadline())
            except NonFinite as error:
                if not self._rules.restores:
                    raise
                _log.warning("clock %d: a push is left out: %s", self.clock_number, error.message)
                self._report.spoil()

    def report(self, loss: float, examples: int | None = None, of: int | None = None) -> None:
        """Add to this worker's part of the loss of the open clock.

        Of the share that it asked for last (:meth:`data_slice`, :attr:`rank`, :attr:`world_size`), or of so
        many ``examples`` of the total ``of`` (default: the ``n`` of :meth:`data_slice`).
        """
        self._report.add_loss(loss, examples, of)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Add to this worker's part of these metrics of the open clock, beside its :meth:`report`.

        Summed over the workers, as the loss: give ``hits / examples`` of the whole batch.
        """
        self._report.add_metrics(metrics)

    def clock(self) -> None:
        """Finish it, as :meth:`clocks` does: waits for acknowledgements and, in BSP, for shards to know."""
        opened = self._client.opened
        if self._rules.asks_to_stop and self._report.has_loss:
            self._report.add_metrics({EARLY_STOPPING: 1.0})
        strategy = self.job.worker_strategy
        if warning := self._report.warn_outdated(opened):
            _log.warning("%s", warning)
        self._client.finish_clock(self._report.make_part(opened, drops=strategy.seat and not strategy.waits))
        self._report.open_clock()

    def load_state(self) -> WorkerState:
        """This worker's own state, of the same moment as the model: see :mod:`scar.worker_state`."""
        rank = self._own_rank
        ensure_declared(self.job, rank)
        state = unpack_state(self.job, rank, np.ravel(self.pull(STATE_TABLE, ids=[rank])))
        self._step = state.step
        return state

    def save_state(self, values: ArrayLike = ()) -> None:
        """The step that was recalled in this clock is done; ``values`` are for the next one."""
        row = np.concatenate(([self._step + 1.0], np.ravel(np.asarray(values, np.float64))))
        self.push(STATE_TABLE, row[np.newaxis], ids=[self._own_rank])

    # --- the end

    def stop(self) -> None:
        """Let :meth:`clocks` end with the clock that is open; from any thread or a signal handler."""
        self._stopping = True

    def leave(self, finished: bool = True) -> None:
        """Wait until everything pushed is in the model, then leave the job.

        ``finished``: nobody takes over this worker's share, and it is durable that its work is done. One that
        is not finished has to go soon, so it does not wait long. Raises :class:`DeadlineExceeded`.
        """
        timeout = self._client.timeout
        problem: DeadlineExceeded | None = None
        self.is_leaving = True
        try:
            try:
                self._client.drain_pushes(
                    self._client.deadline() if finished else Deadline(min(timeout, LEAVE_SECONDS))
                )
            except DeadlineExceeded as error:
                problem = error  # the others must not wait for us on top of that
            done = finished and problem is None
            self._client.flush_reports(min(timeout, REPORT_SECONDS if finished else LEAVE_SECONDS))
            deadline = Deadline(self._leave_timeout if done else timeout)
            self._recovery.leave(self.member, done, deadline, self.epoch)
        finally:
            self.close()
        if problem is not None and finished:
            raise problem

    def close(self) -> None:
        """Stop without a word to the others."""
        self._closed = True
        if self._heartbeats is not None:
            self._heartbeats.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed or os.getpid() != self._pid:  # a forked child that ends does not leave the job for us
            return
        if error is None:
            self.leave(finished=not self._stopping)
            return
        try:
            if not isinstance(error, Fenced):
                self._client.flush_reports(LEAVE_SECONDS)
                # or the others wait until we are found dead
                self._recovery.leave(self.member, False, Deadline(LEAVE_SECONDS))
        except ScarError as second:
            error.add_note(f"leaving the job failed, too: {second}")
        finally:
            self.close()
