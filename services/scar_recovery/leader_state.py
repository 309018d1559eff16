"""The planner of one leadership behind its lock. Nobody else touches the planner or the lock.

No call to the store or to a member is made while the lock is held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from scar.event_log import StorySource
from scar.placement import Epoch, Member, Role
from scar_recovery.core.events import MemberArrived, MemberHeard, PlannerEvent, RunBegun, ShardsExcluded
from scar_recovery.core.planner import Actions, Planner


class LeaderState:
    """``must_leave``: whether this shard has to go, because of its pod or node.

    ``now``: seconds of one monotonic clock. Safe to use from any thread.
    """

    def __init__(
        self,
        planner: Planner,
        now: Callable[[], float] = time.monotonic,
        must_leave: Callable[[Member], bool] = lambda _member: False,
    ) -> None:
        self.author = planner.author
        self.settings = planner.settings
        self.now = now
        self._must_leave = must_leave
        self._planner = planner
        self._changed = threading.Condition()

    # --- events

    def post(self, event: PlannerEvent, at: float | None = None) -> Actions:
        """Tell the planner; returns what to do. ``at``: when it happened, if not now."""
        with self._changed:
            actions = self._planner.handle(event, self.now() if at is None else at)
            self._changed.notify_all()
        return actions

    def begin_run(self) -> None:
        """Somebody resumes the job. Where a worker lives already it is under way, and nobody waits."""
        with self._changed:
            dead = {failure.key for failure in self._planner.members.proved_dead()}
            if all(worker.key in dead for worker in self.present_workers()):
                self.post(RunBegun())

    def admit_member(self, member: Member) -> int:
        """A member announces itself. Returns the number of the newest epoch; 0: none.

        Raises :class:`scar.errors.Fenced` for one that was declared dead or has left.
        """
        with self._changed:
            self._planner.members.check_arrival(member)
            self.post(MemberArrived(member))
            self.review_shards()
            return self._planner.epoch_number

    def review_shards(self) -> None:
        """Ask again which shards have to go.

        They give their blocks away, and get none until it is taken back.
        """
        with self._changed:
            shards = [one for one in self._planner.members.all_members() if one.role == Role.SHARD]
            leaving = frozenset(shard.key for shard in shards if self._must_leave(shard))
            self.post(ShardsExcluded(leaving))

    def renew_lease(self, member: Member) -> int:
        """A shard asks for its lease. Returns the number of the newest epoch.

        Raises :class:`scar.errors.Fenced` for one that is out, :class:`scar.errors.NotServing` for one that
        soon is.
        """
        with self._changed:
            self._planner.members.check_lease(member)
            if self._planner.members.in_epoch(member):
                self.post(MemberHeard(member.key))
            return self._planner.epoch_number

    def story(self) -> StorySource:
        return StorySource("recovery", self._planner.story, self.now)

    def secret_hash(self, member: Member) -> bytes:
        """Of the secret with which this incarnation has joined; b"": none is known."""
        return self._planner.members.secret_hashes.get(member.key, b"")

    # --- waiting

    def wait_for_work(self, most: float) -> None:
        """Until ``TimePassed`` may have something to do, at most ``most`` seconds."""
        with self._changed:
            seconds = min(self._planner.wake_after(self.now()), most)
            if seconds > 0:
                self._changed.wait(seconds)

    def wait_for_end(self, timeout: float) -> bool:
        """Until the job's last epoch exists; False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._planner.ended, timeout)

    def wake_after(self) -> float:
        """Seconds until ``TimePassed`` may have something to do."""
        with self._changed:
            return self._planner.wake_after(self.now())

    # --- questions

    @property
    def epoch(self) -> Epoch | None:
        """The newest epoch."""
        return self._planner.epoch

    @property
    def epoch_number(self) -> int:
        """Of the newest epoch; 0: none."""
        return self._planner.epoch_number

    @property
    def replaced_by(self) -> str:
        """Incarnation of the coordinator that leads instead of us; empty: we do."""
        return self._planner.replaced_by

    @property
    def problem(self) -> str:
        """Why the next epoch could not be created, in words; empty: nothing is wrong."""
        return self._planner.problem

    @property
    def outage(self) -> str:
        """The same, when it waits for the store."""
        return self._planner.outage

    @property
    def ending(self) -> bool:
        return self._planner.ending

    @property
    def waits_for(self) -> str:
        """What keeps it from going on, in words; empty: nothing."""
        with self._changed:
            return self._planner.waits_for

    @property
    def recovering(self) -> list[str]:
        """Members whose blocks nobody owns yet."""
        with self._changed:
            return self._planner.recovering

    def all_members(self) -> list[Member]:
        with self._changed:
            return list(self._planner.members.all_members())

    def checkpoint_coordinators(self) -> list[Member]:
        with self._changed:
            coordinators = self._planner.members.coordinators.values()
            return [member for member in coordinators if member.role == Role.CHECKPOINT]

    def present_workers(self) -> list[Member]:
        """Workers in the newest epoch, and those that wait to be in one."""
        with self._changed:
            epoch = self._planner.epoch
            waiting = [arrival.member for arrival in self._planner.members.arrivals_of(Role.WORKER)]
            return [*(epoch.workers if epoch is not None else ()), *waiting]

    def remaining_share(self, member: Member) -> tuple[int, int]:
        """(newest epoch, blocks that the member still owns in it; for a worker 1 while it is part of it)."""
        with self._changed:
            epoch = self._planner.epoch
            works = epoch is not None and member in epoch.workers
            return self._planner.epoch_number, self._planner.owned_blocks(member.key) + works
