"""When do we accuse? A pure core: heartbeats, broken streams, probe answers and time go in; probes and accusations come out.

Suspicion is silence that φ accrual calls improbable. It is confirmed by direct probes, on a path that shares nothing with the
heartbeats. A foreign process at the member's address, a closed port on this machine, or one elsewhere after the member has hung
up *proves* a death, at once and whatever else is wrong. Without proof nobody is accused while Redis cannot be read, while the
member's rhythm is not known and its silence is short, or while most members are silent together and no other answers us: then
we are the likelier culprit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scar.placement import Member
from scar_detector.phi import Intervals
from scar_detector.watched import Answer, Doom, Health, Watched


@dataclass(frozen=True)
class Policy:
    """Times in seconds. With a heartbeat every 0.1 s: suspicion after 0.1 + 5.6 · floor = 0.4, accusation one probe later."""

    window: int = 100  # intervals that are remembered
    floor: float = 0.05  # least deviation; raise it on machines that stutter
    threshold: float = 8.0  # φ of suspicion
    samples: int = 10  # intervals before φ means anything
    patience: float = 1.5  # silence that is suspicious whatever φ says, also while learning
    period: float = 0.05  # expected time between ticks
    pause: float = 1.0  # a longer gap between ticks is a pause of our own: learn anew
    probe_every: float = 0.3  # between probes of one member
    careful_misses: int = 3  # probes in a row that must fail while learning, or when most are silent; else 1
    crowd: int = 3  # members below which "most are silent" means nothing
    remember: float = 5.0  # time that an accused member stays in view and barred; more than a lease


@dataclass(frozen=True)
class Probe:
    """Ask this member directly, then call ``probed``."""

    member: Member


@dataclass(frozen=True)
class Bar:
    """Stop heartbeats from renewing this member's lease, look for a last one, then call ``barred``."""

    member: Member


@dataclass(frozen=True)
class Accuse:
    """Report it. ``silence``: seconds since its last sign of life; nothing that Redis knows of has renewed its lease since."""

    member: Member
    proved: bool
    silence: float
    evidence: str


@dataclass(frozen=True)
class Clear:
    """It lives: take back :class:`Bar`, and a report that was not delivered yet."""

    member: Member


@dataclass(frozen=True)
class Forget:
    """It is gone for good: stop watching it."""

    member: Member


Action = Probe | Bar | Accuse | Clear | Forget


@dataclass(frozen=True)
class View:
    member: Member
    health: Health
    phi: float
    silence: float
    progress: int


