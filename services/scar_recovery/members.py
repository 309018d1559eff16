"""Who is there beyond the newest epoch: arrivals, departures, the dead and the suspected. Pure.

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scar.errors import Fenced, NotServing
from scar.placement import Epoch, Member, Role

COORDINATORS = (Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR)


@dataclass(frozen=True)
class Report:
    """What the detector (or a successor's arrival) says about a member. Durations in seconds."""

    member: Member
    proved: bool
    silence: float = 0.0  # since its last sign of life
    detect_seconds: float = 0.0
    evidence: str = ""


@dataclass(frozen=True)
class Failure:
    """A member that is believed dead. It may be declared so from ``allowed`` on; a suspect only after one more question."""

    report: Report
    reported: float
    allowed: float

    @property
    def key(self) -> str:
        return self.report.member.key

    @property
    def waits(self) -> float:
        """Seconds from the report until it may be declared so."""
        return self.allowed - self.reported


@dataclass(frozen=True)
class Arrival:
    """A member that waits to be in an epoch."""

    member: Member
    since: float


class Members:
    """``lease``: seconds that a suspect may still be serving after its last sign of life."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._since = 0.0  # start of this leadership: nobody's silence counts from before
        self._inside: dict[str, Member] = {}  # of the newest epoch
        self._arrivals: dict[str, Arrival] = {}
        self._failures: dict[str, Failure] = {}
        self._heard: dict[str, float] = {}
        self._gone: set[str] = set()  # keys that must not come back
        self._fenced: frozenset[str] = frozenset()
        self._shunned: frozenset[str] = frozenset()  # shards that must get no blocks
        self.departures: dict[str, float] = {}  # key -> since; workers that left, shards that want to or have to
        self.coordinators: dict[str, Member] = {}

    def lead(self, now: float) -> None:
        """Leadership starts now. What a predecessor heard is unknown, so every suspect gets a whole lease from here."""
        self._since = now
        for key, failure in self._failures.items():
            if not failure.report.proved:
                self._failures[key] = replace(failure, allowed=max(failure.allowed, now + self._lease))

    def follow(self, epoch: Epoch, now: float) -> None:
        """A new epoch: who is in it has arrived, who is not any more is gone."""
        inside = {member.key: member for member in (*epoch.shards, *epoch.workers)}
        self._gone |= self._inside.keys() - inside.keys()
        self._inside, self._fenced = inside, frozenset(epoch.fenced)
        self._arrivals = {k: a for k, a in self._arrivals.items() if k not in inside and not self._refused(a.member)}
        self.departures = {key: since for key, since in self.departures.items() if key in inside}
        self._failures = {key: failure for key, failure in self._failures.items() if key in inside}
        self._heard = {key: when for key, when in self._heard.items() if key in inside}
        for arrival in list(self._arrivals.values()):
            self._supersede(arrival.member, now)

    # --- events -------------------------------------------------------------------------------------------------------

    def joined(self, member: Member, now: float) -> None:
        """A member announces itself, perhaps again. Raises :class:`Fenced` for one that was declared dead or has left."""
        if self._refused(member):
            raise Fenced(f"{member.key} was declared dead or has left")
        if member.role in COORDINATORS:
            self.coordinators[member.name] = member
            return
        self.heard(member.key, now)
        self._supersede(member, now)
        if member.key not in self._inside:
            self._arrivals.setdefault(member.key, Arrival(member, now))

    def attended(self, coordinators: Iterable[Member]) -> None:
        """These coordinators are there, and no others."""
        self.coordinators = {member.name: member for member in coordinators}

    def heard(self, key: str, now: float) -> None:
        """A sign of life: a suspect is none any more; a proof stays one."""
        self._heard[key] = now
        failure = self._failures.get(key)
        if failure is not None and not failure.report.proved:
            del self._failures[key]

    def renewed(self, member: Member, now: float) -> None:
        """A shard asks for its lease. Raises :class:`Fenced` for one that is out, :class:`NotServing` for one that soon is."""
        if member.key in self._inside and not self._refused(member):
            self.heard(member.key, now)
        elif member.key in self._inside:
            raise NotServing(f"{member.key} is being declared dead")
        elif self._refused(member):
            raise Fenced(f"{member.key} was declared dead or has left")

    def left(self, member: Member, now: float) -> None:
        """A member wants to go."""
        if member.key in self._inside:
            self.departures.setdefault(member.key, now)
        else:
            self._arrivals.pop(member.key, None)
            self._gone.add(member.key)

    def shun(self, keys: frozenset[str], now: float) -> None:
        """These shards, and no others, are to have no blocks: those in the epoch give theirs away, the others wait."""
        for key in self._shunned - keys:
            self.departures.pop(key, None)  # one that asks by itself asks again
        self._shunned = keys
        for key in keys & self._inside.keys():
            self.departures.setdefault(key, now)

    def failed(self, report: Report, now: float) -> None:
        """A member is dead (proved) or silent (suspected). Reports about strangers are ignored."""
        key = report.member.key
        if report.proved:
            self._arrivals.pop(key, None)
            self._gone.add(key)
        known = self._failures.get(key)
        if key not in self._inside or (known is not None and known.report.proved):
            return
        last = max(now - report.silence, self._heard.get(key, self._since), self._since)
        allowed = now if report.proved else max(now, last + self._lease)
        if known is not None and not report.proved:
            allowed = min(allowed, known.allowed)
        self._failures[key] = Failure(report, now, max(now, allowed))

    def confirmed(self, key: str, alive: bool, now: float) -> None:
        """What a suspect said to the last question. No answer, after its lease has run out, is as good as a proof."""
        failure = self._failures.get(key)
        if failure is not None and alive:
            self.heard(key, now)
        elif failure is not None:
            self._failures[key] = replace(failure, report=replace(failure.report, proved=True))
            self._gone.add(key)

    def _supersede(self, member: Member, now: float) -> None:
        """A new incarnation proves that its predecessors are dead."""
        known = [*self._inside.values(), *(arrival.member for arrival in self._arrivals.values())]
        for old in known:
            if (old.role, old.name) == (member.role, member.name) and old.key != member.key:
                self.failed(Report(old, proved=True, evidence=f"{member.key} has taken its place"), now)

    def _refused(self, member: Member) -> bool:
        return member.key in self._gone or member.incarnation in self._fenced

    # --- questions ----------------------------------------------------------------------------------------------------

    def waiting(self, role: Role) -> list[Arrival]:
        """Members that wait to be in an epoch, in order of arrival."""
        return [one for one in self._arrivals.values() if one.member.role == role and one.member.key not in self._shunned]

    @property
    def failures(self) -> list[Failure]:
        return list(self._failures.values())

    def suspects(self) -> list[Failure]:
        """Not proved: to be asked once more when their time has come."""
        return [failure for failure in self._failures.values() if not failure.report.proved]

    def dead(self) -> list[Failure]:
        """Proved: to be repaired by the next epoch."""
        return [failure for failure in self._failures.values() if failure.report.proved]

    def all(self) -> Iterable[Member]:
        """Members of the newest epoch, those that wait, and coordinators."""
        yield from self._inside.values()
        yield from (arrival.member for arrival in self._arrivals.values())
        yield from self.coordinators.values()
