"""Made-up jobs, epochs and pushes for the tests of one shard."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import scar
import scar.tables as tables
from scar.blocks import BlockState, Ids, Positions
from scar.event_log import EventRing
from scar.losses import LossPart, LossPoint
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table
from scar_ps.core import events, transfer_events
from scar_ps.core.actions import AnswerRequest, ParkRequest, RefuseRequest, ShardAction, StartLoad
from scar_ps.core.block_data import BlockContents, BlockLoad, CopiedBlocks, IncomingBlocks
from scar_ps.core.block_snapshot import PieceCopy, make_snapshots
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.checkpoint_round import Candidates
from scar_ps.core.clocks import ClockState
from scar_ps.core.epochs import EpochsMissing
from scar_ps.core.events import Event
from scar_ps.core.migrations import FrozenBlocks, FrozenState
from scar_ps.core.replica_store import ReplicationBatch, WantedReplicas
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.requests import MustWait, Sender, StagedPush, WantedBlocks
from scar_ps.core.rounds import StartedRound
from scar_ps.core.shard import Shard
from scar_runtime.checkpoint.manifest import ObjectRef

ChosenBlocks = Sequence[tuple[BlockStore, Positions]]
ME = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:1")
MOMENTUM_TEXT = {"v": "decay * v + g", "rate": "lr / step ** 0.5", "w": "clip(w - rate * v, -2, 2)"}
OTHER = Member(Role.SHARD, "ps-1", "bbbbbbbbbbbb", "127.0.0.1:2")


def worker(rank: int, life: int = 0) -> Member:
    return Member(Role.WORKER, f"worker-{rank}", f"{life:06d}{rank:06d}")


def sender(rank: int, life: int = 0) -> Sender:
    member = worker(rank, life)
    return Sender(member.name, member.incarnation)


def job(*declared: Table, **options: Any) -> Job:
    """``options``: of :class:`scar.Job`."""
    return Job("test", declared or (Table("w", (6, 2)),), **options)


def ids(*numbers: int) -> Ids:
    return np.array(numbers, np.uint32)


def group(
    table: str,
    blocks: Ids,
    former: Member | None = OTHER,
    source: BlockSource = BlockSource.OBJECT,
    **watermark: int,
) -> BlockGroup:
    """``watermark``: ``w0=3`` is worker-0's first incarnation."""
    named = {worker(int(name[1:])).key: push for name, push in watermark.items()}
    return BlockGroup(
        table,
        blocks,
        former_owner=former.key if former else "",
        source=source,
        object_key="objects/x",
        watermark=named,
    )


def first_epoch(spec: Job, owned: Mapping[str, Ids] | None = None, workers: int = 1, clock: int = 0) -> Epoch:
    """Epoch 1 with two shards: ours has ``owned`` (all blocks when None), the other one the rest; all at
    x(0).
    """
    owners = {}
    for table in spec.tables:
        owner = np.full(table.blocks, 0 if owned is None else 1, np.uint16)
        if owned is not None:
            owner[owned[table.name]] = 0
        owners[table.name] = owner
    return Epoch(
        number=1,
        author="recovery",
        job=spec.name,
        shards=(ME, OTHER),
        workers=tuple(worker(rank) for rank in range(workers)),
        owners=owners,
        moved=tuple(
            group(table.name, np.arange(table.blocks, dtype=np.uint32), None, BlockSource.INITIAL)
            for table in spec.tables
        ),
        clock=clock,
    )


def next_epoch(
    epoch: Epoch,
    gained: Mapping[str, Ids] | None = None,
    lost: Mapping[str, Ids] | None = None,
    moved: Sequence[BlockGroup] = (),
    **changes: object,
) -> Epoch:
    """The epoch after: our shard has gained and lost these blocks; ``moved`` says where they come from."""
    owners = {name: owner.copy() for name, owner in epoch.owners.items()}
    for name, blocks in (gained or {}).items():
        owners[name][blocks] = 0
    for name, blocks in (lost or {}).items():
        owners[name][blocks] = 1
    after: Epoch = replace(epoch, number=epoch.number + 1, owners=owners, moved=tuple(moved), **changes)  # type: ignore[arg-type]
    return after


