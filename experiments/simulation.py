"""A training, its running checkpoints and its failures in one process, by the cores that the services run.

    state = initial_state(job)                   # x(0): table -> BlockStore, changed in place by training
    simulator = CheckpointSimulator(job, state)  # one policy; several may watch one training
    simulator.run_due_round(clock)               # when one is due: distances, selection, copy, commit
    perturbed = simulator.recover_lost(lost)     # a placement is drafted; a shard adopts and loads it

Here is only what the services do with threads, stores and streams: nothing decides anything. Distances are
from ``scar_ps.core.distances``, selection from ``scar_runtime.checkpoint.selection``, copies from
``scar_ps.core.checkpoint_round``, the running checkpoint from ``scar_runtime.checkpoint.running_checkpoint``,
who takes over and from which source from ``scar_recovery.core.epoch_draft``, and a ``scar_ps.core.shard``
installs it. Copies in memory, if the job has them as sources: :mod:`experiments.surviving_copies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.surviving_copies import WORKER, SurvivingCopies, ask_shard
from scar.blocks import Ids, positions_of
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role, by_table
from scar.tables import Job, Table
from scar_ps.core.actions import StartLoad
from scar_ps.core.block_data import BlockContents, BlockLoad, CopiedBlocks, select_contents
from scar_ps.core.block_snapshot import StallTimer, make_snapshots
from scar_ps.core.block_store import BlockStore
from scar_ps.core.checkpoint_round import Candidates, CheckpointRound
from scar_ps.core.distances import block_distances
from scar_ps.core.events import BlocksLoaded, EpochReceived
from scar_ps.core.ownership import BlockOwnership
from scar_ps.core.shard import Shard
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import EpochIntent
from scar_recovery.recovery_store import SavedBlocks
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.objects import ObjectHeader, ObjectSection
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.selection import (
    BY_DISTANCE,
    RoundSelection,
    above,
    blocks_per_round,
    chosen,
    decide,
)
from scar_runtime.checkpoint.top_keys import ThresholdSearch, block_keys, count_keys

ModelState = dict[str, BlockStore]
LostBlocks = Mapping[str, Ids]

LOST_SHARD = Member(Role.SHARD, "ps-0", "lost")
SURVIVOR = Member(Role.SHARD, "ps-1", "survivor")


def initial_state(job: Job) -> ModelState:
    """x(0) of every table, all blocks in one store."""
    state = {}
    for table in job.tables:
        store = BlockStore(table, _all_ids(table))
        store.install_blocks(
            np.arange(len(store)), BlockContents(table.initial(job.seed, store.ids, table.init.array))
        )
        state[table.name] = store
    return state


def copy_state(state: ModelState) -> ModelState:
    """A copy that shares nothing with the original."""
    copies = {}
    for name, store in state.items():
        copies[name] = BlockStore(store.table, store.ids)
        copies[name].install_blocks(np.arange(len(store)), store.copy_blocks(np.arange(len(store))))
    return copies


def no_progress() -> None:
    """The cores report progress during long work; here nobody listens."""


class CheckpointSimulator:
    """The running checkpoint of one policy over a training that changes ``state``.

    The policy is ``job.checkpoint`` and ``job.recovery``.
    """

    def __init__(self, job: Job, state: ModelState) -> None:
        self.job = job
        self._ownership = BlockOwnership(SURVIVOR.key, no_progress)
        self._ownership.tables = {name: _shared_view(store) for name, store in state.items()}
        self._rounds = CheckpointRound()
        self._running = RunningCheckpoint(job)
        self._objects: dict[str, dict[str, CopiedBlocks]] = {}
        self._clock = 0

    def run_due_round(self, clock: int) -> None:
        """``clock`` clocks are closed: hold a round if one is due."""
        self._clock = clock
        if clock and clock % self.job.checkpoint.every == 0:
            self._run_round(clock // self.job.checkpoint.every, clock)

    def _run_round(self, number: int, clock: int) -> None:
        candidates = self._rounds.start_round(number, self._ownership)
        for one in candidates:
            one.distances = block_distances(one.store)[one.positions]
        self._rounds.record_distances(candidates)
        decision = self._decide(number, candidates)
        selected = [
            snapshot
            for one in candidates
            for snapshot in make_snapshots(one.store, one.positions[self._selected_mask(decision, one)])
        ]
        contents_of = partial(self._ownership.watermark_of, own={})
        copied = self._rounds.begin_copy(number, clock, selected, contents_of, StallTimer())
        while piece := self._rounds.next_piece(copied):
            piece.copy()
        self._rounds.record_upload(copied)
        self._rounds.finish_round(number, committed=True)
        while self._rounds.install_piece():
            pass
        self._commit_manifest(number, clock, copied)

    def _decide(self, number: int, candidates: list[Candidates]) -> RoundSelection:
        """As coordinator and shards do it, by the same search."""
        checkpoint = self.job.checkpoint
        if checkpoint.selection not in BY_DISTANCE:
            return decide(checkpoint.selection, checkpoint.fraction, number, self.job)
        keys = np.concatenate(
            [block_keys(self.job, one.store.table.name, one.ids, _known_distances(one)) for one in candidates]
        )
        found: ThresholdSearch | int = ThresholdSearch(blocks_per_round(checkpoint.fraction, self.job))
        while isinstance(found, ThresholdSearch):
            found = found.advance(count_keys(keys, found.within))
        return above(found)

    def _selected_mask(self, decision: RoundSelection, one: Candidates) -> NDArray[np.bool_]:
        return chosen(decision, self.job, one.store.table.name, one.ids, _known_distances(one))

    def _commit_manifest(self, number: int, clock: int, copied: list[CopiedBlocks]) -> None:
        """The manifest of a round; contents that no manifest names any more are forgotten."""
        key = f"round-{number}"
        groups = [replace(one.state, owner=SURVIVOR.key) for one in copied]
        header = ObjectHeader(tuple(ObjectSection(group) for group in groups))
        self._objects[key] = {one.state.table: one for one in copied}
        self._running = self._running.extended(
            [(ObjectRef(key=key), header)], Manifest(number=number, clock=clock)
        )
        named = {ref.key for ref in self._running.objects}
        self._objects = {key: held for key, held in self._objects.items() if key in named}

    def recover_lost(self, lost: LostBlocks) -> ModelState:
        """The state after ``lost`` blocks died with their shard and the survivor took them over.

        The training's own state stays as it is.
        """
        before = self._placement_before(lost)
        shard = self._start_shard(SURVIVOR, before)
        copies = SurvivingCopies(self.job, before, self._clock, self._ownership.tables)
        if self.job.strategy.missing:
            copies.replicate(self._start_shard(LOST_SHARD, before), shard)
        after = draft_epoch(
            self._intent_after(before),
            SavedBlocks(self._running),
            copies.replicas(shard, LOST_SHARD, lost),
            copies.offers(lost),
        )
        for load in _adopt_epoch(shard, after, self.job):
            ask_shard(shard, BlocksLoaded(load, self._restored_contents(load)))
        copies.send_blocks(shard, after)
        return dict(shard.state.ownership.tables)

    def _start_shard(self, member: Member, epoch: Epoch) -> Shard:
        """A shard with the training's values of what it owns."""
        shard = Shard(member)
        for load in _adopt_epoch(shard, epoch, self.job):
            store = self._ownership.tables[load.table]
            contents = store.copy_blocks(store.find_blocks(load.ids))
            ask_shard(shard, BlocksLoaded(load, contents))
        return shard

    def _intent_after(self, before: Epoch) -> EpochIntent:
        return EpochIntent(
            number=2,
            author="experiment",
            job=self.job,
            previous=before,
            shards=(SURVIVOR,),
            workers=before.workers,
            cause="failure",
            dead=(LOST_SHARD.key,),
            fenced=(LOST_SHARD.incarnation,),
            failure=1,
        )

    def _placement_before(self, lost: LostBlocks) -> Epoch:
        owners = {}
        for table in self.job.tables:
            owners[table.name] = np.ones(table.blocks, np.uint16)
            owners[table.name][lost.get(table.name, _no_ids())] = 0
        moved = tuple(
            BlockGroup(table.name, _all_ids(table), source=BlockSource.OBJECT)  # so they count as changed
            for table in self.job.tables
        )
        shards = (LOST_SHARD, SURVIVOR)
        clock = max(0, self._clock - 1)
        return Epoch(1, "experiment", self.job.name, shards, (WORKER,), owners, moved, clock=clock)

    def _restored_contents(self, load: BlockLoad) -> BlockContents:
        table = self.job.table(load.table)
        if load.source is BlockSource.INITIAL:
            return BlockContents(table.initial(self.job.seed, load.ids, table.init.array))
        held = self._objects[load.object_key][load.table]
        return select_contents(table, held.state.ids, held.contents, positions_of(held.state.ids, load.ids))


