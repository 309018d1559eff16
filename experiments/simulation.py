"""A training, its running checkpoints and its failures in one process, by the very cores that the services run.

    state = initial(job)                          # x(0): table -> BlockStore, changed in place by the training
    saver = Saver(job, state)                     # one policy; several may watch one training
    saver.after(clock)                            # a round, when one is due: distances, selection, copy, commit
    perturbed = saver.recover(lost)               # a placement is drafted, a shard adopts it, loads what it gained

Here is only what the services do with threads, stores and streams: nothing decides anything. Distances are from
``scar_ps.distances``, selection from ``scar_runtime.selection``, copies from ``scar_ps.rounds``, the running checkpoint from
``scar_runtime.running``, who takes over from ``scar_recovery.plans``, and a ``scar_ps.shard`` installs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scar.blocks import Ids, positions_of
from scar.placement import BlockGroup, Epoch, Member, Role, Source, by_table
from scar.tables import Job, Table
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.ps_pb2 import ObjectRef
from scar_ps.blockstore import BlockStore, Contents
from scar_ps.distances import distances
from scar_ps.holdings import Holdings, Load, subset
from scar_ps.rounds import Candidates, Copied, Rounds
from scar_ps.shard import Shard
from scar_recovery.archive import SavedBlocks
from scar_recovery.plans import Intent, draft
from scar_runtime.objects import Group, ObjectHeader, Section
from scar_runtime.running import RunningCheckpoint
from scar_runtime.selection import Decision, chosen, decide

State = dict[str, BlockStore]
Lost = Mapping[str, Ids]

DOOMED = Member(Role.SHARD, "ps-0", "doomed")
SURVIVOR = Member(Role.SHARD, "ps-1", "survivor")
NO_CRC = np.empty(0, np.uint32)  # nothing is written, so there is nothing to check


def initial(job: Job) -> State:
    """x(0) of every table, all blocks in one store."""
    state = {}
    for table in job.tables:
        store = BlockStore(table, _all(table))
        store.install(np.arange(len(store)), Contents(table.initial(job.seed, store.ids, table.init.array)))
        state[table.name] = store
    return state


def duplicate(state: State) -> State:
    """A copy that shares nothing with the original."""
    copies = {}
    for name, store in state.items():
        copies[name] = BlockStore(store.table, store.ids)
        copies[name].install(np.arange(len(store)), store.copy(np.arange(len(store))))
    return copies


def nothing() -> None:
    """The cores report progress during long work; here nobody listens."""


class Saver:
    """The running checkpoint of one policy (``job.checkpoint``, ``job.recovery``) over a training that changes ``state``."""

    def __init__(self, job: Job, state: State) -> None:
        self.job = job
        self._holdings = Holdings(SURVIVOR.key, nothing)
        self._holdings.tables = {name: _view(store) for name, store in state.items()}
        self._rounds = Rounds()
        self._running = RunningCheckpoint(job)
        self._objects: dict[str, dict[str, Copied]] = {}

    def after(self, clock: int) -> None:
        """``clock`` clocks are closed: hold a round if one is due."""
        if clock and clock % self.job.checkpoint.every == 0:
            self._round(clock // self.job.checkpoint.every, clock)

    def _round(self, number: int, clock: int) -> None:
        candidates = self._rounds.begin(number, self._holdings)
        for one in candidates:
            one.distances = distances(one.store)[one.positions]
        self._rounds.measured(number, candidates)
        reports = [(one.store.table.name, one.ids, _measured(one)) for one in candidates]
        checkpoint = self.job.checkpoint
        decision = decide(checkpoint.selection, checkpoint.fraction, number, self.job, reports)
        selected = [(one.store, one.positions[self._mask(decision, one)]) for one in candidates]
        copied = self._rounds.copy(number, clock, selected, self._holdings, {})
        self._rounds.uploaded(copied)
        self._rounds.finish(number, committed=True)
        self._list(number, clock, copied)

    def _mask(self, decision: Decision, one: Candidates) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return chosen(decision, self.job, one.store.table.name, one.ids, _measured(one))

    def _list(self, number: int, clock: int, copied: list[Copied]) -> None:
        """The manifest of a round; contents that no manifest names any more are forgotten."""
        key = f"round-{number}"
        groups = [Group(one.table, one.ids, clock, {}, SURVIVOR.key) for one in copied]
        header = ObjectHeader(tuple(Section(group, 0, NO_CRC) for group in groups))
        self._objects[key] = {one.table: one for one in copied}
        self._running = self._running.extended([(ObjectRef(key=key), header)], Manifest(number=number, clock=clock))
        named = {ref.key for ref in self._running.objects}
        self._objects = {key: held for key, held in self._objects.items() if key in named}

    def recover(self, lost: Lost) -> State:
        """The state after ``lost`` blocks died with their shard and the survivor took them over. ``state`` stays as it is."""
        before = self._placement(lost)
        shard = Shard(SURVIVOR)
        for load in shard.adopt(before, self.job):
            store = self._holdings.tables[load.table]
            shard.install(load, store.copy(store.find(load.ids)))
        intent = Intent(
            number=2,
            author="experiment",
            job=self.job,
            previous=before,
            shards=(SURVIVOR,),
            workers=(),
            cause="failure",
            dead=(DOOMED.key,),
            fenced=(DOOMED.incarnation,),
            failure=1,
        )
        for load in shard.adopt(draft(intent, SavedBlocks(self._running)), self.job):
            shard.install(load, self._restored(load))
        return dict(shard.holdings.tables)

    def _placement(self, lost: Lost) -> Epoch:
        owners = {}
        for table in self.job.tables:
            owners[table.name] = np.ones(table.blocks, np.uint16)
            owners[table.name][lost.get(table.name, _none())] = 0
        moved = tuple(BlockGroup(table.name, _all(table), "", Source.INITIAL) for table in self.job.tables)
        return Epoch(1, "experiment", self.job.name, (DOOMED, SURVIVOR), (), owners, moved)

    def _restored(self, load: Load) -> Contents:
        table = self.job.table(load.table)
        if load.source is Source.INITIAL:
            return Contents(table.initial(self.job.seed, load.ids, table.init.array))
        held = self._objects[load.object_key][load.table]
        return subset(table, held.ids, held.contents, positions_of(held.ids, load.ids))


@dataclass(frozen=True)
class Loss:
    """How a failure loses blocks: a ``fraction`` of them, uniformly at random."""

    fraction: float

    def draw(self, job: Job, random: np.random.Generator) -> Lost:
        """Each block is lost with probability ``fraction`` (the assumption of Theorem 4.2), and the count varies by at most 1.

        Where ``fraction`` of the blocks is no whole number, the count is rounded up or down at random, with that mean.
        """
        exact = self.fraction * job.blocks
        count = math.floor(exact) + (random.random() < exact - math.floor(exact))
        return by_table(job, np.sort(random.permutation(job.blocks)[:count]))


def moved(before: State, after: State) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """How far each block of each table is from where it was, in the table's norm."""
    found = {}
    for name, store in after.items():
        view = _view(store)
        view.saved = before[name].values
        found[name] = distances(view)
    return found


def perturbation(before: State, after: State) -> float:
    """||delta||: the norm of what a recovery changed, each table in its own norm."""
    norms = []
    for name, found in moved(before, after).items():
        far = found.astype(np.float64)
        norms.append(float(np.linalg.norm(far) if after[name].table.norm == "l2" else far.sum()))
    return math.hypot(*norms)


def _view(store: BlockStore) -> BlockStore:
    """Another store of the same memory, with saved values of its own."""
    view = BlockStore(store.table, store.ids)
    view.values, view.slots, view.steps = store.values, store.slots, store.steps
    view.saved = store.values.copy()
    return view


def _measured(one: Candidates) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.zeros(len(one.positions), np.float32) if one.distances is None else one.distances


def _all(table: Table) -> Ids:
    return np.arange(table.blocks, dtype=np.uint32)


def _none() -> Ids:
    return np.empty(0, np.uint32)