class DrivenShard:
    """A shard's core with the events by name. What it refuses, or what has to wait, is raised; attributes are
    those of its state. ``now``: the time; ``actions``: what it wanted done last, beside the answer.
    """

    def __init__(self, member: Member, story: EventRing | None = None) -> None:
        self.core = Shard(member, story=story)
        self.state = self.core.state
        self.now = 0.0
        self.actions: list[ShardAction] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    def handle(self, event: Event) -> Any:
        *self.actions, answer = self.core.handle(event, self.now)
        if isinstance(answer, RefuseRequest):
            raise answer.error
        if isinstance(answer, ParkRequest):
            raise MustWait(answer.reason)
        assert isinstance(answer, AnswerRequest)
        return answer.result

    def started_loads(self) -> list[BlockLoad]:
        return [action.load for action in self.actions if isinstance(action, StartLoad)]

    # --- epochs and loads

    def adopt(self, epoch: Epoch, spec: Job) -> list[BlockLoad]:
        """What is to be loaded."""
        self.handle(events.EpochReceived(epoch, spec, complete=True))
        return self.started_loads()

    def bridged(self, epoch: Epoch, spec: Job) -> bool:
        """Would the shard adopt it, or does it lack epochs before? Asks a copy."""
        asked = copy.deepcopy(self.core)
        answer = asked.handle(events.EpochReceived(epoch, spec), self.now)[-1]
        assert isinstance(answer, AnswerRequest)
        return not isinstance(answer.result, EpochsMissing)

    def install(self, load: BlockLoad, contents: BlockContents) -> None:
        self.handle(events.BlocksLoaded(load, contents))

    def wanted(self, load: BlockLoad) -> bool:
        return load in self.state.ownership.loads

    # --- workers and readers

    def push(self, push: StagedPush) -> bool:
        """True: it was a duplicate."""
        return bool(self.handle(events.PushReceived(push)).duplicate)

    def await_copy(self, update: int) -> None:
        self.handle(events.AcknowledgementDue(update))

    def pull(
        self, who: Sender, epoch: int, min_clock: int, wanted: WantedBlocks, loss_clock: int = 0
    ) -> Sequence[StoreSlice]:
        found = self.handle(events.PullRequested(who, epoch, min_clock, wanted, loss_clock))
        return found.parts  # type: ignore[no-any-return]

    def pull_exact(self, who: Sender, epoch: int, clock: int, wanted: WantedBlocks) -> Sequence[StoreSlice]:
        found = self.handle(events.PullRequested(who, epoch, clock, wanted, exact=clock))
        return found.parts  # type: ignore[no-any-return]

    def mark(
        self,
        who: Sender,
        epoch: int,
        finished: int,
        part: LossPart | None = None,
        heard: LossPoint | None = None,
        first: int | None = None,
    ) -> None:
        self.handle(events.ClockFinished(who, epoch, finished, part, heard, first))

    def settle(self, who: Sender, epoch: int) -> ClockState:
        return self.handle(events.WorkerSettled(who, epoch))  # type: ignore[no-any-return]

    # --- migration

    def freeze(self, epoch: int, wanted: WantedBlocks) -> Mapping[str, int]:
        return self.freeze_state(epoch, wanted).watermark

    def freeze_state(self, epoch: int, wanted: WantedBlocks) -> FrozenState:
        return self.handle(transfer_events.FreezeRequested(epoch, wanted))  # type: ignore[no-any-return]

    def offer(self, epoch: int, wanted: WantedBlocks) -> FrozenBlocks:
        return self.handle(transfer_events.FrozenRequested(epoch, wanted))  # type: ignore[no-any-return]

    def frozen(self, epoch: int, wanted: WantedBlocks) -> Sequence[StoreSlice]:
        return self.offer(epoch, wanted).parts

    def put_aside(self, incoming: Sequence[IncomingBlocks]) -> None:
        self.handle(transfer_events.BlocksReceived(incoming))

    # --- rounds

    def begin_round(
        self, epoch: int, number: int, min_clock: int, author: str = "", by_distance: bool = False
    ) -> list[Candidates]:
        event = transfer_events.RoundStarted(epoch, number, min_clock, author, by_distance)
        started: StartedRound = self.handle(event)
        return started.candidates

    def measured(self, epoch: int, candidates: list[Candidates]) -> None:
        self.handle(transfer_events.CandidatesMeasured(epoch, candidates))

    def candidates(self, epoch: int, number: int) -> list[Candidates]:
        return self.handle(transfer_events.CandidatesRequested(epoch, number))  # type: ignore[no-any-return]

    def begin_copy(
        self, epoch: int, number: int, chosen: ChosenBlocks, baselines: frozenset[str] | None = None
    ) -> list[CopiedBlocks]:
        self.candidates(epoch, number)
        made = chain.from_iterable(make_snapshots(store, positions) for store, positions in chosen)
        event = transfer_events.BlocksChosen(epoch, number, list(made), baselines=baselines)
        copied: list[CopiedBlocks] = self.handle(event)
        return copied

    def copy_piece(self, copied: Sequence[CopiedBlocks]) -> bool:
        """One, if there is one more."""
        piece: PieceCopy | None = self.handle(transfer_events.CopyContinued(copied))
        if piece is not None:
            piece.copy()
        return piece is not None

    def copy_round(self, epoch: int, number: int, chosen: ChosenBlocks) -> list[CopiedBlocks]:
        copied = self.begin_copy(epoch, number, chosen)
        while self.copy_piece(copied):
            pass
        return copied

    def uploaded(
        self, epoch: int, copied: Sequence[CopiedBlocks], object_key: str = "", saved: ObjectRef | None = None
    ) -> None:
        ref = saved or ObjectRef(object_key)
        self.handle(transfer_events.ObjectUploaded(epoch, copied, ref))

    def finish_round(self, number: int, committed: bool, author: str = "", object_key: str = "") -> bool:
        saved = self.hear_end(number, committed, author, object_key)
        while self.install_piece():
            pass
        return saved

    def hear_end(self, number: int, committed: bool, author: str = "", object_key: str = "") -> bool:
        return bool(self.handle(transfer_events.RoundFinished(number, committed, author, object_key)))

    def install_piece(self) -> bool:
        return bool(self.handle(transfer_events.InstallContinued()))

    def miss_round(self, copied: Sequence[CopiedBlocks]) -> None:
        self.handle(transfer_events.UploadFailed(copied))

    # --- replication

    @property
    def kept(self) -> int:
        """Blocks of other shards that it keeps a copy of."""
        return len(self.state.replicas)

    def load(self) -> OutgoingBatch:
        return self.handle(transfer_events.OutgoingRequested())  # type: ignore[no-any-return]

    def arrived(self, outgoing: OutgoingBatch, batch: ReplicationBatch) -> None:
        self.handle(transfer_events.BatchArrived(outgoing, batch))

    def failed(self, batch: ReplicationBatch, gap: bool) -> None:
        self.handle(transfer_events.BatchFailed(batch, gap))

    def complete(self, outgoing: OutgoingBatch, released: bool) -> None:
        self.handle(transfer_events.OutgoingCompleted(outgoing, released))

    def receive(self, batch: ReplicationBatch) -> None:
        self.handle(transfer_events.BatchReceived(batch))

    def claim(self, epoch: int, dead: Sequence[str], wanted: WantedReplicas) -> list[BlockState]:
        return self.handle(transfer_events.ReplicasClaimed(epoch, dead, wanted))  # type: ignore[no-any-return]

    def release(self, epoch: int, owner: str) -> None:
        self.handle(transfer_events.ReplicasReleased(epoch, owner))