def _adopt_epoch(shard: Shard, epoch: Epoch, job: Job) -> list[BlockLoad]:
    """Returns what is to be loaded."""
    work, _ = ask_shard(shard, EpochReceived(epoch, job, complete=True))
    return [action.load for action in work if isinstance(action, StartLoad)]


@dataclass(frozen=True)
class BlockLoss:
    """How a failure loses blocks: a ``fraction`` of them, uniformly at random."""

    fraction: float

    def draw_lost(self, job: Job, random: np.random.Generator) -> LostBlocks:
        """Each block is lost with probability ``fraction``, as Theorem 4.2 assumes; the count varies by 1.

        Where ``fraction`` of the blocks is no whole number, the count is rounded up or down at random, with
        that mean.
        """
        exact = self.fraction * job.blocks
        count = math.floor(exact) + (random.random() < exact - math.floor(exact))
        return by_table(job, np.sort(random.permutation(job.blocks)[:count]))


def restore_values(state: ModelState, exact: ModelState, lost: LostBlocks, reset: bool) -> None:
    """Values alone, in place: slots and steps of these blocks stay as they came, or begin anew."""
    for name, ids in lost.items():
        store = state[name]
        at = store.find_blocks(ids)
        values = exact[name].copy_blocks(exact[name].find_blocks(ids)).values
        contents = replace(store.copy_blocks(at), values=values)
        if reset:
            slots = {slot: np.zeros_like(array) for slot, array in contents.slots.items()}
            contents = BlockContents(values, slots, np.zeros(len(ids), np.int64))
        store.install_blocks(at, contents)


