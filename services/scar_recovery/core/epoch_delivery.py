"""How epochs are brought to shards: in order, without gaps, until each serves all its blocks. Pure.

    actions = delivery.handle(EpochPublished(number, includes_shard), now)
    ...                      # the last action is a call or a wait; its result is the next event

A shard that is in the newest epoch is tried forever (when it is dead, the detector says so). One that left
the epoch is told for a while, so that a process that was frozen stops the sooner; its lease has run out
anyway. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scar.placement import Epoch, Member

RETRY = 0.2  # seconds after a shard did not answer
POLL = 0.01  # seconds between first questions whether the blocks are loaded; later each waits for a part of
POLL_PART = 1 / 8  # the time since the shard adopted the epoch, so that this delays the end by no more
POLL_MOST = 0.1
IDLE = 1.0  # seconds between looks without news
FAREWELL = 10.0  # seconds for which a shard that left is told

# --- events


@dataclass(frozen=True)
class EpochPublished:
    """The newest epoch, perhaps still the same: also the result of a wait."""

    number: int
    includes_shard: bool


@dataclass(frozen=True)
class StateRead:
    """``epoch``: newest that the shard knows. ``loading``: blocks that it does not serve yet. ``adopted``:
    the newest epochs, and its open clock when each was adopted.
    """

    epoch: int
    loading: int
    clock: int
    unreadable: bool = False
    adopted: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FirstEpochFound:
    """``known``: the epoch before the first one that has the shard."""

    known: int


@dataclass(frozen=True)
class AdoptAnswered:
    """``number``: newest epoch that the shard knows now."""

    number: int
    loading: int


@dataclass(frozen=True)
class CallFailed:
    """The shard did not answer, or not as it should."""


@dataclass(frozen=True)
class RefusalRead:
    """``refuses``: nobody listens at the shard's address any more."""

    refuses: bool


DeliveryEvent = EpochPublished | StateRead | FirstEpochFound | AdoptAnswered | CallFailed | RefusalRead

# --- actions


@dataclass(frozen=True)
class ReadState:
    """Ask the shard for its state: ``StateRead``."""


@dataclass(frozen=True)
class FindFirstEpoch:
    """Which epoch is the first that has the shard: ``FirstEpochFound``."""

    newest: int


@dataclass(frozen=True)
class SendEpoch:
    """Have the shard adopt an epoch: ``AdoptAnswered``."""

    number: int


@dataclass(frozen=True)
class ReadRefusal:
    """Does anybody listen at the shard's address: ``RefusalRead``."""


@dataclass(frozen=True)
class Pause:
    """Wait: ``EpochPublished``."""

    seconds: float


@dataclass(frozen=True)
class AwaitEpoch:
    """Wait for an epoch after ``known``: ``EpochPublished``."""

    known: int
    seconds: float


@dataclass(frozen=True)
class StopDelivery:
    """Nothing is left to be told to this shard."""


@dataclass(frozen=True)
class ReportClocks:
    """Tell the leader: the shard has adopted these epochs, with these clocks open."""

    adopted: Mapping[int, int]


@dataclass(frozen=True)
class ReportUnreadable:
    """Tell the leader: the shard cannot load blocks that this epoch gave to it."""

    number: int


@dataclass(frozen=True)
class ReportLoaded:
    """Tell the leader: the shard serves all its blocks of this epoch."""

    number: int
    clock: int


DeliveryAction = (
    ReadState
    | FindFirstEpoch
    | SendEpoch
    | ReadRefusal
    | Pause
    | AwaitEpoch
    | StopDelivery
    | ReportClocks
    | ReportUnreadable
    | ReportLoaded
)


