"""A shard's side of checkpoint rounds.

Distances are measured beside training; which blocks are copied as of which moment is decided on the apply
thread, and copied beside training, too, as is the upload.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from threading import Lock

import numpy as np

from scar.blocks import Positions
from scar.errors import InvalidRequest, NotServing
from scar.tables import Job
from scar.v1 import ps_pb2
from scar_ps.apply_thread import ApplyThread
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_snapshot import PieceCopy, StallTimer, make_snapshots
from scar_ps.core.block_store import BlockStore, Mask
from scar_ps.core.checkpoint_round import Candidates
from scar_ps.core.core_state import CoreState
from scar_ps.core.distances import BlockDistances, block_distances
from scar_ps.core.events import Event
from scar_ps.core.rounds import StartedRound
from scar_ps.core.transfer_events import (
    BlocksChosen,
    CandidatesMeasured,
    CandidatesRequested,
    CopyContinued,
    InstallContinued,
    ObjectUploaded,
    RoundFinished,
    RoundStarted,
    UploadFailed,
)
from scar_ps.metrics import COPY_SECONDS
from scar_ps.wire.saved_payloads import split_payloads
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.manifest_codec import object_ref_to_proto
from scar_runtime.checkpoint.objects import EncodedObject, object_ref
from scar_runtime.checkpoint.selection import BY_DISTANCE, chosen
from scar_runtime.checkpoint.selection_codec import counts_to_proto, range_from_proto, read_selection
from scar_runtime.checkpoint.top_keys import KeyCounts, KeyRange, block_keys, count_keys
from scar_runtime.process.memory import TouchedMemory
from scar_runtime.store import Store
from scar_runtime.store.layout import object_key

STEP_SECONDS = 10.0  # for the short steps on the apply thread after an upload


class RoundRunner:
    """``store`` is the cluster's; objects go below the job's name."""

    def __init__(self, state: CoreState, apply_thread: ApplyThread, store: Store) -> None:
        self._state = state
        self._apply_thread = apply_thread
        self._store = store
        self._lock = Lock()
        self._replies: dict[tuple[int, int], ps_pb2.SaveReply] = {}  # of the last round, by epoch and round
        self._last_key = (0, 0)
        self._repeats = 0

    def measure_distances(self, request: ps_pb2.DistancesRequest, timeout: float) -> ps_pb2.DistancesReply:
        """Start a round: distances of what has changed, computed on the caller's thread."""
        with self._lock:
            self._replies = {}
        start = RoundStarted(
            request.epoch, request.round, request.min_clock, request.author, not request.skip
        )
        started: StartedRound = self._apply_thread.call(start, timeout)
        candidates = started.candidates
        began = time.monotonic()
        if not request.skip:
            for one in candidates:
                one.distances = block_distances(one.store, one.positions)
        seconds = time.monotonic() - began
        self._apply_thread.call(CandidatesMeasured(request.epoch, candidates), STEP_SECONDS)
        reply = ps_pb2.DistancesReply(clock=started.clock, seconds=seconds)
        reply.settled = sum(one.settled for one in candidates)
        if not request.skip:
            reply.counts.CopyFrom(counts_to_proto(self._count_candidates(candidates, KeyRange())))
        return reply

    def count_keys(self, request: ps_pb2.CountRequest, timeout: float) -> ps_pb2.CountReply:
        """Of what was measured, counted on the caller's thread."""
        within = range_from_proto(request)
        wanted = CandidatesRequested(request.epoch, request.round)
        candidates: list[Candidates] = self._apply_thread.call(wanted, timeout)
        return ps_pb2.CountReply(counts=counts_to_proto(self._count_candidates(candidates, within)))

    def _count_candidates(self, candidates: Sequence[Candidates], within: KeyRange) -> KeyCounts:
        job = self._require_job()
        counts = np.zeros(within.size, np.int64)
        for one in candidates:
            counts += count_keys(
                block_keys(job, one.store.table.name, one.ids, _known_distances(one)), within
            )
        return counts

    def save_blocks(self, request: ps_pb2.SaveRequest, timeout: float) -> ps_pb2.SaveReply:
        """Copy what was chosen and upload it. On any error the round is missed, and saved values go back."""
        key = request.epoch, request.round
        with self._lock:
            if key in self._replies:
                return self._replies[key]
        reply = ps_pb2.SaveReply()
        deadline = time.monotonic() + timeout
        timer = StallTimer(time.perf_counter)
        copied = self._begin_copy(request, timer, timeout)
        try:
            self._copy_pieces(copied, deadline)
            began = time.monotonic()
            saved = self._upload_object(copied, request) if copied else None
            if saved is not None:
                reply.object.CopyFrom(object_ref_to_proto(saved))
            self._apply_thread.call(ObjectUploaded(request.epoch, copied, saved), STEP_SECONDS)
        except Exception:
            self._apply_thread.call(UploadFailed(copied), STEP_SECONDS)
            raise
        reply.upload_seconds = time.monotonic() - began
        reply.copy_seconds = timer.total
        reply.stall_seconds = timer.longest
        COPY_SECONDS.observe(timer.longest)
        with self._lock:
            self._replies = {key: reply}
        return reply

    def _begin_copy(
        self, request: ps_pb2.SaveRequest, timer: StallTimer, timeout: float
    ) -> list[CopiedBlocks]:
        """Of what was chosen, on the caller's thread. Raises :class:`InvalidRequest` when it may be chosen of
        blocks that were left out for their distance.
        """
        epoch = request.epoch
        number = request.round
        candidates: list[Candidates] = self._apply_thread.call(CandidatesRequested(epoch, number), timeout)
        job = self._require_job()
        partial = any(len(one.positions) < one.settled for one in candidates)
        if request.selection not in BY_DISTANCE and partial:
            raise InvalidRequest(f"round {number} is of what has changed, not of {request.selection!r}")
        selected = [(one.store, one.positions[_chosen_mask(job, request, one)]) for one in candidates]
        size = sum(_copied_bytes(store, positions) for store, positions in selected)
        arrays = sum(2 + len(store.slots) for store, _ in selected)
        memory = TouchedMemory(size, arrays)  # the copy fills all of it
        made = [make_snapshots(store, positions, memory.allocate) for store, positions in selected]
        begun = BlocksChosen(epoch, number, list(chain.from_iterable(made)), _listed_keys(request), timer)
        copied: list[CopiedBlocks] = self._apply_thread.call(begun, timeout)
        return copied

    def _copy_pieces(self, copied: list[CopiedBlocks], deadline: float) -> None:
        """On this thread, beside pushes; raises as :meth:`_repeat`."""
        begun = CopyContinued(copied)
        while True:
            piece: PieceCopy | None = self._apply_thread.call(begun, max(0.0, deadline - time.monotonic()))
            if piece is None:
                return
            piece.copy()

    def finish_round(self, request: ps_pb2.FinishRequest, timeout: float) -> None:
        """The coordinator's word on a round."""
        with self._lock:
            self._replies = {}
        finished = RoundFinished(request.round, request.committed, request.author, request.object_key)
        deadline = time.monotonic() + timeout
        self._apply_thread.call(finished, timeout)
        self._repeat(InstallContinued(), deadline)

    def _repeat(self, event: Event, deadline: float) -> None:
        """Hand it in until the shard answers that nothing is left; others have their turn in between.

        Raises :class:`DeadlineExceeded`.
        """
        while self._apply_thread.call(event, max(0.0, deadline - time.monotonic())):
            pass

    def _upload_object(self, copied: Sequence[CopiedBlocks], request: ps_pb2.SaveRequest) -> ObjectRef:
        job = self._require_job()
        owner = self._state.member.key
        groups = [
            (replace(state, owner=owner), payload)
            for one in copied
            for state, payload in split_payloads(job.table(one.state.table), one)
        ]
        encoded = EncodedObject(job, groups)
        key = self._unused_key(request.epoch, request.round)
        self._store.under(job.name).put_pieces(key, encoded.pieces())
        return object_ref(key, encoded, [state for state, _ in groups], owner, request.epoch, request.round)

    def _unused_key(self, epoch: int, number: int) -> str:
        """A key that was never used.

        A new coordinator may repeat the number of a round that its predecessor began.
        """
        with self._lock:
            repeated = (epoch, number) <= self._last_key
            self._last_key = max(self._last_key, (epoch, number))
            self._repeats += repeated
            return object_key(epoch, self._state.member.key, number, self._repeats if repeated else 0)

    def _require_job(self) -> Job:
        if self._state.job is None:
            raise NotServing("this shard has no job yet")
        return self._state.job


def _chosen_mask(job: Job, request: ps_pb2.SaveRequest, one: Candidates) -> Mask:
    """Which candidates the coordinator means."""
    return chosen(read_selection(request), job, one.store.table.name, one.ids, _known_distances(one))


def _copied_bytes(store: BlockStore, positions: Positions) -> int:
    """Of a copy of the values and slots of these blocks, and of the marks of their rows."""
    layouts = [store.layout, *map(store.slot_layout, store.slots)]
    elements = sum(layout.count_elements(positions) for layout in layouts)
    marks = 0 if store.row_changes is None else store.row_counts.count_elements(positions)
    return elements * store.table.dtype.itemsize + marks


def _known_distances(one: Candidates) -> BlockDistances:
    """Zeros where nobody asked for them."""
    return np.zeros(len(one.positions), np.float32) if one.distances is None else one.distances


def _listed_keys(request: ps_pb2.SaveRequest) -> frozenset[str] | None:
    """None: whole blocks are wanted."""
    return frozenset(request.baselines) if request.changed_rows else None