def moved_distances(before: ModelState, after: ModelState) -> dict[str, NDArray[np.float32]]:
    """How far each block of each table is from where it was, in the table's norm."""
    found = {}
    for name, store in after.items():
        view = _shared_view(store)
        view.saved = before[name].values
        found[name] = block_distances(view)
    return found


def perturbation_norm(before: ModelState, after: ModelState) -> float:
    """||delta||: the norm of what a recovery changed, each table in its own norm."""
    norms = []
    for name, found in moved_distances(before, after).items():
        far = found.astype(np.float64)
        norms.append(float(np.linalg.norm(far) if after[name].table.norm == "l2" else far.sum()))
    return math.hypot(*norms)


def _shared_view(store: BlockStore) -> BlockStore:
    """Another store of the same memory, with saved values of its own."""
    view = BlockStore(store.table, store.ids)
    view.values = store.values
    view.slots = store.slots
    view.steps = store.steps
    view.saved = store.values.copy()
    return view


def _known_distances(one: Candidates) -> NDArray[np.float32]:
    return np.zeros(len(one.positions), np.float32) if one.distances is None else one.distances


def _all_ids(table: Table) -> Ids:
    return np.arange(table.blocks, dtype=np.uint32)


def _no_ids() -> Ids:
    return np.empty(0, np.uint32)
