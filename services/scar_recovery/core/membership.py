"""Who is there beyond the newest epoch: arrivals, departures, the dead and the suspected. Pure.

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from scar.errors import Fenced, NotServing
from scar.placement import Epoch, Member, Role
from scar_recovery.core.events import (
    CoordinatorsSeen,
    FailureReport,
    MemberArrived,
    MemberEvent,
    MemberFailed,
    MemberHeard,
    MemberLeft,
    ShardsExcluded,
    SuspectsAnswered,
)

COORDINATORS = (Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR)


@dataclass(frozen=True)
class MemberFailure:
    """A member that is believed dead. It may be declared dead from ``allowed`` on.

    A suspect only after one more question.
    """

    report: FailureReport
    reported: float
    allowed: float

    @property
    def key(self) -> str:
        return self.report.member.key

    @property
    def wait_seconds(self) -> float:
        """Seconds from the report until the member may be declared dead."""
        return self.allowed - self.reported


@dataclass(frozen=True)
class Arrival:
    """A member that waits to be in an epoch."""

    member: Member
    since: float


class Membership:
    """``lease``: seconds for which a suspect may still serve after its last sign of life, where its own
    lease is not longer.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._leading_since = 0.0  # nobody's silence counts from before
        self._current: dict[str, Member] = {}  # members of the newest epoch, by key
        self._arrivals: dict[str, Arrival] = {}
        self._failures: dict[str, MemberFailure] = {}
        self._last_heard: dict[str, float] = {}
        self._removed: set[str] = set()  # keys that must not come back
        self._fenced: frozenset[str] = frozenset()
        self._excluded: frozenset[str] = frozenset()  # shards that must get no blocks
        self.finished: set[str] = set()  # keys of workers that leave because their work is done
        # key -> since when; workers that left, shards that want to or have to
        self.departures: dict[str, float] = {}
        self.coordinators: dict[str, Member] = {}
        self.secret_hashes: dict[str, bytes] = {}  # by key: whoever shows the secret is that member

    def start_leading(self, now: float) -> None:
        """Leadership starts now.

        What a predecessor heard is unknown, so every suspect gets a whole lease from here.
        """
        self._leading_since = now
        for key, failure in self._failures.items():
            if not failure.report.proved:
                self._failures[key] = replace(
                    failure, allowed=max(failure.allowed, now + self._lease_of(key))
                )

    def adopt_epoch(self, epoch: Epoch, now: float) -> None:
        """A new epoch: who is in it has arrived, who is not any more is gone."""
        current = {member.key: member for member in (*epoch.shards, *epoch.workers)}
        self._removed |= self._current.keys() - current.keys()
        self._current = current
        for member in current.values():
            self._learn_secret(member)
        self._fenced = frozenset(epoch.fenced)
        self._arrivals = {
            key: arrival
            for key, arrival in self._arrivals.items()
            if key not in current and not self._is_removed(arrival.member)
        }
        self.departures = {key: since for key, since in self.departures.items() if key in current}
        self.finished &= current.keys()
        self._failures = {key: failure for key, failure in self._failures.items() if key in current}
        self._last_heard = {key: when for key, when in self._last_heard.items() if key in current}
        for arrival in list(self._arrivals.values()):
            self._fail_predecessors(arrival.member, now)

    # --- events

    def handle(self, event: MemberEvent, now: float) -> None:
        match event:
            case MemberArrived(member):
                self._add_arrival(member, now)
            case MemberLeft(member, finished):
                self._add_departure(member, finished, now)
            case MemberHeard(key):
                self._record_sign_of_life(key, now)
            case MemberFailed(report):
                self._record_failure(report, now)
            case SuspectsAnswered(alive, silent):
                self._settle_suspects(alive, silent, now)
            case CoordinatorsSeen(members):
                self.coordinators = {member.name: member for member in members}
            case ShardsExcluded(keys):
                self._exclude_shards(keys, now)

    def _add_arrival(self, member: Member, now: float) -> None:
        if self._is_removed(member):
            return
        self._learn_secret(member)
        if member.role in COORDINATORS:
            self.coordinators[member.name] = member
            return
        self._record_sign_of_life(member.key, now)
        self._fail_predecessors(member, now)
        if member.key not in self._current:
            self._arrivals.setdefault(member.key, Arrival(member, now))

    def _learn_secret(self, member: Member) -> None:
        """The first one counts, also after the member has gone: it may still have reports to make."""
        if member.secret_hash:
            self.secret_hashes.setdefault(member.key, member.secret_hash)

    def _add_departure(self, member: Member, finished: bool, now: float) -> None:
        if member.key in self._current:
            if finished:
                self.finished.add(member.key)
            self.departures.setdefault(member.key, now)
        else:
            self._arrivals.pop(member.key, None)
            self._removed.add(member.key)

    def _record_sign_of_life(self, key: str, now: float) -> None:
        """A suspect is none any more; a proof stays one."""
        self._last_heard[key] = now
        failure = self._failures.get(key)
        if failure is not None and not failure.report.proved:
            del self._failures[key]

    def _record_failure(self, report: FailureReport, now: float) -> None:
        """Reports about strangers are ignored."""
        key = report.member.key
        if report.proved:
            self._arrivals.pop(key, None)
            self._removed.add(key)
        known = self._failures.get(key)
        if key not in self._current or (known is not None and known.report.proved):
            return
        heard = self._last_heard.get(key, self._leading_since)
        last = max(now - report.silence, heard, self._leading_since)
        allowed = now if report.proved else max(now, last + self._lease_of(key))
        if known is not None and not report.proved:
            allowed = min(allowed, known.allowed)
        self._failures[key] = MemberFailure(report, now, max(now, allowed))

    def _lease_of(self, key: str) -> float:
        """Processes may differ in it, and do while a cluster gets another one: the longer one counts."""
        member = self._current.get(key)
        return max(self._lease, member.lease_seconds) if member is not None else self._lease

    def _settle_suspects(self, alive: tuple[str, ...], silent: tuple[str, ...], now: float) -> None:
        """No answer, after its lease has run out, is as good as a proof."""
        for key in alive:
            if key in self._failures:
                self._record_sign_of_life(key, now)
        for key in silent:
            failure = self._failures.get(key)
            if failure is not None:
                self._failures[key] = replace(failure, report=replace(failure.report, proved=True))
                self._removed.add(key)

    def _exclude_shards(self, keys: frozenset[str], now: float) -> None:
        """Shards in the epoch give their blocks away, the others wait."""
        for key in self._excluded - keys:
            self.departures.pop(key, None)  # one that asks by itself asks again
        self._excluded = keys
        for key in keys & self._current.keys():
            self.departures.setdefault(key, now)

    def _fail_predecessors(self, member: Member, now: float) -> None:
        """A new incarnation proves that its predecessors are dead."""
        known = [*self._current.values(), *(arrival.member for arrival in self._arrivals.values())]
        for old in known:
            if (old.role, old.name) == (member.role, member.name) and old.key != member.key:
                evidence = f"{member.key} has taken its place"
                self._record_failure(FailureReport(old, proved=True, evidence=evidence), now)

    # --- questions

    def check_arrival(self, member: Member) -> None:
        """Raises :class:`Fenced` for a member that was declared dead or has left."""
        if self._is_removed(member):
            raise Fenced(f"{member.key} was declared dead or has left")

    def check_lease(self, member: Member) -> None:
        """A shard asks for its lease.

        Raises :class:`Fenced` for one that is out, :class:`NotServing` for one that soon is.
        """
        if not self._is_removed(member):
            return
        if member.key in self._current:
            raise NotServing(f"{member.key} is being declared dead")
        raise Fenced(f"{member.key} was declared dead or has left")

    def in_epoch(self, member: Member) -> bool:
        return member.key in self._current

    def arrivals_of(self, role: Role) -> list[Arrival]:
        """Members that wait to be in an epoch, in order of arrival."""
        return [
            arrival
            for arrival in self._arrivals.values()
            if arrival.member.role == role and arrival.member.key not in self._excluded
        ]

    @property
    def failures(self) -> list[MemberFailure]:
        return list(self._failures.values())

    def suspects(self) -> list[MemberFailure]:
        """Not proved: to be asked once more when their time has come."""
        return [failure for failure in self._failures.values() if not failure.report.proved]

    def proved_dead(self) -> list[MemberFailure]:
        """Proved: to be repaired by the next epoch."""
        return [failure for failure in self._failures.values() if failure.report.proved]

    def all_members(self) -> Iterator[Member]:
        """Members of the newest epoch, those that wait, and coordinators."""
        yield from self._current.values()
        for arrival in self._arrivals.values():
            yield arrival.member
        yield from self.coordinators.values()

    def _is_removed(self, member: Member) -> bool:
        return member.key in self._removed or member.incarnation in self._fenced