class Detector:
    """Not thread-safe. ``now`` is any clock in seconds that never goes back."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._watched: dict[str, Watched] = {}
        self._ticked: float | None = None
        self._blind = False  # Redis could not be read the last time
        self._crowd = False

    def heard(self, member: Member, progress: int, now: float) -> None:
        """A heartbeat that was not seen before."""
        known = self._watched.get(member.key)
        if known is None:
            self._meet(member, progress, now)
            return
        if not math.isnan(known.beat):
            known.intervals.add(now - known.beat)
        known.beat, known.progress = now, progress
        if known.dead:
            known.returned += 1
        known.lives(now)

    def seen(self) -> None:
        """Redis was read."""
        self._blind = False

    def unheard(self) -> None:
        """Redis could not be read. The intervals that end after this say nothing about the members."""
        self._blind = True
        for known in self._watched.values():
            known.beat = math.nan

    def broken(self, member: Member, *, hung_up: bool = False) -> None:
        """The watch stream broke: the fastest sign of a death, and no proof. ``hung_up``: the other side closed it."""
        known = self._watched.get(member.key)
        if known is not None and not known.dead:
            known.urgent = True
            known.hung_up = known.hung_up or hung_up

    def probed(self, member: Member, answer: Answer, now: float) -> None:
        """A probe has ended."""
        known = self._watched.get(member.key)
        if known is None:
            return
        known.probing, known.answer = False, answer
        if answer is Answer.ALIVE:
            known.answered, known.hung_up = now, False
            known.lives(now)
            return
        known.misses += 1

    def barred(self, member: Member, *, done: bool) -> None:
        """:class:`Bar` was carried out, or could not be. If it is still silent, nothing has renewed its lease meanwhile."""
        known = self._watched.get(member.key)
        if known is not None and known.doom is Doom.ASKED:
            known.doom = Doom.SET if done else Doom.NONE

    def tick(self, now: float) -> list[Action]:
        """What to do now. Call it every ``period``, and at once after ``broken`` and ``probed``."""
        self._watch_self(now)
        alive = [known for known in self._watched.values() if not known.dead]
        silent = {known.member.key for known in alive if self._silent(known, now)}
        self._crowd = len(alive) >= self._policy.crowd and 2 * len(silent) > len(alive)
        return [
            action for known in list(self._watched.values()) for action in self._judge(known, known.member.key in silent, now)
        ]

    def view(self, now: float) -> list[View]:
        return [
            View(
                known.member, self._health(known, now), known.intervals.phi(known.quiet(now)), now - known.sign, known.progress
            )
            for known in self._watched.values()
        ]

    @property
    def problem(self) -> str:
        """Why nobody is accused without proof at the moment; empty: nothing."""
        if self._blind:
            return "Redis cannot be read; only proved deaths are reported"
        if self._crowd:
            return "most members are silent at once; only proved deaths, or those silent while others answer, are reported"
        return ""

    def __len__(self) -> int:
        return len(self._watched)

    def _meet(self, member: Member, progress: int, now: float) -> None:
        """A new life. Whoever had the name is probably gone, but only a probe can tell: this may be the old one, waking up."""
        for other in self._watched.values():
            if (other.member.role, other.member.name) == (member.role, member.name) and not other.dead:
                other.urgent = True
        policy = self._policy
        known = Watched(member, Intervals(policy.window, policy.floor, policy.pause), now, beat=now, progress=progress)
        self._watched[member.key] = known

    def _watch_self(self, now: float) -> None:
        """Our own lateness is nobody's silence; after a long pause everything is learnt anew."""
        gap = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        for known in self._watched.values():
            if gap > self._policy.pause:
                known.learn(now)
            elif gap > 2 * self._policy.period:
                known.excused += min(gap - self._policy.period, now - known.sign)

    def _learning(self, known: Watched) -> bool:
        return len(known.intervals) < self._policy.samples

    def _silent(self, known: Watched, now: float) -> bool:
        quiet = known.quiet(now)
        if quiet > self._policy.patience:
            return True
        return not self._blind and not self._learning(known) and known.intervals.phi(quiet) >= self._policy.threshold

    def _judge(self, known: Watched, silent: bool, now: float) -> Iterator[Action]:
        if known.dead:
            yield from self._after_death(known, now)
        elif known.proved:
            yield self._accuse(known, True, now)
        elif not silent:
            if known.doom is not Doom.NONE:
                known.doom = Doom.NONE
                yield Clear(known.member)
            yield from self._probe(known, known.urgent or self._blind or self._crowd, now)
        elif self._confirmed(known, now):
            yield from self._close_in(known, now)
        else:
            yield from self._probe(known, True, now)

    def _probe(self, known: Watched, wanted: bool, now: float) -> Iterator[Action]:
        due = known.urgent or now - known.asked >= self._policy.probe_every
        if wanted and due and not known.probing:
            known.probing, known.urgent, known.asked = True, False, now
            yield Probe(known.member)

    def _confirmed(self, known: Watched, now: float) -> bool:
        """Have enough probes failed to accuse a silent member without proof?"""
        if self._blind or known.probing or known.urgent:
            return False
        if not self._crowd:
            return known.misses >= (self._policy.careful_misses if self._learning(known) else 1)
        others = (other for other in self._watched.values() if other is not known)
        witness = any(now - other.answered < self._policy.pause for other in others)
        return witness and known.misses >= self._policy.careful_misses

    def _close_in(self, known: Watched, now: float) -> Iterator[Action]:
        if known.doom is Doom.NONE:
            known.doom = Doom.ASKED
            yield Bar(known.member)
        elif known.doom is Doom.SET:
            yield self._accuse(known, False, now)

    def _accuse(self, known: Watched, proved: bool, now: float) -> Accuse:
        known.accused, known.returned = now, 0
        silence = now - known.sign
        answer = known.answer.value if known.answer is not None else "it was not asked"
        text = (
            answer
            if proved
            else f"silent for {silence:.2f} s (phi {known.intervals.phi(silence):.1f}); probed directly: {answer}"
        )
        return Accuse(known.member, proved, silence, text)

    def _after_death(self, known: Watched, now: float) -> Iterator[Action]:
        """An accused member that keeps beating was not dead; one that stays silent is dropped from view."""
        if now - known.accused < self._policy.remember:
            return
        if known.returned >= self._policy.samples:
            known.accused, known.answer, known.doom = math.nan, None, Doom.NONE
            known.urgent, known.hung_up = True, False
            known.learn(now)
            yield Clear(known.member)
        elif now - known.sign >= self._policy.remember:
            del self._watched[known.member.key]
            yield Forget(known.member)

    def _health(self, known: Watched, now: float) -> Health:
        if known.dead:
            return Health.DEAD
        if self._silent(known, now):
            return Health.SUSPECT
        return Health.LEARNING if self._learning(known) else Health.ALIVE