class ShardDelivery:
    """Epochs for one shard."""

    def __init__(self) -> None:
        self._number = 0  # of the newest epoch
        self._includes_shard = False
        self._left_since: float | None = None
        self._known: int | None = None  # newest epoch that the shard knows; None: to be found out first
        self._is_new = False  # it knows no epoch at all
        self._failed = False
        self._refusal_read = False
        self._loaded = 0  # newest epoch of which it serves everything
        self._begin_loading(0)

    def handle(self, event: DeliveryEvent, now: float) -> tuple[DeliveryAction, ...]:
        """Reports to the leader, then the next call or wait."""
        reports: list[DeliveryAction] = []
        match event:
            case EpochPublished():
                self._follow_epoch(event, now)
            case StateRead():
                reports = self._read_state(event, now)
            case FirstEpochFound(known):
                self._known = known
            case AdoptAnswered(number, loading):
                self._known = number
                self._begin_loading(loading)
            case CallFailed():
                self._failed = True
                self._refusal_read = False
                self._begin_loading(0)
            case RefusalRead(refuses):
                self._refusal_read = True
                if refuses:
                    return (StopDelivery(),)
        return (*reports, self._next_call(now))

    def _follow_epoch(self, event: EpochPublished, now: float) -> None:
        self._failed = False
        self._poll_due = True
        if event.number != self._number:
            self._begin_loading(0)
        self._number = event.number
        self._includes_shard = event.includes_shard
        if event.includes_shard:
            self._left_since = None
        elif self._left_since is None:
            self._left_since = now

    def _begin_loading(self, loading: int) -> None:
        """``loading``: blocks that it named when it adopted the epoch; then it is asked at least twice."""
        self._adopted_loading = loading
        self._clocks_reported = False
        self._still_loading = False
        self._adopted_at: float | None = None  # of the first question after it
        self._poll_due = True
        self._unreadable_after = 0.0

    def _read_state(self, event: StateRead, now: float) -> list[DeliveryAction]:
        if self._known is None:
            self._is_new = event.epoch == 0
            self._known = None if self._is_new else min(event.epoch, self._number)
            return []
        reports: list[DeliveryAction] = []
        self._poll_due = False
        if not self._clocks_reported:
            self._clocks_reported = True
            reports.append(ReportClocks(event.adopted))
        else:
            self._adopted_loading = 0
            if event.unreadable and event.epoch == self._number and now > self._unreadable_after:
                self._unreadable_after = now + IDLE
                reports.append(ReportUnreadable(self._number))
        self._still_loading = bool(self._adopted_loading or event.loading)
        if not self._still_loading and event.epoch == self._number:
            self._loaded = self._number
            reports.append(ReportLoaded(self._number, event.clock))
        return reports

    def _next_call(self, now: float) -> DeliveryAction:
        if self._is_told(now):
            return StopDelivery()
        if self._failed:
            if self._left_since is not None and not self._refusal_read:
                return ReadRefusal()
            return Pause(RETRY)
        if self._known is None:
            unknown = self._number > 1 and not self._is_new
            return ReadState() if unknown else FindFirstEpoch(self._number)
        if self._known < self._number:
            return SendEpoch(self._known + 1)
        if self._known == self._number and self._includes_shard and self._loaded != self._number:
            return self._await_loaded(now)
        return AwaitEpoch(self._known, IDLE)

    def _await_loaded(self, now: float) -> DeliveryAction:
        if self._poll_due:
            return ReadState()
        if not self._still_loading:  # it serves everything of another epoch
            self._begin_loading(0)
            return AwaitEpoch(self._number, IDLE)
        if self._adopted_at is None:
            self._adopted_at = now
        return Pause(min(max(POLL, POLL_PART * (now - self._adopted_at)), POLL_MOST))

    def _is_told(self, now: float) -> bool:
        """It left the epoch, and knows that or has been told for long enough."""
        if self._left_since is None:
            return False
        knows = self._known is not None and self._known >= self._number
        return knows or now - self._left_since > FAREWELL


class DeliveryProgress:
    """Who is being told, and which shards serve everything of the newest epoch."""

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.running: set[str] = set()  # keys of shards that are being told
        self._clocks: dict[str, int] = {}  # shard key -> open clock, of those that serve everything

    def publish(self, epoch: Epoch) -> list[Member]:
        """Shards of this epoch and of the one before that nobody tells yet."""
        former = self.epoch
        self.epoch = epoch
        self._clocks = {}
        concerned = {shard.key: shard for shard in (*(former.shards if former else ()), *epoch.shards)}
        fresh = [shard for key, shard in concerned.items() if key not in self.running]
        self.running |= {shard.key for shard in fresh}
        return fresh

    def shard_loaded(self, key: str, number: int, clock: int) -> int | None:
        """The highest open clock once every shard of the newest epoch serves everything; else None."""
        if self.epoch is None or self.epoch.number != number:
            return None
        self._clocks[key] = clock
        done = all(shard.key in self._clocks for shard in self.epoch.shards)
        return max(self._clocks.values()) if done else None

    def shard_told(self, key: str) -> None:
        self.running.discard(key)
