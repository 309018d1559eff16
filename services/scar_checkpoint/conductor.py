"""Carries out what the core decides, and brings it the answers, in one order.

Everything that happens (answers, epochs, requests of people, time) becomes an event in one queue; one thread gives them to the
core. What blocks (the store, telling shards) runs in a small pool, what waits at shards is a gRPC future.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import numpy as np

from scar.codec import ids_from_bytes
from scar.errors import AlreadyExists, DeadlineExceeded, InvalidRequest, NotServing, ScarError, StaleEpoch, Temporary
from scar.placement import Epoch
from scar.tables import Job
from scar.v1 import ps_pb2
from scar_checkpoint import metrics
from scar_checkpoint.calls import Calls
from scar_checkpoint.coordinator import RESIGNED, Coordinator
from scar_checkpoint.rounds import Abandon, Action, Commit, Copy, Done, Finish, Measure, Summary, Ticket
from scar_runtime.records import create_record, newest, numbered
from scar_runtime.running import MANIFESTS, Headers, load_newest
from scar_runtime.selection import Report
from scar_runtime.store import Store

TICK = 0.1  # seconds
WAIT_SECONDS = 60.0  # a shard's clock may take longer: then it is asked again
POOL = 16

_log = logging.getLogger("scar_checkpoint")

Event = Callable[[Coordinator, float], list[Action]]


class Conductor:
    """``store`` is the job's; ``author`` the incarnation that signs manifests."""

    def __init__(self, job: Job, author: str, store: Store, headers: Headers, timeout: float) -> None:
        self._job, self._store, self._headers, self._timeout = job, store, headers, timeout
        self.core = Coordinator(job, author, timeout)
        self.lock = threading.Lock()  # held while the core is used
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._calls = Calls()
        self._pool = ThreadPoolExecutor(POOL, thread_name_prefix="store")
        self._tickets: dict[int, Future[Summary]] = {}
        self._numbers = count(1)
        self._ended = False  # nobody takes events any more

    def run(self, stop: Callable[[], bool], turned: Callable[[], None]) -> None:
        """Lead until ``stop`` says so; then tell the shards that no round is under way. ``turned`` is called by each turn."""
        try:
            while not stop():
                turned()
                self._turn()
        finally:
            with self.lock:
                actions = self.core.resign(time.monotonic())
            self._carry_out(actions)
            self._ended = True
            for waiting in list(self._tickets.values()):
                waiting.set_result(Summary(0, error=RESIGNED))
            self._pool.shutdown()
            self._calls.keep(set())

    def post(self, event: Event) -> None:
        """Give the core an event, soon."""
        self._events.put(event)

    def adopt(self, epoch: Epoch) -> None:
        self._calls.keep({member.key for member in epoch.shards})
        self.post(lambda core, now: core.adopted(epoch, now))

    def trigger(self, selection: str, fraction: float, timeout: float, shard: str = "") -> Summary:
        """Run a round now and wait for its end. ``shard``: its blocks alone. Raises :class:`DeadlineExceeded`,
        :class:`NotServing`."""
        ticket = Ticket(next(self._numbers), selection, fraction, shard)
        waiting = self._tickets[ticket.number] = Future[Summary]()
        self.post(lambda core, now: core.trigger(ticket, now))
        try:
            if self._ended:
                raise NotServing(RESIGNED)
            return waiting.result(timeout)
        except TimeoutError:
            raise DeadlineExceeded(f"the round had not ended after {timeout:g} s") from None
        finally:
            self._tickets.pop(ticket.number, None)

    def _turn(self) -> None:
        """One event, or a tick when there is none; a tick also follows when events never pause."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=TICK)
            with self.lock:
                actions = event(self.core, time.monotonic())
            self._carry_out(actions)
        with self.lock:
            actions = self.core.tick(time.monotonic())
        self._carry_out(actions)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Measure():
                    self._measure(action)
                case Copy():
                    self._copy(action)
                case Commit():
                    self._pool.submit(self._commit, action)
                case Finish():
                    self._pool.submit(self._finish, action)
                case Abandon():
                    self._calls.cancel(action.round)
                case Done():
                    self._done(action)

    # --- shards --------------------------------------------------------------------------------------------------------

    def _measure(self, action: Measure) -> None:
        number, key = action.round, action.shard.key
        request = ps_pb2.DistancesRequest(epoch=action.epoch, round=number, min_clock=action.min_clock, skip=action.skip)

        def done(reply: ps_pb2.DistancesReply) -> None:
            try:
                reports = [_report(self._job, one, action.skip) for one in reply.tables]
            except ScarError as error:
                return self._refused(number, key, error)
            return self.post(lambda core, now: core.measured(number, key, reply.clock, reports, now))

        self._calls.measure(action.shard, request, WAIT_SECONDS, done, lambda error: self._refused(number, key, error))

    def _copy(self, action: Copy) -> None:
        number, key, decision = action.round, action.shard.key, action.decision
        request = ps_pb2.SaveRequest(
            epoch=action.epoch,
            round=number,
            selection=decision.selection,
            threshold=decision.threshold,
            tie_before=decision.tie_before,
            first=decision.first,
            count=decision.count,
            seed=decision.seed,
        )

        def done(reply: ps_pb2.SaveReply) -> None:
            self._pool.submit(self._saved, number, key, reply)

        self._calls.save(action.shard, request, self._timeout, done, lambda error: self._refused(number, key, error))

    def _saved(self, number: int, key: str, reply: ps_pb2.SaveReply) -> None:
        """A manifest never names an object that cannot be read: its header is read first."""
        try:
            found = (reply.object, self._headers.get([reply.object])[0]) if reply.HasField("object") else None
        except ScarError as error:
            return self._refused(number, key, error)
        return self.post(lambda core, now: core.saved(number, key, found, reply.copy_seconds, now))

    def _refused(self, number: int, key: str, error: ScarError) -> None:
        passing = isinstance(error, Temporary | StaleEpoch | DeadlineExceeded)
        self.post(lambda core, now: core.refused(number, key, error.message, passing, now))

    def _finish(self, action: Finish) -> None:
        request = ps_pb2.FinishRequest(round=action.round, committed=action.committed, manifest=action.manifest)
        try:
            self._calls.finish(action.shard, request)
        except ScarError as error:
            _log.info("finish.failed", extra={"round": action.round, "shard": action.shard.key, "reason": error.message})
        self.post(lambda core, now: core.finished(action.round, action.shard.key, now))

    # --- the store -----------------------------------------------------------------------------------------------------

    def _commit(self, action: Commit) -> None:
        manifest = action.running.manifest
        manifest.created = time.time()
        try:
            create_record(self._store, numbered(MANIFESTS, manifest.number), manifest)
        except AlreadyExists:
            return self._lost(action)
        except ScarError as error:
            return self._failed(action, error)
        with suppress(ScarError):  # a number that was collected is free again, but means nothing: the last K never are
            if newest(self._store, MANIFESTS) >= manifest.number + self._job.checkpoint.keep:
                return self._lost(action)
        return self.post(lambda core, now: core.committed(action.round, action.running, now))

    def _lost(self, action: Commit) -> None:
        try:
            running = load_newest(self._store, self._job, self._headers)
            number = newest(self._store, MANIFESTS)
        except ScarError as error:
            return self._failed(action, error)
        return self.post(lambda core, now: core.lost(action.round, running, number, now))

    def _failed(self, action: Commit, error: ScarError) -> None:
        self.post(lambda core, now: core.failed(action.round, str(error), now))

    # --- people --------------------------------------------------------------------------------------------------------

    def _done(self, action: Done) -> None:
        summary = action.summary
        metrics.ROUNDS.labels(action.result).inc()
        metrics.BYTES.inc(summary.bytes)
        fields = {"round": summary.round, "manifest": summary.manifest, "clock": summary.clock, "blocks": summary.blocks_saved}
        level = logging.WARNING if action.result == "failed" else logging.INFO
        _log.log(level, f"round.{action.result}", extra=fields | {"missed": summary.missed, "reason": summary.error})
        for number in action.tickets:
            waiting = self._tickets.pop(number, None)
            if waiting is not None:
                waiting.set_result(summary)


def _report(job: Job, entry: ps_pb2.TableDistances, skipped: bool) -> Report:
    """Raises :class:`ScarError` for what no shard of this job could have measured."""
    ids = ids_from_bytes(entry.block_ids, job.table(entry.table).blocks)
    if len(entry.distances) != (0 if skipped else 4 * len(ids)):
        raise InvalidRequest(f"table {entry.table}: {len(entry.distances)} bytes of distances for {len(ids)} blocks")
    return entry.table, ids, np.frombuffer(entry.distances, dtype="<f4")
