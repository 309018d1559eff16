"""A world for the recovery coordinator: a store in memory, shards that follow the protocol's rules, a clock
that a test turns.

Every call to the store or to a shard is a *step*; a coordinator can be killed at each of them, before or
after its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scar.errors import (
    AlreadyExists,
    LivenessUnavailable,
    NotServing,
    ObjectNotFound,
    ScarError,
    StoreUnavailable,
    Unreachable,
)
from scar.event_log import EventRing
from scar.placement import NOBODY, BlockSource, Epoch, Member, Owners, Role, concatenate_owners, global_ids
from scar.tables import Job, Table, adam, rows
from scar.v1 import types_pb2
from scar.wire.epoch_messages import epoch_from_proto, epoch_to_proto
from scar_recovery.core.actions import PlannerAction, ReadClocks, SaveShard
from scar_recovery.core.block_sources import ReplicaCopy
from scar_recovery.core.epoch_intent import BlocksByTable, FreezeAnswer
from scar_recovery.core.events import ClocksRead, FailureReport, MemberFailed, ShardSaved, TimePassed
from scar_recovery.core.hot_blocks import BlockRates, ShardTraffic
from scar_recovery.core.planner import Planner
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.executor import Executor
from scar_recovery.leader_state import LeaderState
from scar_recovery.ledger_writer import LedgerWriter
from scar_recovery.recovery_store import RecoveryStore
from scar_recovery.shard_client import ShardState
from scar_runtime.store.base import Data, Store, joined
from scar_runtime.store.records import numbers


def owned_counts(owners: Mapping[str, Owners], shards: int) -> NDArray[np.int64]:
    """Blocks that each shard owns, over all tables."""
    total = np.zeros(shards, dtype=np.int64)
    for owner in owners.values():
        total += np.bincount(owner[owner != NOBODY], minlength=shards)[:shards]
    return total


def due(planner: Planner, now: float) -> PlannerAction | None:
    """What the planner wants done now. Shards that go are saved at once, and no clock is known."""
    for action in planner.handle(TimePassed(), now):
        match action:
            case SaveShard(member):
                planner.handle(ShardSaved(member.key), now)
                return due(planner, now)
            case ReadClocks(number):
                (action,) = planner.handle(ClocksRead(number, 0), now)
        return action
    return None


class Killed(BaseException):
    """The coordinator dies here. No handler of errors may catch it."""


@dataclass
class Fuse:
    """Kills at step ``at``: before the step has an effect, or after it when ``after`` is set. 0: never."""

    at: int = 0
    after: bool = False
    steps: int = 0
    burnt: bool = False

    def around(self, effect: Callable[[], object]) -> object:
        self.steps += 1
        now = self.steps == self.at
        if self.burnt or (now and not self.after):
            self.burnt = True
            raise Killed
        result = effect()
        if now:
            self.burnt = True
            raise Killed
        return result


class MemoryStore(Store):
    """``down``: every call fails."""

    def __init__(
        self, objects: dict[str, bytes] | None = None, prefix: str = "", root: MemoryStore | None = None
    ) -> None:
        super().__init__("memory:", prefix)
        self.objects: dict[str, bytes] = {} if objects is None else objects
        self._root = root or self
        self.fuse = Fuse()
        self.down = False

    def put(self, key: str, data: Data) -> None:
        self._step(lambda: self.objects.__setitem__(self._full_key(key), bytes(joined(data))))

    def create(self, key: str, data: Data) -> None:
        self._step(lambda: self._create(self._full_key(key), bytes(joined(data))))

    def _create(self, key: str, data: bytes) -> None:
        if self.objects.setdefault(key, data) is not data:
            raise AlreadyExists(f"{key} exists")

    def get(self, key: str) -> bytes:
        found = self._step(lambda: self.objects.get(self._full_key(key)))
        if found is None:
            raise ObjectNotFound(key)
        assert isinstance(found, bytes)
        return found

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def list(self, prefix: str = "") -> list[str]:
        base = f"{self.prefix}/" if self.prefix else ""
        self._step(lambda: None)
        return sorted(key.removeprefix(base) for key in self.objects if key.startswith(base + prefix))

    def delete(self, key: str) -> None:
        self._step(lambda: self.objects.pop(self._full_key(key), None))

    def under(self, prefix: str) -> Self:
        return type(self)(self.objects, f"{self.prefix}/{prefix}" if self.prefix else prefix, self._root)

    def _step(self, effect: Callable[[], object]) -> object:
        if self._root.down:
            raise StoreUnavailable("the store is down")
        return self._root.fuse.around(effect)


@dataclass
class FakeShard:
    """A shard by the book. ``values``: of every block of the job (global ids); -1 where it has none."""

    member: Member
    job: Job
    values: np.ndarray = field(init=False)
    epoch: Epoch | None = None
    running: bool = True  # the process exists
    silent: bool = False  # it exists and does not answer
    clock: int = 7
    frozen: int = 0  # epoch whose blocks are frozen
    aside: dict[int, int] = field(default_factory=dict)
    aside_epoch: int = 0

    def __post_init__(self) -> None:
        self.values = np.full(self.job.blocks, -1)

    def adopt(self, epoch: Epoch) -> None:
        if self.epoch is not None and epoch.number <= self.epoch.number:
            return
        index = epoch.shard_index(self.member.key)
        if index < 0 or self.member.incarnation in epoch.fenced:
            self.running = False
            return
        owned = concatenate_owners(self.job, epoch.owners) == index
        before, self.values = self.values, np.where(owned, self.values, -1)
        for group in epoch.moved:
            ids = group.ids.astype(np.int64) + self.job.bases[group.table]
            if group.former_owner == self.member.key and not epoch.rollback:
                continue
            for block in ids[owned[ids]]:
                if group.source == BlockSource.DONOR:
                    assert self.aside_epoch == epoch.number - 1, (
                        "a move was committed in a later epoch than it was frozen in"
                    )
                self.values[block] = self.aside[int(block)] if group.source == BlockSource.DONOR else 0
        assert bool((self.values[owned] >= 0).all()), (
            f"{self.member.key} does not know where blocks come from: {before}"
        )
        self.epoch, self.frozen, self.aside = epoch, 0, {}


class World:
    """Shards, a store, a clock. :meth:`lead` starts a coordinator; :meth:`settle` lets it work until
    nothing is left to do.
    """

    def __init__(
        self, job: Job | None = None, shards: int = 3, settings: PlannerSettings | None = None
    ) -> None:
        self.job = job or make_job(shards)
        self.settings = settings or PlannerSettings(move_bytes=400)
        self.store = MemoryStore()
        self.fuse = self.store.fuse
        self.shards: dict[str, FakeShard] = {}
        self.copies: list[ReplicaCopy] = []  # that shards keep of lost blocks
        self.whole_stories = False  # planners keep every event
        self.block_rates: NDArray[np.float64] | None = None  # bytes a second of every block (global ids)
        self.planners: dict[str, Planner] = {}  # of all leaders, by author
        self.redis_away = False
        self.lease_blocks: list[tuple[str, float]] = []  # whose lease no heartbeat renews any more, and since
        self.now = 100.0
        self._lives = 0

    def member(self, name: str, role: Role = Role.SHARD) -> Member:
        """A new life."""
        self._lives += 1
        return Member(role, name, f"{self._lives:012x}", f"{name}:{self._lives}")

    def start(self, name: str) -> FakeShard:
        """A new process; whoever had the name before is gone."""
        for old in self.shards.values():
            old.running = old.running and old.member.name != name
        shard = FakeShard(self.member(name), self.job)
        self.shards[shard.member.key] = shard
        return shard

    def present(self) -> list[FakeShard]:
        """Processes that answer."""
        return [shard for shard in self.shards.values() if shard.running and not shard.silent]

    def lead(self, author: str, begins_run: bool = False) -> Executor:
        """A coordinator that has taken over the job. Everybody who is in no epoch announces itself."""
        planner = self.planners[author] = Planner(
            author, self.settings, EventRing(complete=self.whole_stories)
        )
        state = LeaderState(planner, lambda: self.now)
        store = RecoveryStore(self.store, self.job)
        ledger = LedgerWriter(store, author, lambda: self.now, lambda: 0.0)
        executor = Executor(state, ledger, store, self, lambda work: work(), lambda _shard, saved: saved())
        executor.publisher = Delivery(self, executor)
        executor.take_over(begins_run)
        self.join_again(executor)
        return executor

    def join_again(self, executor: Executor) -> None:
        """Processes that are in no epoch announce themselves, as they do until they are in one."""
        for shard in self.present():
            if shard.epoch is None:
                executor.state.admit_member(shard.member)

    def tell_again(self, executor: Executor) -> None:
        """Shards that did not answer hear of the newest epoch: nobody gives up on a member of it."""
        if executor.state.epoch is not None and executor.publisher is not None:
            executor.publisher.publish(executor.state.epoch)

    def settle(self, executor: Executor, seconds: float = 30.0) -> None:
        """Work, and let time pass, until there is nothing to do or somebody else leads."""
        end = self.now + seconds
        while not executor.state.replaced_by and self.now < end:
            with suppress(LivenessUnavailable):
                executor.report_silent(self._block_lease)
            if executor.step():
                continue
            wake = executor.state.wake_after()
            if wake == float("inf"):
                with suppress(ScarError):  # a store that is down: the next time
                    executor.maintain_store()
                return
            self.now += max(wake, 1e-6)

    def _block_lease(self, key: str) -> None:
        if self.redis_away:
            raise LivenessUnavailable("Redis does not answer")
        self.lease_blocks.append((key, self.now))

    def fail(self, executor: Executor, shard: FakeShard, proved: bool = True, silence: float = 0.0) -> None:
        """The detector's report."""
        executor.state.post(MemberFailed(FailureReport(shard.member, proved, silence, 0.1, "test")))

    # --- what the coordinator asks (the Shards protocol)
    # -------------------------------------------------------------------

    def _shard(self, member: Member) -> FakeShard:
        shard = self.shards[member.key]
        if not shard.running or shard.silent:
            raise Unreachable(f"{member.key} does not answer")
        return shard

    def send_epoch(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        shard = self._shard(member)
        self.fuse.around(lambda: shard.adopt(epoch_from_proto(epoch)))
        return epoch.number, 0

    def read_state(self, member: Member) -> ShardState:
        shard = self._shard(member)
        return ShardState(shard.epoch.number if shard.epoch else 0, 0, shard.clock, True)

    def freeze_blocks(self, member: Member, epoch: int, blocks: BlocksByTable) -> FreezeAnswer:
        shard = self._shard(member)
        if shard.epoch is None or shard.epoch.number != epoch:
            raise NotServing("another epoch")
        self.fuse.around(lambda: setattr(shard, "frozen", epoch))
        return FreezeAnswer(7, {"worker-0@a": 3})

    def copy_blocks(self, target: Member, epoch: int, donor: Member, blocks: BlocksByTable) -> None:
        shard, source = self._shard(target), self._shard(donor)
        assert source.frozen == epoch, "blocks are copied while they change"
        ids = np.concatenate([ids.astype(np.int64) + self.job.bases[table] for table, ids in blocks.items()])

        def copy() -> None:
            shard.aside |= {int(block): int(source.values[block]) for block in ids}
            shard.aside_epoch = epoch

        self.fuse.around(copy)

    def read_traffic(self, member: Member, epoch: int, busiest: int) -> ShardTraffic | None:
        """As :attr:`block_rates` has it, of each block that the shard owns."""
        shard = self._shard(member)
        if shard.epoch is None or shard.epoch.number != epoch or self.block_rates is None:
            return None
        rates = {
            table: BlockRates(ids, self.block_rates[global_ids(self.job, table, ids)])
            for table, ids in shard.epoch.owned_by(member.key).items()
        }
        total = sum(float(one.rates.sum()) for one in rates.values())
        return ShardTraffic(member.key, total, rates if busiest else {})

    def claim_replicas(
        self, member: Member, epoch: int, dead: Sequence[str], blocks: BlocksByTable
    ) -> list[ReplicaCopy]:
        self._shard(member)
        return [copy for copy in self.copies if copy.holder == member]

    def is_serving(self, member: Member) -> bool:
        shard = self.shards.get(member.key)
        return shard is not None and shard.running and not shard.silent

    def is_watched(self, member: Member) -> bool:
        return True

    def refuses_connection(self, member: Member) -> bool:
        return member.key in self.shards and not self.shards[member.key].running

    is_gone = refuses_connection

    def close_link(self, member: Member) -> None:
        pass

    # --- the truth
    # --------------------------------------------------------------------------------------------------------

    def epochs(self) -> list[Epoch]:
        """All epochs in the store."""
        store = MemoryStore(self.store.objects)
        archive = RecoveryStore(store, self.job)
        return [
            epoch_from_proto(archive.read_epoch(number))
            for number in numbers(store.under(self.job.name), "epochs")
        ]

    def values(self) -> np.ndarray:
        """The value of every block at its owner; fails when a block has no owner, or its owner does not
        have it.
        """
        newest = self.epochs()[-1]
        owners = concatenate_owners(self.job, newest.owners)
        assert not (owners == NOBODY).any(), "a block has no owner"
        values = np.full(self.job.blocks, -1)
        for index, member in enumerate(newest.shards):
            shard = self.shards[member.key]
            assert shard.running, f"{member.key} is dead and owns blocks"
            assert shard.epoch is not None
            assert shard.epoch.number == newest.number, f"{member.key} does not know epoch {newest.number}"
            assert not shard.frozen, f"{member.key} stays frozen"
            values[owners == index] = shard.values[owners == index]
        assert bool((values >= 0).all()), "a block was lost"
        return values


@dataclass
class Delivery:
    """Tells shards at once, in order, in the caller's thread."""

    world: World
    executor: Executor

    def publish(self, epoch: Epoch) -> None:
        told: list[FakeShard] = []
        for shard in list(self.world.shards.values()):
            if shard.silent or not shard.running:
                continue
            for later in self._missed(shard, epoch):
                if shard.running:
                    self.world.send_epoch(shard.member, epoch_to_proto(later))
            if epoch.shard_index(shard.member.key) >= 0:
                told.append(shard)
                self.executor.shard_adopted(shard.member.key, {epoch.number: shard.clock})
        if len(told) == len(epoch.shards):
            self.executor.epoch_loaded(epoch.number, max((shard.clock for shard in told), default=0))

    def _missed(self, shard: FakeShard, newest: Epoch) -> list[Epoch]:
        """What the shard has not heard; for a new one, from the first epoch on that it is part of."""
        known = shard.epoch.number if shard.epoch is not None else 0
        missed = [epoch for epoch in self.world.epochs() if known < epoch.number <= newest.number]
        return missed if known else [epoch for epoch in missed if epoch.shard_index(shard.member.key) >= 0]


def make_job(shards: int = 3, **options: object) -> Job:
    """Three tables of 60 blocks together, of different sizes."""
    tables = [Table("a", (24, 3)), Table("b", (40, 2), rule=adam(), blocks=rows(2)), Table("c", 16)]
    return Job("test", tables, seed=5, shards=shards, **options)  # type: ignore[arg-type]
