"""Bringing epochs to shards: one thread a shard, so that nobody waits for a slow one.

What is told when, and how often it is tried, decides :mod:`scar_recovery.core.epoch_delivery`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from scar.errors import ScarError
from scar.placement import Epoch, Member
from scar.wire import tracing
from scar_recovery.core.epoch_delivery import (
    POLL,
    AdoptAnswered,
    AwaitEpoch,
    CallFailed,
    DeliveryAction,
    DeliveryEvent,
    DeliveryProgress,
    EpochPublished,
    FindFirstEpoch,
    FirstEpochFound,
    Pause,
    ReadRefusal,
    ReadState,
    RefusalRead,
    ReportClocks,
    ReportLoaded,
    ReportUnreadable,
    SendEpoch,
    ShardDelivery,
    StateRead,
    StopDelivery,
)
from scar_recovery.epoch_log import EpochLog
from scar_recovery.shard_client import ShardClient, UnreadableBlocks

_log = logging.getLogger(__name__)


class DeliveryListener(Protocol):
    """Who wants to know how far the shards are."""

    def shard_adopted(self, key: str, adopted: Mapping[int, int]) -> None:
        """A shard has adopted an epoch. ``adopted``: its open clock when each of the last ones came."""
        ...

    def blocks_unreadable(self, number: int, shard: Member, found: Sequence[UnreadableBlocks]) -> None:
        """A shard cannot load blocks that this epoch gave to it. Raises what the store raises."""
        ...

    def epoch_loaded(self, number: int, clock: int) -> None:
        """All shards of the newest epoch serve all their blocks; the highest open clock."""
        ...


class EpochBroadcaster:
    """``spawn(name, target)`` runs a guarded thread; ``listener`` is called from these threads."""

    def __init__(
        self,
        shards: ShardClient,
        epochs: EpochLog,
        listener: DeliveryListener,
        spawn: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self._shards = shards
        self._epochs = epochs
        self._listener = listener
        self._spawn = spawn
        self._lock = threading.Lock()
        self._progress = DeliveryProgress()
        self._stopping = threading.Event()

    def publish(self, epoch: Epoch) -> None:
        """Tell every shard of this epoch and of the one before.

        Call it before the epoch is appended to the log.
        """
        with self._lock:
            for member in self._progress.publish(epoch):
                self._spawn(f"courier {member.key}", partial(self._deliver_to, member))

    def wait_until_told(self, timeout: float) -> None:
        """Until nobody is left to be told, at most ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while self._progress.running and time.monotonic() < end:
            time.sleep(POLL)

    def stop(self) -> None:
        """Call it before the log is closed."""
        self._stopping.set()

    def _deliver_to(self, member: Member) -> None:
        _ShardCourier(self._shards, self._epochs, self, member).run()
        with self._lock:
            self._progress.shard_told(member.key)
        self._shards.close_link(member)

    # --- what the threads use

    def newest_epoch(self) -> Epoch:
        """What was published last; the log may be a moment behind."""
        with self._lock:
            assert self._progress.epoch is not None
            return self._progress.epoch

    @property
    def listener(self) -> DeliveryListener:
        return self._listener

    @property
    def stopping(self) -> threading.Event:
        return self._stopping

    def shard_loaded(self, key: str, number: int, clock: int) -> None:
        with self._lock:
            highest = self._progress.shard_loaded(key, number, clock)
        if highest is not None:
            self._listener.epoch_loaded(number, highest)


class _ShardCourier:
    """Carries out what a :class:`ShardDelivery` decides for one shard."""

    def __init__(
        self, shards: ShardClient, epochs: EpochLog, broadcaster: EpochBroadcaster, member: Member
    ) -> None:
        self._shards = shards
        self._epochs = epochs
        self._broadcaster = broadcaster
        self._member = member
        self._problem = ""
        self._unreadable: Sequence[UnreadableBlocks] = ()

    def run(self) -> None:
        """Until nothing is left to be told, or the leader stops."""
        delivery = ShardDelivery()
        event: DeliveryEvent = self._newest()
        while not self._broadcaster.stopping.is_set():
            try:
                result = self._carry_out_all(delivery.handle(event, time.monotonic()))
            except ScarError as error:
                if error.message != self._problem:
                    self._problem = error.message
                    _log.info("adopt.failed", extra={"shard": self._member.key, "reason": self._problem})
                result = CallFailed()
            if result is None:
                return
            event = result

    def _carry_out_all(self, actions: Sequence[DeliveryAction]) -> DeliveryEvent | None:
        """Returns the result of the last one; None: stop."""
        *reports, call = actions
        for report in reports:
            self._tell_listener(report)
        return self._carry_out(call)

    def _tell_listener(self, action: DeliveryAction) -> None:
        match action:
            case ReportClocks(adopted):
                self._broadcaster.listener.shard_adopted(self._member.key, adopted)
            case ReportUnreadable(number):
                self._broadcaster.listener.blocks_unreadable(number, self._member, self._unreadable)
            case ReportLoaded(number, clock):
                self._broadcaster.shard_loaded(self._member.key, number, clock)

    def _carry_out(self, action: DeliveryAction) -> DeliveryEvent | None:
        match action:
            case ReadState():
                return self._read_state()
            case FindFirstEpoch(newest):
                return FirstEpochFound(self._epoch_before_first(newest))
            case SendEpoch(number):
                return self._send_epoch(number)
            case ReadRefusal():
                return RefusalRead(self._shards.refuses_connection(self._member))
            case Pause(seconds):
                self._broadcaster.stopping.wait(seconds)
                return self._newest()
            case AwaitEpoch(known, seconds):
                self._epochs.wait_beyond(known, seconds)
                return self._newest()
            case StopDelivery():
                return None
        return None

    def _newest(self) -> EpochPublished:
        epoch = self._broadcaster.newest_epoch()
        return EpochPublished(epoch.number, epoch.shard_index(self._member.key) >= 0)

    def _read_state(self) -> StateRead:
        state = self._shards.read_state(self._member)
        self._unreadable = state.unreadable
        return StateRead(state.epoch, state.loading, state.clock, bool(state.unreadable), state.adopted)

    def _send_epoch(self, number: int) -> AdoptAnswered:
        with tracing.join_operation(("epoch", number)):
            known, loading = self._shards.send_epoch(self._member, self._epochs.get(number))
        if known < number:
            raise ScarError(f"{self._member.key} stays at epoch {known}")
        return AdoptAnswered(known, loading)

    def _epoch_before_first(self, newest: int) -> int:
        """What a shard knows that this leader has not spoken to: at least nothing before it was a member."""
        number = newest
        while number > 1 and self._had_shard(number - 1):
            number -= 1
        return number - 1

    def _had_shard(self, number: int) -> bool:
        incarnations = {shard.incarnation for shard in self._epochs.get(number).shards}
        return self._member.incarnation in incarnations
