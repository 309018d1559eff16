"""What one process knows of the cluster: the newest epoch, and a connection to each of its shards."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from scar._client.core.shard_map import ShardMap
from scar.errors import NotServing, ScarError
from scar.placement import Epoch
from scar.tables import Job
from scar.wire.link_pool import LinkPool
from scar.wire.shard_link import ShardLink

OUTAGE_SECONDS = 30.0  # for which the coordinator's last word about the store counts

log = logging.getLogger(__name__)


class ClusterView:
    """The newest epoch, its connections, and the first error that ends this process's work.

    Guarded by ``lock``. ``changed``: an epoch, an acknowledgement, a failure: whatever a user may wait for.
    ``wakers``: of push streams, on the same lock.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.wakers: set[threading.Condition] = set()
        self.links: LinkPool[ShardLink] = LinkPool()
        self.rollbacks = 0
        self.failure: ScarError | None = None
        self._shards: ShardMap | None = None
        self._outage = ""
        self._outage_until = 0.0

    @property
    def shards(self) -> ShardMap:
        """Raises :class:`NotServing` before the first epoch."""
        if self._shards is None:
            raise NotServing("no epoch is known yet")
        return self._shards

    @property
    def epoch(self) -> Epoch:
        return self.shards.epoch

    @property
    def number(self) -> int:
        return self._shards.epoch.number if self._shards else 0

    def follow_epoch(self, epoch: Epoch) -> None:
        """Follow an epoch: connections of shards that left are closed, which ends calls that hang on them."""
        with self.lock:
            for shard in epoch.shards:
                self.links.get(shard.key, partial(ShardLink, shard.address, shard.name))
            self.rollbacks += epoch.rollback
            self._shards = ShardMap(epoch)
            self.notify()
            self.links.retain({shard.key for shard in epoch.shards})

    @property
    def outage(self) -> str:
        """Why a recovery waits for the object store, as the coordinator just said; empty: none does."""
        return self._outage if time.monotonic() < self._outage_until else ""

    def note_outage(self, outage: str) -> None:
        """What the coordinator says about the object store.

        Its word counts for a while, since the coordinator may be away, too.
        """
        if outage and not self.outage:
            log.warning("store.awaited", extra={"reason": outage})
        self._outage = outage
        self._outage_until = time.monotonic() + OUTAGE_SECONDS

    def fail(self, error: ScarError) -> None:
        """The first error wins; every later call of the user raises it."""
        with self.lock:
            self.failure = self.failure or error
            self.notify()

    def check_failure(self) -> None:
        """Raise what has ended this process's work."""
        if self.failure is not None:
            raise self.failure

    def notify(self) -> None:
        self.changed.notify_all()
        for waker in self.wakers:
            waker.notify_all()

    def wait_beyond(self, number: int, seconds: float) -> None:
        """Sleep until a newer epoch than ``number`` is followed, the work has failed, or the time is over."""
        with self.lock:
            self.changed.wait_for(lambda: self.number > number or self.failure is not None, seconds)

    def close(self) -> None:
        self.links.close()
