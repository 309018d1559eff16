"""Carries out what the core decides, and turns the answers into events, in one order.

Everything that happens (answers, epochs, requests of people, time) is an event in one queue; one thread gives
them to the core. What blocks (the store, telling shards) runs in a small pool, what waits at shards is a gRPC
future.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count

from scar.errors import AlreadyExists, DeadlineExceeded, NotServing, ScarError, StaleEpoch, Temporary
from scar.placement import Epoch
from scar.tables import Job
from scar.v1 import ps_pb2
from scar.wire import tracing
from scar.wire.timing import TIMING
from scar_checkpoint import metrics, round_codec
from scar_checkpoint.core.coordinator import RESIGNED, Coordinator
from scar_checkpoint.core.events import (
    AbandonRound,
    BlocksSaved,
    ClockTicked,
    CommitEvent,
    CommitFailed,
    CommitManifest,
    CoordinatorAction,
    CoordinatorEvent,
    CopyBlocks,
    CountKeys,
    EpochAdopted,
    FinishRound,
    LeadershipGained,
    LeadershipLost,
    ManifestCommitted,
    ManifestTaken,
    MeasureDistances,
    ReadCheckpoint,
    ReadFailed,
    RoundDone,
    RoundTriggered,
    ShardFinished,
    ShardRefused,
)
from scar_checkpoint.core.rounds import RoundSummary, RoundTicket, SavedObject
from scar_checkpoint.shard_calls import ShardCalls
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.lost_checkpoint import LossPatience
from scar_runtime.checkpoint.manifest_codec import create_manifest, object_ref_from_proto
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint, load_readable
from scar_runtime.store import Store
from scar_runtime.store.layout import MANIFESTS
from scar_runtime.store.records import newest

TICK_SECONDS = TIMING.look_every  # between looks at what is due
DAMAGE_SECONDS = 5.0  # a header that is still damaged after that long is not waited for
POOL = 16

_log = logging.getLogger("scar_checkpoint")


class RoundDriver:
    """``store`` is the job's; ``author`` the incarnation that signs manifests; ``timeout``: of each stage."""

    def __init__(self, job: Job, author: str, store: Store, headers: HeaderCache, timeout: float) -> None:
        self._job = job
        self._store = store
        self._headers = headers
        self._author = author
        self.core = Coordinator(job, author, timeout)
        self.lock = threading.Lock()  # held while the core is used
        self._events: queue.SimpleQueue[CoordinatorEvent] = queue.SimpleQueue()
        self._calls = ShardCalls()
        self._pool = ThreadPoolExecutor(POOL, thread_name_prefix="store")
        self._tickets: dict[int, Future[RoundSummary]] = {}
        self._patience = LossPatience()
        self._ticket_numbers = count(1)
        self._error: BaseException | None = None  # of work in the pool
        self._ended = False  # nobody takes events any more

    def run(self, stop: Callable[[], bool], on_turn: Callable[[], None]) -> None:
        """Lead until ``stop`` says so; then tell the shards that no round is under way. ``on_turn`` is
        called by each turn.
        """
        try:
            self._handle(ClockTicked())
            while not stop():
                on_turn()
                self._turn()
        finally:
            self._handle(LeadershipLost())
            self._ended = True
            for waiting in list(self._tickets.values()):
                waiting.set_result(RoundSummary(0, error=RESIGNED))
            self._pool.shutdown()
            self._calls.retain_links(set())

    def post(self, event: CoordinatorEvent) -> None:
        """Give the core an event, soon."""
        self._events.put(event)

    def adopt_epoch(self, epoch: Epoch) -> None:
        self._calls.retain_links({member.key for member in epoch.shards})
        self.post(EpochAdopted(epoch))

    def trigger_round(self, selection: str, fraction: float, timeout: float, shard: str = "") -> RoundSummary:
        """Run a round now and wait for its end. ``shard``: its blocks alone.

        Raises :class:`DeadlineExceeded`, :class:`NotServing`.
        """
        ticket = RoundTicket(next(self._ticket_numbers), selection, fraction, shard)
        waiting = self._tickets[ticket.number] = Future[RoundSummary]()
        self.post(RoundTriggered(ticket))
        try:
            if self._ended:
                raise NotServing(RESIGNED)
            return waiting.result(timeout)
        except TimeoutError:
            raise DeadlineExceeded(f"the round had not ended after {timeout:g} s") from None
        finally:
            self._tickets.pop(ticket.number, None)

    # --- the loop

    def _turn(self) -> None:
        """One event, or a tick when there is none; a tick also follows when events never pause."""
        if self._error is not None:
            raise self._error
        with suppress(queue.Empty):
            self._handle(self._events.get(timeout=TICK_SECONDS))
        self._handle(ClockTicked())

    def _handle(self, event: CoordinatorEvent) -> None:
        with self.lock:
            actions = self.core.handle(event, time.monotonic())
        for action in actions:
            operation = ("round", _round_of(action))
            if isinstance(action, MeasureDistances):
                tracing.begin_operation(operation, "checkpoint round")
            with tracing.join_operation(operation):
                self._carry_out(action)
            if isinstance(action, RoundDone):
                tracing.end_operation(operation)

    def _carry_out(self, action: CoordinatorAction) -> None:
        match action:
            case ReadCheckpoint():
                self._submit(self._read_checkpoint)
            case MeasureDistances():
                self._measure_distances(action)
            case CountKeys():
                self._count_keys(action)
            case CopyBlocks():
                self._copy_blocks(action)
            case CommitManifest():
                self._submit(self._commit_manifest, action)
            case FinishRound():
                self._submit(self._finish_round, action)
            case AbandonRound():
                self._calls.cancel_round(action.round)
            case RoundDone():
                self._end_round(action)

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        """In the pool. What it raises unexpectedly ends the loop: nothing waits for it in vain."""

        def note_error(done: Future[None]) -> None:
            self._error = done.exception() or self._error

        traced = contextvars.copy_context()
        self._pool.submit(traced.run, work, *arguments).add_done_callback(note_error)

    # --- shards

    def _measure_distances(self, action: MeasureDistances) -> None:
        def on_answer(reply: ps_pb2.DistancesReply) -> None:
            self._post_decoded(action, partial(round_codec.measured_from_proto, self._job, action, reply))

        request = round_codec.distances_request(action, self._author)
        on_refusal = partial(self._refuse, action)
        self._calls.measure_distances(action.shard, request, action.timeout, on_answer, on_refusal)

    def _count_keys(self, action: CountKeys) -> None:
        def on_answer(reply: ps_pb2.CountReply) -> None:
            self._post_decoded(action, partial(round_codec.counted_from_proto, self._job, action, reply))

        request = round_codec.count_request(action)
        self._calls.count_keys(
            action.shard, request, action.timeout, on_answer, partial(self._refuse, action)
        )

    def _post_decoded(
        self, action: MeasureDistances | CountKeys, decode: Callable[[], CoordinatorEvent]
    ) -> None:
        try:
            event = decode()
        except ScarError as error:
            return self._refuse(action, error)
        return self.post(event)

    def _copy_blocks(self, action: CopyBlocks) -> None:
        def on_answer(reply: ps_pb2.SaveReply) -> None:
            self._submit(self._read_header, action, reply)

        request = round_codec.save_request(action)
        on_refusal = partial(self._refuse, action)
        self._calls.save_blocks(action.shard, request, action.timeout, on_answer, on_refusal)

    def _read_header(self, action: CopyBlocks, reply: ps_pb2.SaveReply) -> None:
        """A manifest never names an object that cannot be read: its header is read first."""
        try:
            found = self._read_saved(reply)
        except ScarError as error:
            return self._refuse(action, error)
        saved = BlocksSaved(action.round, action.shard.key, found, reply.copy_seconds, reply.stall_seconds)
        return self.post(saved)

    def _read_saved(self, reply: ps_pb2.SaveReply) -> SavedObject | None:
        if not reply.HasField("object"):
            return None
        ref = object_ref_from_proto(reply.object)
        return ref, self._headers.find(ref)

    def _refuse(self, action: MeasureDistances | CountKeys | CopyBlocks, error: ScarError) -> None:
        passing = isinstance(error, Temporary | StaleEpoch | DeadlineExceeded)
        self.post(ShardRefused(action.round, action.shard.key, error.message, passing))

    def _finish_round(self, action: FinishRound) -> None:
        key = action.shard.key
        try:
            request = round_codec.finish_request(action, self._author)
            self._calls.finish_round(action.shard, request, action.timeout)
        except ScarError as error:
            _log.info("finish.failed", extra={"round": action.round, "shard": key, "reason": error.message})
        self.post(ShardFinished(action.round, key))

    # --- the store

    def _read_checkpoint(self) -> None:
        try:
            running, number = self._read_newest()
        except ScarError as error:
            return self.post(ReadFailed(str(error)))
        age = max(0.0, time.time() - running.manifest.created) if running.manifest.number else -1.0
        return self.post(LeadershipGained(running, number, age))

    def _read_newest(self) -> tuple[RunningCheckpoint, int]:
        """What can be read, and the newest number, which is read first: a manifest that is created in between
        would count as passed over, and what only it names would be lost.
        """
        number = newest(self._store, MANIFESTS)
        load = partial(load_readable, self._store, self._job, self._headers, DAMAGE_SECONDS)
        return self._patience.read(self._store, self._job, load), number

    def _commit_manifest(self, action: CommitManifest) -> None:
        self.post(self._create_manifest(action))

    def _create_manifest(self, action: CommitManifest) -> CommitEvent:
        manifest = replace(action.running.manifest, created=time.time())
        try:
            with tracing.trace_span("commit manifest"):
                create_manifest(self._store, manifest)
        except AlreadyExists:
            return self._read_winner(action)
        except ScarError as error:
            return CommitFailed(action.round, str(error))
        # a number that was collected is free again, but means nothing: the last K never are
        with suppress(ScarError):
            if newest(self._store, MANIFESTS) >= manifest.number + action.keep:
                return self._read_winner(action)
        return ManifestCommitted(action.round, action.running)

    def _read_winner(self, action: CommitManifest) -> CommitEvent:
        try:
            running, number = self._read_newest()
            return ManifestTaken(action.round, running, number)
        except ScarError as error:
            return CommitFailed(action.round, str(error))

    # --- people

    def _end_round(self, action: RoundDone) -> None:
        summary = action.summary
        metrics.ROUNDS.labels(action.result).inc()
        metrics.BYTES.inc(summary.bytes)
        fields = {
            "round": summary.round,
            "manifest": summary.manifest,
            "clock": summary.clock,
            "blocks": summary.blocks_saved,
            "missed": summary.missed,
            "reason": summary.error,
        }
        level = logging.WARNING if action.result == "failed" else logging.INFO
        _log.log(level, f"round.{action.result}", extra=fields)
        for number in action.tickets:
            waiting = self._tickets.pop(number, None)
            if waiting is not None:
                waiting.set_result(summary)


def _round_of(action: CoordinatorAction) -> int:
    """0: it belongs to none."""
    return action.summary.round if isinstance(action, RoundDone) else getattr(action, "round", 0)
