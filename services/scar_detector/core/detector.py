"""When do we accuse? A pure core: heartbeats, broken streams, probe answers and time go in; probes and
accusations come out.

Suspicion is silence that φ accrual calls improbable. It is confirmed by direct probes, on a path that shares
nothing with the heartbeats. A foreign process at the member's address, a closed port on this machine, or one
elsewhere after the member has hung up *proves* a death, at once and whatever else is wrong. Without proof
nobody is accused while Redis cannot be read, while the member's rhythm is not known and its silence is short,
or while most members are silent together and no other answers us: then we are the likelier culprit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scar.event_log import EventRing
from scar.placement import Member
from scar_detector.core.events import (
    AccuseMember,
    BlockLease,
    ClearSuspicion,
    DetectorAction,
    DetectorEvent,
    ForgetMember,
    HeartbeatSeen,
    LeaseBlocked,
    ProbeAnswered,
    ProbeMember,
    RedisRead,
    RedisUnreadable,
    ReportFailed,
    ReportTaken,
    StreamBroken,
    Tick,
    WatchMember,
)
from scar_detector.core.member_state import (
    DetectorView,
    LeaseBlock,
    MemberHealth,
    MemberState,
    ProbeAnswer,
    SuspicionFacts,
)
from scar_detector.core.phi import Intervals
from scar_detector.core.policy import DetectorPolicy
from scar_detector.core.reports import PendingReports

LATE_TICK = 5.0  # periods; how late a tick is worth a word in the story


class Detector:
    """Not thread-safe. Times are seconds of any clock that never goes back."""

    def __init__(self, policy: DetectorPolicy | None = None, story: EventRing | None = None) -> None:
        self.story = story or EventRing()
        self._policy = policy or DetectorPolicy()
        self._members: dict[str, MemberState] = {}  # by member key
        self._reports = PendingReports()
        self._ticked_at: float | None = None
        self._blind = False  # Redis could not be read the last time
        self._most_silent = False

    def handle(self, event: DetectorEvent, now: float) -> list[DetectorAction]:
        """What to do about it."""
        actions = self._handle(event, now)
        self.story.record(now, event, actions)
        return actions

    def list_members(self, now: float) -> list[DetectorView]:
        return [
            DetectorView(
                state.member,
                self._health(state, now),
                state.intervals.phi(state.counted_silence(now)),
                now - state.last_sign,
                state.progress,
            )
            for state in self._members.values()
        ]

    def has_room(self, member: Member) -> bool:
        """Whether heartbeats of this member count: it is watched, or can be."""
        return member.key in self._members or len(self._members) < self._policy.max_members

    @property
    def problem(self) -> str:
        """Why nobody is accused without proof at the moment; empty: nothing."""
        if self._blind:
            return "Redis cannot be read; only proved deaths are reported"
        if self._most_silent:
            return (
                "most members are silent at once; only proved deaths, or those silent while others answer,"
                " are reported"
            )
        return ""

    def __len__(self) -> int:
        return len(self._members)

    # --- events

    def _handle(self, event: DetectorEvent, now: float) -> list[DetectorAction]:
        match event:
            case Tick():
                return self._judge_all(now)
            case RedisRead(heartbeats):
                return self._hear_all(heartbeats, now)
            case HeartbeatSeen():
                return self._hear(event, now)
            case RedisUnreadable():
                self._lose_rhythms()
            case StreamBroken():
                self._note_broken_stream(event, now)
            case ProbeAnswered():
                self._note_answer(event, now)
            case LeaseBlocked():
                self._note_lease_block(event)
            case ReportTaken(number, refusal):
                self.story.note(refusal=refusal or "none")
                self._reports.end_report(number)
            case ReportFailed(number):
                self.story.note(retry=True)
                self._reports.retry_report(number, now)
        return []

    def _hear_all(self, heartbeats: Sequence[HeartbeatSeen], now: float) -> list[DetectorAction]:
        self._set_blind(False)
        actions: list[DetectorAction] = []
        for heartbeat in heartbeats:
            actions += self._hear(heartbeat, now)
        return actions

    def _hear(self, event: HeartbeatSeen, now: float) -> list[DetectorAction]:
        state = self._members.get(event.member.key)
        if state is None:
            return self._meet(event, now)
        if not math.isnan(state.last_heartbeat):
            state.intervals.add_interval(now - state.last_heartbeat)
        state.last_heartbeat = now
        state.progress = event.progress
        if state.is_accused:
            state.returned += 1
        state.mark_alive(now)
        return []

    def _meet(self, event: HeartbeatSeen, now: float) -> list[DetectorAction]:
        """A new life. Whoever had the name is probably gone, but only a probe can tell: this may be the
        old one, waking up.
        """
        member = event.member
        if not self.has_room(member):
            return []
        for other in self._members.values():
            is_namesake = (other.member.role, other.member.name) == (member.role, member.name)
            if is_namesake and not other.is_accused:
                other.urgent = True
                other.mark_suspected(now)
        policy = self._policy
        intervals = Intervals(policy.window, policy.floor, policy.pause)
        self._members[member.key] = MemberState(
            member, intervals, now, last_heartbeat=now, progress=event.progress
        )
        return [WatchMember(member)]

    def _set_blind(self, blind: bool) -> None:
        if blind is not self._blind:
            self.story.note(redis_unreadable=blind)
        self._blind = blind

    def _lose_rhythms(self) -> None:
        """The intervals that end after this say nothing about the members."""
        self._set_blind(True)
        for state in self._members.values():
            state.last_heartbeat = math.nan

    def _note_broken_stream(self, event: StreamBroken, now: float) -> None:
        state = self._members.get(event.member.key)
        if state is not None and not state.is_accused:
            # the stream of one that answers no probe breaks again and again: its accusation must not wait
            state.urgent = state.urgent or not state.misses or (event.hung_up and not state.hung_up)
            state.hung_up = state.hung_up or event.hung_up
            state.mark_suspected(now)
            self.story.note(hung_up=state.hung_up)

    def _note_answer(self, event: ProbeAnswered, now: float) -> None:
        state = self._members.get(event.member.key)
        if state is None:
            return
        state.probing = False
        state.answer = event.answer
        if event.answer is ProbeAnswer.ALIVE:
            state.answered_at = now
            state.hung_up = False
            state.mark_alive(now)
            return
        state.misses += 1
        self.story.note(misses=state.misses, proved=state.is_proved_dead)

    def _note_lease_block(self, event: LeaseBlocked) -> None:
        """If it is still silent, nothing has renewed its lease meanwhile."""
        state = self._members.get(event.member.key)
        if state is not None and state.lease_block is LeaseBlock.ASKED:
            state.lease_block = LeaseBlock.SET if event.done else LeaseBlock.NONE
            self.story.note(lease_block=state.lease_block)

    # --- judgement

    def _judge_all(self, now: float) -> list[DetectorAction]:
        self._excuse_own_lateness(now)
        alive = [state for state in self._members.values() if not state.is_accused]
        silent = {state.member.key for state in alive if self._is_silent(state, now)}
        self._set_most_silent(len(alive) >= self._policy.crowd and 2 * len(silent) > len(alive))
        actions: list[DetectorAction] = []
        for state in list(self._members.values()):
            found = self._judge(state, state.member.key in silent, now)
            if found:
                self.story.note(**{state.member.key: self._facts(state, now)})
            actions += found
        return [*actions, *self._reports.send_due(now)]

    def _excuse_own_lateness(self, now: float) -> None:
        """Our own lateness is nobody's silence; after a long pause everything is learnt again."""
        gap = 0.0 if self._ticked_at is None else now - self._ticked_at
        self._ticked_at = now
        if gap > LATE_TICK * self._policy.period:
            self.story.note(own_lateness=gap)
        for state in self._members.values():
            if gap > self._policy.pause:
                state.excuse_absence(gap, now)
            elif gap > 2 * self._policy.period:
                state.excused += min(gap - self._policy.period, now - state.last_sign)

    def _set_most_silent(self, most_silent: bool) -> None:
        if most_silent is not self._most_silent:
            self.story.note(most_silent=most_silent)
        self._most_silent = most_silent

    def _is_learning(self, state: MemberState) -> bool:
        return len(state.intervals) < self._policy.samples

    def _is_silent(self, state: MemberState, now: float) -> bool:
        silence = state.counted_silence(now)
        if silence > self._policy.patience:
            return True
        return (
            not self._blind
            and not self._is_learning(state)
            and state.intervals.phi(silence) >= self._policy.threshold
        )

    def _judge(self, state: MemberState, silent: bool, now: float) -> list[DetectorAction]:
        if state.is_accused:
            return self._judge_accused(state, now)
        if state.is_proved_dead:
            return self._accuse(state, True, now)
        if not silent:
            cleared = self._clear_lease_block(state)
            return [*cleared, *self._probe(state, state.urgent or self._blind or self._most_silent, now)]
        state.mark_suspected(now)
        if self._is_confirmed(state, now):
            return self._block_or_accuse(state, now)
        return self._probe(state, True, now)

    def _clear_lease_block(self, state: MemberState) -> list[DetectorAction]:
        if state.lease_block is LeaseBlock.NONE:
            return []
        state.lease_block = LeaseBlock.NONE
        return [ClearSuspicion(state.member)]

    def _probe(self, state: MemberState, wanted: bool, now: float) -> list[DetectorAction]:
        due = state.urgent or now - state.probed_at >= self._policy.probe_every
        if not wanted or not due or state.probing:
            return []
        state.probing = True
        state.urgent = False
        state.probed_at = now
        return [ProbeMember(state.member)]

    def _is_confirmed(self, state: MemberState, now: float) -> bool:
        """Have enough probes failed to accuse a silent member without proof?"""
        if self._blind or state.probing or state.urgent:
            return False
        if not self._most_silent:
            return state.misses >= (self._policy.careful_misses if self._is_learning(state) else 1)
        others = (other for other in self._members.values() if other is not state)
        witness = any(now - other.answered_at < self._policy.pause for other in others)
        return witness and state.misses >= self._policy.careful_misses

    def _block_or_accuse(self, state: MemberState, now: float) -> list[DetectorAction]:
        if state.lease_block is LeaseBlock.NONE:
            state.lease_block = LeaseBlock.ASKED
            return [BlockLease(state.member)]
        if state.lease_block is LeaseBlock.SET:
            return self._accuse(state, False, now)
        return []

    def _accuse(self, state: MemberState, proved: bool, now: float) -> list[DetectorAction]:
        state.mark_accused(now)
        evidence = state.describe_answer() if proved else state.describe_silence(now)
        accusation = AccuseMember(
            state.member, proved, now - state.last_sign, evidence, state.suspected_after
        )
        self._reports.add_report(accusation, now)
        return [accusation]

    def _judge_accused(self, state: MemberState, now: float) -> list[DetectorAction]:
        """An accused member that keeps beating was not dead; one that stays silent is dropped from view. One
        that gave a sign of life and is silent again is judged anew: recovery may have taken it for alive. The
        last heartbeat of one whose death is proved is often read after the proof, and is no such sign.
        """
        if now - state.accused_at < self._policy.remember:
            return []
        gone = now - state.last_sign >= self._policy.remember
        lived = state.returned > 1 or (state.last_sign > state.accused_at and not state.is_proved_dead)
        if state.returned >= self._policy.samples or (gone and lived):
            return self._acquit(state, now)
        if gone:
            del self._members[state.member.key]
            return [ForgetMember(state.member)]
        return []

    def _acquit(self, state: MemberState, now: float) -> list[DetectorAction]:
        state.accused_at = math.nan
        state.answer = None
        state.lease_block = LeaseBlock.NONE
        state.urgent = True
        state.hung_up = False
        state.forget_rhythm(now)
        self._reports.withdraw_report(state.member)
        return [ClearSuspicion(state.member)]

    def _facts(self, state: MemberState, now: float) -> SuspicionFacts:
        silence = state.counted_silence(now)
        return SuspicionFacts(
            phi=state.intervals.phi(silence),
            silence=silence,
            misses=state.misses,
            answer=state.answer,
            learning=self._is_learning(state),
            most_silent=self._most_silent,
            redis_unreadable=self._blind,
        )

    def _health(self, state: MemberState, now: float) -> MemberHealth:
        if state.is_accused:
            return MemberHealth.DEAD
        if self._is_silent(state, now):
            return MemberHealth.SUSPECT
        return MemberHealth.LEARNING if self._is_learning(state) else MemberHealth.ALIVE
