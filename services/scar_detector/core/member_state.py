"""What the detector knows of one member."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum

from scar.placement import Member
from scar_detector.core.phi import Intervals


class ProbeAnswer(Enum):
    """Outcome of a direct probe."""

    ALIVE = "it answers"
    REFUSED = "its port is closed"
    REJECTED = "its port is closed, or something on the way rejects us"
    STRANGER = "another process answers at its address"
    FOREIGN = "no member of a cluster answers at its address, but something else, perhaps a proxy on the way"
    UNVERIFIED = "its connection cannot be secured: a certificate has expired, or is not accepted"
    SILENT = "it does not answer"
    HUNG = "it answers, but its working thread does not move"
    LAPSED = "it answers, but it cannot renew its lease and serves nobody"


PROOFS = (ProbeAnswer.REFUSED, ProbeAnswer.STRANGER)


class MemberHealth(IntEnum):
    """Equal to the protocol's numbers."""

    LEARNING = 1
    ALIVE = 2
    SUSPECT = 3
    DEAD = 4


class LeaseBlock(Enum):
    """How far the way to an accusation without proof is: its lease must not be renewed behind our back
    first.
    """

    NONE = 0
    ASKED = 1
    SET = 2


@dataclass(slots=True)
class MemberState:
    """What the detector knows of one member. Times in seconds."""

    member: Member
    intervals: Intervals
    last_sign: float  # of life: a heartbeat or an answer
    last_heartbeat: float = math.nan  # NaN: no interval may start with it
    excused: float = 0.0  # silence that was the detector's own lateness
    progress: int = 0
    misses: int = 0  # probes in a row without a sign of life
    answer: ProbeAnswer | None = None  # of the last probe
    answered_at: float = -math.inf  # last direct answer
    probed_at: float = -math.inf  # last probe
    probing: bool = False  # a probe is under way
    urgent: bool = True  # probe at once: it is new, its stream broke, or it was replaced
    hung_up: bool = False  # its own side closed the stream, and it has not answered since
    lease_block: LeaseBlock = LeaseBlock.NONE
    suspected_at: float = math.nan  # first since its last sign of life; NaN: not since then
    accused_at: float = math.nan
    returned: int = 0  # heartbeats since it was accused

    @property
    def is_accused(self) -> bool:
        return not math.isnan(self.accused_at)

    @property
    def is_proved_dead(self) -> bool:
        """Can it only be dead?

        A rejection alone may be a network policy's. That the other side hung up is a second witness: whatever
        stands in between can drop, reset and reject, but does not end a connection in order.
        """
        return self.answer in PROOFS or (self.answer is ProbeAnswer.REJECTED and self.hung_up)

    @property
    def suspected_after(self) -> float:
        """Seconds from its last sign of life to the suspicion; NaN: it is not suspected."""
        return self.suspected_at - self.last_sign

    def counted_silence(self, now: float) -> float:
        """Silence that counts against it."""
        return now - self.last_sign - self.excused

    def mark_alive(self, now: float) -> None:
        self.last_sign = now
        self.excused = 0.0
        self.misses = 0
        self.suspected_at = math.nan

    def mark_suspected(self, now: float) -> None:
        if math.isnan(self.suspected_at):
            self.suspected_at = now

    def mark_accused(self, now: float) -> None:
        self.mark_suspected(now)  # nobody had, if a probe that was due anyway has proved it
        self.accused_at = now
        self.returned = 0

    def describe_silence(self, now: float) -> str:
        """Why it is accused without proof, in words."""
        silence = now - self.last_sign
        phi = self.intervals.phi(silence)
        return f"silent for {silence:.2f} s (phi {phi:.1f}); probed directly: {self.describe_answer()}"

    def describe_answer(self) -> str:
        return self.answer.value if self.answer is not None else "it was not asked"

    def excuse_absence(self, seconds: float, now: float) -> None:
        """We were away: its rhythm is unknown now, and that is no sign of life of one that is accused."""
        if self.is_accused:
            self.accused_at += seconds
            self.last_sign = min(self.last_sign + seconds, now)
        else:
            self.forget_rhythm(now)

    def forget_rhythm(self, now: float) -> None:
        """What was seen of its intervals does not count any more."""
        self.intervals.clear()
        self.last_heartbeat = math.nan
        self.mark_alive(now)


@dataclass(frozen=True)
class DetectorView:
    """What the detector thinks of one member. ``silence``: seconds since its last sign of life."""

    member: Member
    health: MemberHealth
    phi: float
    silence: float
    progress: int


@dataclass(frozen=True)
class SuspicionFacts:
    """Why a member was probed, accused or cleared; for the story."""

    phi: float
    silence: float
    misses: int
    answer: ProbeAnswer | None
    learning: bool
    most_silent: bool
    redis_unreadable: bool