def load_initial(shard: DrivenShard, spec: Job, loads: Sequence[BlockLoad]) -> None:
    for load in loads:
        shard.install(load, BlockContents(spec.table(load.table).initial(spec.seed, load.ids)))


def started(
    spec: Job, owned: Mapping[str, Ids] | None = None, workers: int = 1, clock: int = 0
) -> tuple[DrivenShard, Epoch]:
    """A shard in epoch 1 with everything loaded, and all workers settled."""
    shard, epoch = DrivenShard(ME), first_epoch(spec, owned, workers, clock)
    load_initial(shard, spec, shard.adopt(epoch, spec))
    for rank in range(workers):
        shard.settle(sender(rank), 1)
    return shard, epoch


def part(shard: DrivenShard, table: str, blocks: Ids | None, values: ArrayLike) -> StoreSlice:
    store = shard.ownership.tables[table]
    return StoreSlice(
        store,
        None if blocks is None else store.locate_blocks(blocks),
        np.array(values, store.values.dtype).reshape(-1),
    )


def push(
    shard: DrivenShard,
    rank: int,
    seq: int,
    blocks: Ids | None,
    values: ArrayLike,
    *,
    table: str = "w",
    clock: int = 0,
    push_id: int = 0,
    life: int = 0,
    epoch: int = 0,
) -> bool:
    """One push of one table; True when it was a duplicate."""
    parts = {table: part(shard, table, blocks, values)}
    return shard.push(
        StagedPush(sender(rank, life), epoch or shard.number, seq, push_id or seq, clock, parts)
    )


def values(shard: DrivenShard, table: str = "w") -> list[float]:
    return shard.ownership.tables[table].values.tolist()  # type: ignore[no-any-return]


def every_rule(dtype: str = "float32") -> list[tables.Rule]:
    rules = [tables.assign(), tables.add()]
    if dtype.startswith("float"):
        rules += [tables.sgd(0.1), tables.momentum(0.1, 0.9), tables.adagrad(0.1), tables.adam(0.1)]
        rules += [tables.sgd(0.1, 0.2), tables.momentum(0.1, 0.9, nesterov=True, weight_decay=0.2)]
        rules += [tables.adamw(0.1, weight_decay=0.2), tables.rmsprop(0.1), tables.rmsprop(0.1, momentum=0.9)]
        rules += [
            scar.ftrl(0.1, l1=0.5, l2=0.1),
            scar.rule(MOMENTUM_TEXT, slots=["v"], lr=0.1, decay=0.9),
        ]
    return rules
