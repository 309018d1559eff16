"""A world for the recovery coordinator: a store in memory, shards that follow the protocol's rules, a clock that a test turns.

Every call to the store or to a shard is a *step*; a coordinator can be killed at each of them, before or after its effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from scar.codec import epoch_from_proto, epoch_to_proto
from scar.errors import AlreadyExists, NotServing, ObjectNotFound, ScarError, StoreUnavailable, Unreachable
from scar.placement import NOBODY, Epoch, Member, Role, Source, concatenated
from scar.tables import Job, Table, adam, rows
from scar.v1 import types_pb2
from scar_recovery.archive import Archive
from scar_recovery.executor import Executor
from scar_recovery.members import Report
from scar_recovery.planner import Planner, Settings
from scar_recovery.plans import Blocks, Copy
from scar_recovery.shards import ShardState
from scar_runtime.store.base import Data, Store, joined


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

    def __init__(self, objects: dict[str, bytes] | None = None, prefix: str = "", root: MemoryStore | None = None) -> None:
        super().__init__("memory:", prefix)
        self.objects: dict[str, bytes] = {} if objects is None else objects
        self._root = root or self
        self.fuse = Fuse()
        self.down = False

    def put(self, key: str, data: Data) -> None:
        self._step(lambda: self.objects.__setitem__(self._full(key), bytes(joined(data))))

    def create(self, key: str, data: Data) -> None:
        self._step(lambda: self._create(self._full(key), bytes(joined(data))))

    def _create(self, key: str, data: bytes) -> None:
        if self.objects.setdefault(key, data) is not data:
            raise AlreadyExists(f"{key} exists")

    def get(self, key: str) -> bytes:
        found = self._step(lambda: self.objects.get(self._full(key)))
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
        self._step(lambda: self.objects.pop(self._full(key), None))

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
        owned = concatenated(self.job, epoch.owners) == index
        before, self.values = self.values, np.where(owned, self.values, -1)
        for group in epoch.moved:
            ids = group.ids.astype(np.int64) + self.job.bases[group.table]
            if group.former_owner == self.member.key and not epoch.rollback:
                continue
            for block in ids[owned[ids]]:
                if group.source == Source.DONOR:
                    assert self.aside_epoch == epoch.number - 1, "a move was committed in a later epoch than it was frozen in"
                self.values[block] = self.aside[int(block)] if group.source == Source.DONOR else 0
        assert bool((self.values[owned] >= 0).all()), f"{self.member.key} does not know where blocks come from: {before}"
        self.epoch, self.frozen, self.aside = epoch, 0, {}


class World:
    """Shards, a store, a clock. :meth:`lead` starts a coordinator; :meth:`settle` lets it work until nothing is left to do."""

    def __init__(self, job: Job | None = None, shards: int = 3, settings: Settings | None = None) -> None:
        self.job = job or make_job(shards)
        self.settings = settings or Settings(move_bytes=400)
        self.store = MemoryStore()
        self.fuse = self.store.fuse
        self.shards: dict[str, FakeShard] = {}
        self.copies: list[Copy] = []  # that shards keep of lost blocks
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

    def lead(self, author: str) -> Executor:
        """A coordinator that has taken over the job. Everybody who is in no epoch announces itself."""
        planner = Planner(author, self.settings)
        archive = Archive(self.store, self.job)
        executor = Executor(
            planner, self.job, archive, self, threading.Condition(), lambda work: work(), lambda: self.now, lambda: 0.0
        )
        executor.delivery = Delivery(self, executor)
        executor.take_over()
        self.join_again(executor)
        return executor

    def join_again(self, executor: Executor) -> None:
        """Processes that are in no epoch announce themselves, as they do until they are in one."""
        for shard in self.present():
            if shard.epoch is None:
                executor.planner.members.joined(shard.member, self.now)

    def tell_again(self, executor: Executor) -> None:
        """Shards that did not answer hear of the newest epoch: nobody gives up on a member of it."""
        if executor.planner.epoch is not None and executor.delivery is not None:
            executor.delivery.deliver(executor.planner.epoch)

    def settle(self, executor: Executor, seconds: float = 30.0) -> None:
        """Work, and let time pass, until there is nothing to do or somebody else leads."""
        end = self.now + seconds
        while not executor.deposed and self.now < end:
            if executor.step():
                continue
            wake = executor.planner.wake(self.now)
            if wake == float("inf"):
                with suppress(ScarError):  # a store that is down: the next time
                    executor.write_books()
                return
            self.now += max(wake, 1e-6)

    def fail(self, executor: Executor, shard: FakeShard, proved: bool = True, silence: float = 0.0) -> None:
        """The detector's report."""
        executor.planner.members.failed(Report(shard.member, proved, silence, 0.1, "test"), self.now)

    # --- what the coordinator asks (the Shards protocol) -------------------------------------------------------------------

    def _shard(self, member: Member) -> FakeShard:
        shard = self.shards[member.key]
        if not shard.running or shard.silent:
            raise Unreachable(f"{member.key} does not answer")
        return shard

    def adopt(self, member: Member, epoch: types_pb2.Epoch) -> tuple[int, int]:
        shard = self._shard(member)
        self.fuse.around(lambda: shard.adopt(epoch_from_proto(epoch)))
        return epoch.number, 0

    def state(self, member: Member) -> ShardState:
        shard = self._shard(member)
        return ShardState(shard.epoch.number if shard.epoch else 0, 0, 7, True)

    def freeze(self, member: Member, epoch: int, blocks: Blocks) -> tuple[int, Mapping[str, int]]:
        shard = self._shard(member)
        if shard.epoch is None or shard.epoch.number != epoch:
            raise NotServing("another epoch")
        self.fuse.around(lambda: setattr(shard, "frozen", epoch))
        return 7, {"worker-0@a": 3}

    def receive(self, target: Member, epoch: int, donor: Member, blocks: Blocks) -> None:
        shard, source = self._shard(target), self._shard(donor)
        assert source.frozen == epoch, "blocks are copied while they change"
        ids = np.concatenate([ids.astype(np.int64) + self.job.bases[table] for table, ids in blocks.items()])

        def copy() -> None:
            shard.aside |= {int(block): int(source.values[block]) for block in ids}
            shard.aside_epoch = epoch

        self.fuse.around(copy)

    def claim(self, member: Member, epoch: int, dead: Sequence[str], blocks: Blocks) -> list[Copy]:
        self._shard(member)
        return [copy for copy in self.copies if copy.holder == member]

    def alive(self, member: Member) -> bool:
        shard = self.shards.get(member.key)
        return shard is not None and shard.running and not shard.silent

    def refuses(self, member: Member) -> bool:
        return member.key in self.shards and not self.shards[member.key].running

    gone = refuses

    def forget(self, member: Member) -> None:
        pass

    # --- the truth ------------------------------------------------------------------------------------------------------------

    def epochs(self) -> list[Epoch]:
        """All epochs in the store."""
        archive = Archive(MemoryStore(self.store.objects), self.job)
        return [epoch_from_proto(archive.epoch(number)) for number in range(1, archive.newest_epoch() + 1)]

    def values(self) -> np.ndarray:
        """The value of every block at its owner; fails when a block has no owner, or its owner does not have it."""
        newest = self.epochs()[-1]
        owners = concatenated(self.job, newest.owners)
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

    def deliver(self, epoch: Epoch) -> None:
        told = 0
        for shard in list(self.world.shards.values()):
            if shard.silent or not shard.running:
                continue
            for later in self._missed(shard, epoch):
                if shard.running:
                    self.world.adopt(shard.member, epoch_to_proto(later))
            told += epoch.shard_index(shard.member.key) >= 0
        if told == len(epoch.shards):
            self.executor.served(epoch.number, 7)

    def _missed(self, shard: FakeShard, newest: Epoch) -> list[Epoch]:
        """What the shard has not heard; for a new one, from the first epoch on that it is part of."""
        known = shard.epoch.number if shard.epoch is not None else 0
        missed = [epoch for epoch in self.world.epochs() if known < epoch.number <= newest.number]
        return missed if known else [epoch for epoch in missed if epoch.shard_index(shard.member.key) >= 0]


def make_job(shards: int = 3, **options: object) -> Job:
    """Three tables of 60 blocks together, of different sizes."""
    tables = [Table("a", (24, 3)), Table("b", (40, 2), rule=adam(), blocks=rows(2)), Table("c", 16)]
    return Job("test", tables, seed=5, shards=shards, **options)  # type: ignore[arg-type]
