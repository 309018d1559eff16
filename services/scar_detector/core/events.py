"""What the detector hears (events) and what it asks its shell to do (actions). Only frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from scar.event_log import EventSummary
from scar.placement import Member
from scar_detector.core.member_state import ProbeAnswer

# --- events


@dataclass(frozen=True, slots=True)
class HeartbeatSeen:
    """A heartbeat that was not seen before. ``progress``: counter of the member's working thread."""

    member: Member
    progress: int


@dataclass(frozen=True, slots=True)
class RedisRead:
    """Redis was read. ``heartbeats``: those that were not seen before."""

    heartbeats: tuple[HeartbeatSeen, ...] = ()

    def for_story(self) -> EventSummary:
        return EventSummary("RedisRead", {"heartbeats": len(self.heartbeats)})


@dataclass(frozen=True, slots=True)
class RedisUnreadable:
    """Redis could not be read."""


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The watch stream broke: the fastest sign of a death, and no proof. ``hung_up``: the other side closed
    it.
    """

    member: Member
    hung_up: bool = False


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """A :class:`ProbeMember` has ended."""

    member: Member
    answer: ProbeAnswer


@dataclass(frozen=True, slots=True)
class LeaseBlocked:
    """A :class:`BlockLease` was carried out, or (not ``done``) could not be. All heartbeats that Redis had
    after it were handed in before.
    """

    member: Member
    done: bool


@dataclass(frozen=True, slots=True)
class ReportTaken:
    """Recovery has taken a :class:`SendReport`, or (``refusal``) will never take it."""

    number: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ReportFailed:
    """A :class:`SendReport` did not reach a recovery coordinator that leads."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; once every ``period``, and at once after any of :data:`URGENT_EVENTS`."""


DetectorEvent = (
    HeartbeatSeen
    | RedisRead
    | RedisUnreadable
    | StreamBroken
    | ProbeAnswered
    | LeaseBlocked
    | ReportTaken
    | ReportFailed
    | Tick
)
URGENT_EVENTS = (StreamBroken, ProbeAnswered, LeaseBlocked)

# --- actions


@dataclass(frozen=True)
class WatchMember:
    """Keep a stream open to this member; each time it breaks is a :class:`StreamBroken`."""

    member: Member


@dataclass(frozen=True)
class ProbeMember:
    """Ask this member directly; the end is a :class:`ProbeAnswered`."""

    member: Member


@dataclass(frozen=True)
class BlockLease:
    """Stop heartbeats from renewing this member's lease, look for a last one; then :class:`LeaseBlocked`."""

    member: Member


@dataclass(frozen=True)
class AccuseMember:
    """It is declared dead. ``silence``: seconds since its last sign of life; nothing that Redis knows of has
    renewed its lease since. ``suspected``: seconds from that sign until it was suspected; None: nobody knows.
    """

    member: Member
    proved: bool
    silence: float
    evidence: str
    suspected: float | None = None


@dataclass(frozen=True)
class SendReport:
    """Tell recovery of an accusation; then :class:`ReportTaken` or :class:`ReportFailed` with its ``number``.

    ``waited``: seconds since the accusation.
    """

    number: int
    accusation: AccuseMember
    waited: float

    def for_story(self) -> EventSummary:
        fields = {"number": self.number, "member": self.accusation.member, "waited": self.waited}
        return EventSummary("SendReport", fields)


@dataclass(frozen=True)
class ClearSuspicion:
    """It lives: take back :class:`BlockLease`."""

    member: Member


@dataclass(frozen=True)
class ForgetMember:
    """It is gone for good: stop watching it, and delete its last heartbeat."""

    member: Member


DetectorAction = (
    WatchMember | ProbeMember | BlockLease | AccuseMember | SendReport | ClearSuspicion | ForgetMember
)
