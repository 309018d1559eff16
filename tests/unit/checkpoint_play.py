"""A checkpoint coordinator that is driven by hand: events and a made-up clock in, actions out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scar.blocks import BlockState
from scar.event_log import EventRing, replay
from scar.placement import Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table
from scar_checkpoint.core.coordinator import Coordinator
from scar_checkpoint.core.events import (
    BlocksSaved,
    ClockTicked,
    CommitManifest,
    CoordinatorAction,
    CoordinatorEvent,
    CopyBlocks,
    CountKeys,
    DistancesMeasured,
    EpochAdopted,
    FinishRound,
    KeysCounted,
    LeadershipGained,
    ManifestCommitted,
    MeasureDistances,
    ShardFinished,
)
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.objects import ObjectHeader, ObjectSection
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.top_keys import KeyRange, block_keys, count_keys
from scar_runtime.store.layout import object_key

A, B, C = (Member(Role.SHARD, f"ps-{n}", f"{n:012x}", f"127.0.0.1:{n}") for n in range(3))
BLOCKS = 12
Kind = TypeVar("Kind", bound=CoordinatorAction)


def job_with(selection: str = "priority", fraction: float = 0.25, period: int = 8, **rest: Any) -> Job:
    return Job("job", [Table("w", (BLOCKS,))], checkpoint=Checkpoint(selection, fraction, period), **rest)


def epoch_of(number: int, *shards: Member, **rest: Any) -> Epoch:
    return Epoch(number, "author", "job", shards, (), {"w": np.zeros(BLOCKS, np.uint16)}, **rest)


class Play:
    """A coordinator that leads from x(0) over two shards, at time 100; collects the actions of every
    event. Shards that have measured count their keys at once, unless ``counting`` is False.
    """

    def __init__(self, job: Job | None = None, shards: Sequence[Member] = (A, B), number: int = 0) -> None:
        self.job = job or job_with()
        self.core = Coordinator(self.job, "me", timeout=30.0, story=EventRing(complete=True))
        self.now = 100.0
        self.actions: list[CoordinatorAction] = []
        self.counting = True
        self.keys: dict[str, NDArray[np.uint64]] = {}  # shard -> of the blocks that it has measured
        self.do(LeadershipGained(RunningCheckpoint(self.job), number, -1.0))
        self.do(EpochAdopted(epoch_of(1, *shards)))

    def do(self, event: CoordinatorEvent) -> list[CoordinatorAction]:
        """The actions that it leads to are collected, too."""
        actions = self.core.handle(event, self.now)
        self.actions += actions
        for asked in self.take(CountKeys) if self.counting else ():
            self.count(asked)
        return actions

    def count(self, asked: CountKeys) -> None:
        """This shard answers."""
        counts = count_keys(self.keys[asked.shard.key], asked.within)
        self.do(KeysCounted(asked.round, asked.shard.key, asked.within, counts))

    def assert_story_replays(self) -> None:
        """A fresh coordinator that is fed the same events acts the same."""
        story = self.core.story.entries()
        assert any(isinstance(action, CommitManifest) for entry in story for action in entry.actions)
        assert replay(story, Coordinator(self.job, "me", timeout=30.0).handle) == []

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The actions of this kind so far, each once."""
        found = [action for action in self.actions if isinstance(action, kind)]
        self.actions = [action for action in self.actions if not isinstance(action, kind)]
        return found

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.do(ClockTicked())

    def measure(self, *asked: MeasureDistances, clock: int = 2, far: dict[str, float] | None = None) -> None:
        """These shards answer: A holds the even blocks, B the odd ones, C none; all distances are 1 unless
        ``far`` says.
        """
        for one in asked:
            first = {A.key: 0, B.key: 1}.get(one.shard.key, BLOCKS)
            ids = np.arange(first, BLOCKS, 2, dtype=np.uint32)
            values = np.full(len(ids), (far or {}).get(one.shard.key, 1.0), np.float32)
            self.keys[one.shard.key] = keys = block_keys(self.job, "w", ids, values)
            counts = count_keys(keys, KeyRange())
            self.do(DistancesMeasured(one.round, one.shard.key, clock, len(ids), counts))

    def save(self, copy: CopyBlocks, ids: Sequence[int], clock: int = 2) -> ObjectRef | None:
        """This shard's object of these blocks is durable."""
        if not ids:
            self.do(BlocksSaved(copy.round, copy.shard.key, None, 0.001))
            return None
        ref, header = entry(
            object_key(copy.epoch, copy.shard.key, copy.round), ids, clock, copy.shard.key, copy.round
        )
        self.do(BlocksSaved(copy.round, copy.shard.key, (ref, header), 0.001))
        return ref

    def commit(self) -> Manifest:
        (action,) = self.take(CommitManifest)
        self.do(ManifestCommitted(action.round, action.running))
        return action.running.manifest

    def finish(self) -> dict[str, bool]:
        """All shards hear the end: name -> committed."""
        told = self.take(FinishRound)
        for one in told:
            self.do(ShardFinished(one.round, one.shard.key))
        return {one.shard.name: one.committed for one in told}

    def round(self, ids: dict[str, list[int]] | None = None, clock: int = 2) -> Manifest:
        """A whole round that goes well."""
        self.measure(*self.take(MeasureDistances), clock=clock)
        for copy in self.take(CopyBlocks):
            self.save(copy, (ids or {A.name: [0], B.name: [1]}).get(copy.shard.name, []), clock)
        manifest = self.commit()
        self.finish()
        return manifest


def entry(
    key: str, ids: Sequence[int], clock: int, owner: str, number: int = 1
) -> tuple[ObjectRef, ObjectHeader]:
    group = BlockState("w", np.array(ids, np.uint32), clock, {}, owner)
    header = ObjectHeader((ObjectSection(group),))
    return ObjectRef(key=key, bytes=100, owner=owner, round=number, blocks=len(ids), clock=clock), header
