"""Which cluster trains a job: one at a time, and never one that has to guess."""

from __future__ import annotations

import threading

import pytest

from scar.errors import JobExists, NotServing
from scar.placement import END, Member, Role
from scar.v1 import types_pb2
from scar.wire.codec import member_to_proto
from scar_recovery import job_ownership
from scar_recovery.core.owner_watch import EXPIRY
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_ownership import Claimant, JobOwnership, cluster_id
from scar_recovery.job_registry import JobRegistry
from scar_runtime.store.layout import numbered
from scar_runtime.store.records import create_record
from tests.framework.recovery import MemoryStore, make_job

SHARDS = [Member(Role.SHARD, f"ps-{number}", f"{number:012x}", f"host:{number}") for number in range(2)]


class Shards:
    """Of another cluster. ``serving``, ``strangers``, ``refusing``: member keys; of the others nothing is
    known.
    """

    def __init__(self) -> None:
        self.serving: set[str] = set()
        self.strangers: set[str] = set()
        self.refusing: set[str] = set()

    def is_serving(self, member: Member) -> bool:
        return member.key in self.serving

    def read_incarnation(self, member: Member) -> str:
        return (
            "f" * 12
            if member.key in self.strangers
            else member.incarnation
            if member.key in self.serving
            else ""
        )

    def is_gone(self, member: Member) -> bool:
        return member.key in self.refusing


class World:
    """A store with job "test", trained by cluster one; cluster two wants it."""

    def __init__(self) -> None:
        self.store, self.shards, self.now = MemoryStore(), Shards(), 100.0
        self.one, self.two = self.cluster("one", "a"), self.cluster("two", "b")
        self.one.claim("test")
        self.epoch(1, "start")

    def cluster(self, name: str, author: str) -> JobOwnership:
        claimant = Claimant(cluster_id(f"redis://{name}", "scar"), "scar", author)
        return JobOwnership(self.store, claimant, self.shards, lambda: self.now)

    def epoch(self, number: int, cause: str) -> None:
        shards = [] if cause == END else [member_to_proto(shard) for shard in SHARDS]
        epoch = types_pb2.Epoch(number=number, job="test", cause=cause, shards=shards)
        create_record(self.store.under("test"), numbered("epochs", number), epoch)

    def try_for(self, cluster: JobOwnership, seconds: float, beats: JobOwnership | None = None) -> None:
        """Claim again and again, as a client does."""
        end = self.now + seconds
        while True:
            try:
                return cluster.claim("test")
            except NotServing:
                if self.now >= end:
                    raise
            self.now += 0.5
            if beats is not None:
                beats.write_beat("test")


def test_a_job_that_is_trained_is_not_given_away() -> None:
    world = World()
    world.one.write_beat("test")
    with pytest.raises(NotServing, match="waits 5 s"):
        world.two.claim("test")
    with pytest.raises(JobExists, match="trained by another cluster"):
        world.try_for(world.two, 60, beats=world.one)
    assert world.one.may_train("test")
    assert not world.two.may_train("test")


def test_an_owner_without_a_sign_of_life_is_replaced_after_a_while() -> None:
    world = World()
    world.one.write_beat("test")
    begin = world.now
    world.try_for(world.two, 60)
    assert EXPIRY <= world.now - begin <= EXPIRY + 1
    assert world.two.may_train("test")
    assert not world.one.may_train("test")


def test_shards_that_serve_keep_the_job_though_their_coordinator_is_away() -> None:
    world = World()
    world.shards.serving = {SHARDS[1].key}
    with pytest.raises(JobExists, match="serve"):
        world.try_for(world.two, 60)


def test_an_old_look_proves_nothing() -> None:
    """The owner lived on after it, and may have died just now: neither is known."""
    world = World()
    world.one.write_beat("test")
    with pytest.raises(NotServing):
        world.two.claim("test")
    world.now += 3600
    world.one.write_beat("test")
    with pytest.raises(NotServing):
        world.two.claim("test")
    world.try_for(world.two, 60)


@pytest.mark.parametrize("how", ["refusing", "strangers"])
def test_shards_that_are_provably_dead_need_no_wait(how: str) -> None:
    world = World()
    world.one.write_beat("test")
    setattr(world.shards, how, {shard.key for shard in SHARDS})
    world.two.claim("test")
    assert world.two.may_train("test")


def test_one_dead_shard_proves_nothing() -> None:
    world = World()
    world.shards.refusing = {SHARDS[0].key}
    with pytest.raises(NotServing):
        world.two.claim("test")


def test_a_job_that_has_ended_is_free() -> None:
    world = World()
    world.one.write_beat("test")
    world.epoch(2, END)
    assert world.two.has_ended("test")
    world.two.claim("test")
    assert world.two.may_train("test")


def test_the_next_leader_of_the_same_cluster_waits_for_nothing() -> None:
    world = World()
    world.one.write_beat("test")
    world.cluster("one", "c").claim("test")
    assert len(world.store.list("test/owners/")) == 1


def test_who_says_so_takes_it_and_the_former_owner_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ownership, "OWNER_BEAT_SECONDS", 0.001)
    world, heard = World(), list[str]()
    world.two.claim("test", take_over=True)
    world.one.keep_beating("test", threading.Event(), heard.append)
    assert heard == ["b"]


def test_one_of_two_that_claim_at_once_wins() -> None:
    world = World()
    third = world.cluster("three", "c")
    world.shards.refusing = {shard.key for shard in SHARDS}
    world.two.claim("test")
    world.shards.refusing = set()
    with pytest.raises(NotServing):
        third.claim("test")
    assert world.two.may_train("test")


def test_clusters_are_told_apart_by_redis_and_label() -> None:
    ids = {cluster_id(redis, label) for redis in ("redis://a", "redis://b") for label in ("scar", "other")}
    assert len(ids) == 4
    assert cluster_id("redis://a", "scar") in ids


def test_a_job_of_another_cluster_with_our_label_is_passed_over() -> None:
    store = MemoryStore()
    jobs, job = JobRegistry(store, "scar"), make_job(2)
    jobs.declare_job(job, GivenArrays(), resume=False)
    jobs.record_run(job)
    create_record(store, numbered("_clusters/scar", 2), types_pb2.JobSpec(name="foreign"))
    current = jobs.find_running_job(lambda name: name != "foreign")
    assert current is not None
    assert current.name == job.name
    assert jobs.find_running_job(lambda _name: False) is None
