"""A shard's side of checkpoint rounds: distances beside training, a short copy on the apply thread, the upload beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from threading import Lock

import numpy as np

from scar import codec
from scar.errors import NotServing
from scar.tables import Job
from scar.v1 import ps_pb2
from scar_ps.blockstore import Mask
from scar_ps.distances import distances
from scar_ps.engine import Engine
from scar_ps.metrics import COPY_SECONDS
from scar_ps.rounds import Candidates, Copied
from scar_ps.shard import Shard
from scar_runtime.objects import Group, Payload, encode_object, object_key, object_ref
from scar_runtime.selection import Decision, chosen
from scar_runtime.store import Store

STEP_SECONDS = 10.0  # for the short steps on the apply thread after an upload
HOLD_SECONDS = 30.0  # for which training waits for a checkpoint, where it waits for them at all

_log = logging.getLogger(__name__)


class Saver:
    """``store`` is the cluster's; objects go below the job's name."""

    def __init__(self, shard: Shard, engine: Engine, store: Store) -> None:
        self._shard, self._engine, self._store = shard, engine, store
        self._lock = Lock()
        self._answers: dict[tuple[int, int], ps_pb2.SaveReply] = {}  # of the last round, by epoch and round
        self._last, self._repeats = (0, 0), 0
        self._begun = 0.0  # of the last round
        self._committed: float | None = None

    @property
    def age(self) -> float:
        """Seconds since the last committed round; -1: none yet."""
        return -1.0 if self._committed is None else time.monotonic() - self._committed

    def measure(self, request: ps_pb2.DistancesRequest, timeout: float) -> ps_pb2.DistancesReply:
        """Start a round: distances of all settled blocks, computed on the caller's thread."""
        shard, epoch, number = self._shard, request.epoch, request.round
        with self._lock:
            self._answers = {}

        def begin() -> tuple[list[Candidates], int]:
            candidates = shard.begin_round(epoch, number, request.min_clock)
            self._begun = time.monotonic()
            return candidates, shard.clock

        candidates, clock = self._engine.call(begin, timeout)
        started = time.monotonic()
        if not request.skip:
            for one in candidates:
                one.distances = distances(one.store)[one.positions]
        seconds = time.monotonic() - started
        self._engine.call(lambda: shard.measured(epoch, number, candidates), STEP_SECONDS)
        return ps_pb2.DistancesReply(tables=[_reported(one) for one in candidates], clock=clock, seconds=seconds)

    def save(self, request: ps_pb2.SaveRequest, timeout: float) -> ps_pb2.SaveReply:
        """Copy what was chosen and upload it. On any error the round is missed and its cache entries go back."""
        key = request.epoch, request.round
        with self._lock:
            if key in self._answers:
                return self._answers[key]
        copied, reply, clock = self._copy(request, timeout)
        started = time.monotonic()
        try:
            if copied:
                reply.object.CopyFrom(self._upload(copied, request, clock))
            self._engine.call(lambda: self._shard.uploaded(request.epoch, copied), STEP_SECONDS)
        except Exception:
            self._engine.call(lambda: self._shard.miss_round(copied), STEP_SECONDS)
            raise
        reply.upload_seconds = time.monotonic() - started
        with self._lock:
            self._answers = {key: reply}
        return reply

    def _copy(self, request: ps_pb2.SaveRequest, timeout: float) -> tuple[list[Copied], ps_pb2.SaveReply, int]:
        """What was copied, the answer so far, and the open clock at that moment. Choosing is done on the caller's thread."""
        shard, epoch, number = self._shard, request.epoch, request.round
        candidates = self._engine.call(lambda: shard.candidates(epoch, number), timeout, changes=False)
        selected = [(one.store, one.positions[_mask(self._job(), request, one)]) for one in candidates]

        def copy() -> tuple[list[Copied], ps_pb2.SaveReply, int]:
            started = time.monotonic()
            copied = shard.copy_round(epoch, number, selected)
            return copied, ps_pb2.SaveReply(copy_seconds=time.monotonic() - started), shard.clock

        copied, reply, clock = self._engine.call(copy, timeout)
        COPY_SECONDS.observe(reply.copy_seconds)
        return copied, reply, clock

    def finish(self, number: int, committed: bool, timeout: float) -> None:
        """The coordinator's word on a round."""
        with self._lock:
            self._answers = {}
        if self._engine.call(lambda: self._shard.finish_round(number, committed), timeout):
            self._committed = time.monotonic()

    def let_go(self) -> None:
        """End a round on which training has waited too long: its coordinator may be dead, the store away."""
        shard = self._shard
        if not (shard.held and time.monotonic() > self._begun + HOLD_SECONDS):
            return

        def end() -> None:
            if time.monotonic() > self._begun + HOLD_SECONDS:  # else another one has begun meanwhile
                shard.finish_round(shard.rounds.number, False)

        _log.warning("round.let_go", extra={"round": shard.rounds.number, "seconds": HOLD_SECONDS})
        self._engine.call(end, STEP_SECONDS)

    def _upload(self, copied: Sequence[Copied], request: ps_pb2.SaveRequest, clock: int) -> ps_pb2.ObjectRef:
        job, owner = self._job(), self._shard.member.key
        pairs = [(Group(one.table, one.ids, clock, one.watermark, owner), _payload(one)) for one in copied]
        encoded = encode_object(job, pairs)
        key = self._key(request.epoch, request.round)
        self._store.under(job.name).put(key, encoded.parts)
        return object_ref(key, encoded, [group for group, _ in pairs], owner, request.epoch, request.round)

    def _key(self, epoch: int, number: int) -> str:
        """A name that was never used: a new coordinator may repeat the number of a round that its predecessor began."""
        with self._lock:
            repeated = (epoch, number) <= self._last
            self._last = max(self._last, (epoch, number))
            self._repeats += repeated
            return object_key(epoch, self._shard.member.key, number) + (f"-{self._repeats}" if repeated else "")

    def _job(self) -> Job:
        if self._shard.job is None:
            raise NotServing("this shard has no job yet")
        return self._shard.job


def _mask(job: Job, request: ps_pb2.SaveRequest, one: Candidates) -> Mask:
    """Which candidates the coordinator means."""
    decision = Decision(
        request.selection,
        threshold=request.threshold,
        tie_before=request.tie_before,
        first=request.first,
        count=request.count,
        seed=request.seed,
    )
    measured = np.zeros(len(one.positions), np.float32) if one.distances is None else one.distances
    return chosen(decision, job, one.store.table.name, one.ids, measured)


def _reported(one: Candidates) -> ps_pb2.TableDistances:
    measured = b"" if one.distances is None else one.distances.astype("<f4", copy=False).tobytes()
    return ps_pb2.TableDistances(table=one.store.table.name, block_ids=codec.ids_to_bytes(one.ids), distances=measured)


def _payload(one: Copied) -> Payload:
    steps = np.zeros(len(one.ids), np.int64) if one.contents.steps is None else one.contents.steps
    return Payload(one.contents.values, dict(one.contents.slots), steps)
