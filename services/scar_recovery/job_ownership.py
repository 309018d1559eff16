"""Which cluster trains a job. Two that do would take turns at its epochs and fence each other's members.

    owners/00000001    # created by the first cluster that trains it; the highest number counts
    owner-beat         # replaced by the owner's leader every OWNER_BEAT_SECONDS

A cluster takes a job from another one only when nobody trains it any more: the job has ended, or the
addresses of its shards are provably dead, or the owner's beat has not changed for EXPIRY seconds of our own
clock and none of its shards serves. Wall clocks are never compared.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from scar.errors import AlreadyExists, JobExists, NotServing, ObjectNotFound, ScarError
from scar.placement import END, Member
from scar.v1 import recovery_pb2, types_pb2
from scar.wire.codec import member_from_proto
from scar_recovery.core.owner_watch import EXPIRY, BeatSeen, OwnerVerdict, OwnerWatch
from scar_recovery.member_calls import call_in_parallel
from scar_runtime.store import Store
from scar_runtime.store.layout import EPOCHS, OWNER_BEAT, OWNERS, epoch_key, owner_key
from scar_runtime.store.records import OWNER_BEAT_SECONDS, create_record, get_record, newest, put_record

_log = logging.getLogger(__name__)


@lru_cache(maxsize=8)
def cluster_id(redis: str, label: str) -> str:
    """A cluster is whoever shares a Redis and a label. Slow to compute, since the URL may hold a password."""
    return hashlib.pbkdf2_hmac("sha256", redis.encode(), f"scar cluster {label}".encode(), 100_000).hex()[:16]


@dataclass(frozen=True)
class Claimant:
    """``author``: incarnation of this recovery coordinator."""

    id: str
    label: str
    author: str


class PeerShards(Protocol):
    """What is asked of another cluster's shards; see :class:`scar_recovery.shard_client.ShardClient`."""

    def is_serving(self, member: Member, /) -> bool: ...

    def read_incarnation(self, member: Member, /) -> str: ...

    def is_gone(self, member: Member, /) -> bool: ...


class JobOwnership:
    """Of all jobs in a store, as one cluster sees it. ``peers``: how to ask shards."""

    def __init__(
        self, store: Store, cluster: Claimant, peers: PeerShards, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._peers = peers
        self._now = now
        self._watch = OwnerWatch()
        self._beats = 0

    def may_train(self, job: str) -> bool:
        """Whether this cluster owns it, or nobody does."""
        owner = self._read_owner(job)
        return owner is None or owner.cluster == self._cluster.id

    def claim(self, job: str, take_over: bool = False) -> None:
        """From now on this cluster trains the job. Can be repeated.

        Raises :class:`JobExists` when another cluster trains it, :class:`NotServing` while that is not known:
        call again.
        """
        owner = self._read_owner(job)
        if owner is not None and owner.cluster == self._cluster.id:
            return
        if owner is not None and not take_over:
            self._check_gone(job, owner)
        number = owner.number + 1 if owner is not None else 1
        mine = recovery_pb2.JobOwner(
            number=number,
            job=job,
            cluster=self._cluster.id,
            label=self._cluster.label,
            author=self._cluster.author,
            created=time.time(),
        )
        try:
            create_record(self._store.under(job), owner_key(number), mine)
        except AlreadyExists as error:  # somebody else's, or ours by an attempt whose answer was lost
            raise NotServing(f"another cluster has just claimed job {job!r}") from error

    def claim_if_free(self, job: str) -> bool:
        """Whether this cluster goes on with it: it is ours, or who had it under our label is gone."""
        if not self.may_train(job) and self.has_ended(job):
            return False
        try:
            self.claim(job)
        except JobExists as error:
            _log.warning("job.foreign", extra={"job": job, "reason": error.message})
            return False
        return True

    def has_ended(self, job: str) -> bool:
        """Nobody trains it, and nobody goes on with it unless asked to."""
        epoch = self._newest_epoch(job)
        return epoch is not None and epoch.cause == END

    def keep_beating(self, job: str, stop: threading.Event, lost: Callable[[str], None]) -> None:
        """Show others that we live, until ``stop``.

        ``lost`` hears of the coordinator that has taken the job away.
        """
        while not stop.wait(OWNER_BEAT_SECONDS):
            try:
                self.write_beat(job)
                owner = self._read_owner(job)
            except ScarError:
                continue  # the store is away for the others, too
            if owner is not None and owner.cluster != self._cluster.id:
                lost(owner.author)
                return

    def write_beat(self, job: str) -> None:
        self._beats += 1
        beat = recovery_pb2.OwnerBeat(
            cluster=self._cluster.id, author=self._cluster.author, count=self._beats
        )
        put_record(self._store.under(job), OWNER_BEAT, beat)

    def _read_owner(self, job: str) -> recovery_pb2.JobOwner | None:
        store = self._store.under(job)
        number = newest(store, OWNERS)
        return get_record(store, owner_key(number), recovery_pb2.JobOwner) if number else None

    def _check_gone(self, job: str, owner: recovery_pb2.JobOwner) -> None:
        epoch = self._newest_epoch(job)
        shards = [member_from_proto(member) for member in epoch.shards] if epoch is not None else []
        if (epoch is not None and epoch.cause == END) or (
            shards and all(call_in_parallel(self._is_dead, shards))
        ):
            return
        self._check_silent(job, owner, epoch.number if epoch is not None else 0)
        if any(call_in_parallel(self._peers.is_serving, shards)):
            raise _trained_elsewhere(job, owner, "its shards serve")

    def _check_silent(self, job: str, owner: recovery_pb2.JobOwner, epoch: int) -> None:
        verdict = self._watch.handle(BeatSeen(job, (epoch, self._read_beat(job, owner))), self._now())
        if verdict is OwnerVerdict.ALIVE:
            raise _trained_elsewhere(job, owner, "its recovery coordinator is at work")
        if verdict is OwnerVerdict.UNKNOWN:
            raise NotServing(
                f"waits {EXPIRY:g} s to see whether cluster {owner.label!r} still trains job {job!r}"
            )

    def _read_beat(self, job: str, owner: recovery_pb2.JobOwner) -> bytes:
        try:
            return b"%d %s" % (owner.number, self._store.under(job).get(OWNER_BEAT))
        except ObjectNotFound:
            return b"%d" % owner.number

    def _newest_epoch(self, job: str) -> types_pb2.Epoch | None:
        store = self._store.under(job)
        number = newest(store, EPOCHS)
        return get_record(store, epoch_key(number), types_pb2.Epoch) if number else None

    def _is_dead(self, shard: Member) -> bool:
        """Proved: somebody else answers at its address, or its machine, which is ours, says nobody does."""
        return self._peers.read_incarnation(shard) not in ("", shard.incarnation) or self._peers.is_gone(
            shard
        )


def _trained_elsewhere(job: str, owner: recovery_pb2.JobOwner, evidence: str) -> JobExists:
    return JobExists(
        f"job {job!r} is trained by another cluster, {owner.label!r}: {evidence}",
        "Stop that cluster, choose another job name by --name, or take the job away from it by --resume"
        " --force",
    )
