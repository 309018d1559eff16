"""When is a round run, what does it save, when does it count? A pure core: events and times come in, actions go out.

A round goes through four stages: distances of all shards, objects of those that answered, one manifest, and `Finish` for every
shard that had begun. A shard that answers late or not at all misses the round; a round commits what is there. Nothing exists
before its manifest is created, and no two coordinators create the same number: who loses goes on from the winner's.

The running checkpoint begins as x(0), so a job without any manifest is restorable. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import deque

from scar.placement import Epoch
from scar.tables import Job
from scar.v1.checkpoint_pb2 import Manifest
from scar_checkpoint.rounds import (
    Abandon,
    Action,
    Commit,
    Copy,
    Done,
    Finish,
    Measure,
    Rewrite,
    Round,
    Saved,
    Stage,
    Summary,
    Ticket,
)
from scar_runtime.running import RunningCheckpoint
from scar_runtime.selection import Report, decide

AGAIN = 0.2  # seconds until a shard that cannot answer yet is asked again; doubled up to AGAIN_MOST
AGAIN_MOST = 2.0
PAUSE = 0.05  # seconds between rounds for which acknowledgements wait
LATE = 1.0  # seconds after the first answer in which refusals are still asked again
FINISH_SECONDS = 5.0  # to tell the shards, before the next round may begin
BACKOFF = 0.5  # seconds until a failed round is tried again; doubled up to BACKOFF_MOST
BACKOFF_MOST = 15.0
HISTORY = 16
RESIGNED = "this coordinator does not lead any more"


class Coordinator:
    """Rounds of one job. ``author`` signs manifests; ``timeout`` is for each stage of a round."""

    def __init__(self, job: Job, author: str, timeout: float = 30.0) -> None:
        self.job = job
        self.leading = False
        self.running = RunningCheckpoint(job)
        self.number = 0  # of the newest manifest
        self.epoch: Epoch | None = None
        self.rewrite: Rewrite | None = None
        self.recent: deque[Summary] = deque(maxlen=HISTORY)
        self._author, self._timeout = author, timeout
        self._problem = ""
        self._round: Round | None = None
        self._last_round = 0
        self._tickets: list[Ticket] = []
        self._due = self._after(0)
        self._not_before = 0.0
        self._failures = 0
        self._committed_at: float | None = None

    # --- leading -----------------------------------------------------------------------------------------------------

    def lead(self, running: RunningCheckpoint, number: int, age: float, now: float) -> list[Action]:
        """Go on from this running checkpoint. ``number``: the highest that exists, should newer ones be damaged; ``age``:
        seconds since it was committed, -1 for none."""
        self.leading = True
        self._follow(running, number)
        self._due = self._after(running.manifest.clock)
        self._committed_at = now - age if age >= 0 else None
        return self._next(now)

    def resign(self, now: float) -> list[Action]:
        """Lead no more: end the round and whatever waits for one."""
        self.leading = False
        actions: list[Action] = []
        current = self._round
        if current is not None:
            actions.append(Abandon(current.number))
        if current is not None and current.answered is not None and current.stage is not Stage.FINISHING:
            actions += self._end(current, "failed", RESIGNED, now)
        for ticket in self._tickets:
            actions.append(Done("failed", Summary(0, error=RESIGNED), (ticket.number,)))
        self._tickets, self._round = [], None
        return actions

    def adopted(self, epoch: Epoch, now: float) -> list[Action]:
        """A newer placement. Shards that left it take no further part in the round; a rollback voids the round."""
        self.epoch = epoch
        if epoch.rollback:
            self._due = min(self._due, self._after(epoch.clock))
        current = self._round
        if current is None:
            return self._next(now)
        if current.stage is Stage.MEASURING:
            return self._restart(current, now)  # shards forget what they have measured when they adopt an epoch
        if current.stage is not Stage.SAVING:
            return []
        if epoch.rollback:
            return self._fail(current, "the job was rolled back", now)
        for key in [key for key in current.shards if key not in {member.key for member in epoch.shards}]:
            current.drop(key, "it left the cluster")
        return self._proceed(current, now)

    def trigger(self, ticket: Ticket, now: float) -> list[Action]:
        """Run a round as soon as the one under way is over; one that only waits for its clock makes room."""
        self._tickets.append(ticket)
        current = self._round
        if current is not None and current.stage is Stage.MEASURING and current.answered is None and current.ticket is None:
            return self._restart(current, now)
        return self._next(now)

    def tick(self, now: float) -> list[Action]:
        """Call it about ten times a second."""
        current = self._round
        if current is None:
            return self._next(now)
        actions: list[Action] = []
        for key in [key for key, at in current.again.items() if at <= now]:
            del current.again[key]
            actions.append(self._measure(current, key))
        if current.stage is Stage.COMMITTING or current.answered is None or now < current.deadline:
            return actions
        for key in [*current.waiting, *current.again]:
            current.drop(key, f"no answer within {self._timeout:g} s")
        return [*actions, *self._proceed(current, now)]

    # --- answers -----------------------------------------------------------------------------------------------------

    def measured(self, round: int, shard: str, clock: int, reports: list[Report], now: float) -> list[Action]:
        """Distances of one shard, measured at its open ``clock``."""
        current = self._at(round, Stage.MEASURING, shard)
        if current is None:
            return []
        if current.answered is None:
            current.answered, current.deadline = now, now + self._timeout
        current.waiting.discard(shard)
        current.missed.pop(shard, None)
        current.measured[shard], current.clocks[shard] = reports, clock
        return self._proceed(current, now)

    def refused(self, round: int, shard: str, why: str, passing: bool, now: float) -> list[Action]:
        """A shard could not measure or save. ``passing``: it may be able to in a moment."""
        current = self._at(round, None, shard)
        if current is None:
            return []
        early = current.answered is None or now < current.answered + LATE
        if current.stage is Stage.MEASURING and passing and early:
            times = current.refusals[shard] = current.refusals.get(shard, 0) + 1
            current.waiting.discard(shard)
            current.again[shard] = now + min(AGAIN_MOST, AGAIN * 2 ** min(times - 1, 8))
            current.missed[shard] = why
            return []
        current.drop(shard, why)
        return self._proceed(current, now)

    def saved(self, round: int, shard: str, found: Saved | None, copy_seconds: float, now: float) -> list[Action]:
        """One shard's object is durable and its header was read; None: it had nothing to save."""
        current = self._at(round, Stage.SAVING, shard)
        if current is None:
            return []
        if found is not None and found[0].owner != shard:
            current.drop(shard, f"its object says that {found[0].owner} wrote it")
        else:
            current.waiting.discard(shard)
            current.saved[shard] = found
            current.copy_seconds = max(current.copy_seconds, copy_seconds)
        return self._proceed(current, now)

    def committed(self, round: int, running: RunningCheckpoint, now: float) -> list[Action]:
        """The manifest exists."""
        current = self._at(round, Stage.COMMITTING)
        if current is None:  # we resigned meanwhile; it exists all the same
            if running.manifest.number > self.number:
                self._follow(running, running.manifest.number)
            return []
        if self.rewrite is current.rewrite:  # it is listed now, or did not fit
            self.rewrite = None
        self.running, self.number = running, running.manifest.number
        self._committed_at = now
        return self._succeed(current, "committed", "", now)

    def lost(self, round: int, running: RunningCheckpoint, number: int, now: float) -> list[Action]:
        """The number was taken: ``running`` is the newest running checkpoint now.

        Is it this round's own manifest, then the answer of the put was lost. An older one of ours (a put that arrived late) is
        a parent like any other. Behind somebody else's our objects may be older than theirs, so the round fails.
        """
        current, manifest = self._at(round, Stage.COMMITTING), running.manifest
        if current is not None and manifest.author == self._author and manifest.round == round:
            return self.committed(round, running, now)
        self._follow(running, number)
        if current is None:
            return []
        if manifest.author == self._author:
            return self._commit(current)
        self._due = max(self._due, self._after(manifest.clock))
        return self._fail(current, f"another coordinator has committed manifest {manifest.number}", now)

    def failed(self, round: int, why: str, now: float) -> list[Action]:
        """The manifest could not be created, or nobody knows whether it was."""
        current = self._at(round, Stage.COMMITTING)
        return [] if current is None else self._fail(current, why, now)

    def finished(self, round: int, shard: str, now: float) -> list[Action]:
        """A shard was told, or cannot be."""
        current = self._at(round, Stage.FINISHING, shard)
        if current is None:
            return []
        current.waiting.discard(shard)
        return self._proceed(current, now)

    def compacted(self, rewrite: Rewrite) -> list[Action]:
        """An object was written that can stand for several; the next manifest will list it."""
        self.rewrite = rewrite
        return []

    # --- looking -----------------------------------------------------------------------------------------------------

    def age(self, now: float) -> float:
        """Seconds since the last commit; -1: none yet."""
        return -1.0 if self._committed_at is None else max(0.0, now - self._committed_at)

    @property
    def problem(self) -> str:
        """Why there are no rounds at the moment; empty: nothing is wrong."""
        current = self._round
        if self._problem or current is None or current.stage is not Stage.MEASURING or current.measured:
            return self._problem
        refusing = [f"{current.shards[key].name}: {current.missed[key]}" for key in current.again if current.refusals[key] > 3]
        return "; ".join(refusing)

    # --- the course of a round -----------------------------------------------------------------------------------------

    def _next(self, now: float) -> list[Action]:
        """Begin a round if one may begin: first what was triggered, else the periodic one, which waits for its clock."""
        if self._round is not None or not self.leading or self.epoch is None or not self.epoch.shards:
            return []
        if not self._tickets and now < self._not_before:
            return []
        ticket = self._tickets.pop(0) if self._tickets else None
        policy = self.job.checkpoint
        selection = ticket.selection if ticket and ticket.selection else policy.selection
        fraction = ticket.fraction if ticket and ticket.fraction else policy.effective_fraction
        shards = {m.key: m for m in self.epoch.shards if ticket is None or ticket.shard in ("", m.key)}
        if ticket is not None and not shards:
            gone = Summary(0, error=f"{ticket.shard} is in no epoch any more")
            return [Done("failed", gone, (ticket.number,)), *self._next(now)]
        self._last_round += 1
        self._round = Round(self._last_round, selection, fraction, 0 if ticket else self._due, ticket, shards)
        if ticket:  # nobody has to wait for a clock
            self._round.answered, self._round.deadline = now, now + self._timeout
        return [self._measure(self._round, key) for key in shards]

    def _after(self, clock: int) -> int:
        """Clock for which the next periodic round waits; 0 where acknowledgements wait for rounds: it would never come."""
        return 0 if self.job.strategy.stores else clock + self.job.checkpoint.every

    def _measure(self, current: Round, key: str) -> Measure:
        assert self.epoch is not None
        current.waiting.add(key)
        skip = current.selection != "priority"
        return Measure(current.shards[key], self.epoch.number, current.number, current.min_clock, skip)

    def _restart(self, current: Round, now: float) -> list[Action]:
        """The round under way gives way to one with another number; whoever waited for it waits for that one."""
        if current.ticket is not None:
            self._tickets.insert(0, current.ticket)
        self._round = None
        return [Abandon(current.number), *self._next(now)]

    def _proceed(self, current: Round, now: float) -> list[Action]:
        """The next stage, when nobody is missing any more."""
        if current.waiting or current.again:
            return []
        if current.stage is Stage.MEASURING:
            return self._decide(current, now)
        if current.stage is Stage.SAVING:
            if current.objects:
                return self._commit(current)
            return self._fail(current, current.reasons, now) if current.missed else self._unchanged(current, now)
        if current.stage is Stage.FINISHING:
            self._round = None
            return [Abandon(current.number), *self._next(now)]
        return []

    def _decide(self, current: Round, now: float) -> list[Action]:
        if not current.measured:
            return self._fail(current, f"no shard took part: {current.reasons}", now)
        assert self.epoch is not None
        reports = [report for reports in current.measured.values() for report in reports]
        decision = decide(current.selection, current.fraction, self.number + 1, self.job, reports)
        current.measured = {key: [] for key in current.measured}  # a million distances are of no use any more
        current.decided, current.deadline = now, now + self._timeout
        if decision.count == 0:
            return self._unchanged(current, now)
        current.stage = Stage.SAVING
        current.waiting = set(current.measured)
        return [Copy(member, self.epoch.number, current.number, decision) for member in current.told()]

    def _commit(self, current: Round) -> list[Action]:
        assert self.epoch is not None
        current.stage = Stage.COMMITTING
        found = current.objects
        clocks = {ref.clock for ref, _ in found}  # BSP: one clock, or no consistent state
        manifest = Manifest(
            number=self.number + 1,
            parent=self.running.manifest.number,
            job=self.job.name,
            author=self._author,
            epoch=self.epoch.number,
            round=current.number,
            selection=current.selection,
            clock=min(clocks),
        )
        parent, current.rewrite = self.running, self.rewrite
        if self.rewrite is not None:
            parent = self.rewrite.applied(parent, self.number) or parent
        running = parent.extended(found, manifest)
        whole = current.selection == "full" and running.covered_by({ref.key for ref, _ in found})
        manifest.full = whole and (self.job.consistency != "bsp" or len(clocks) == 1)
        manifest.objects.extend(running.objects)
        return [Commit(current.number, running)]

    def _unchanged(self, current: Round, now: float) -> list[Action]:
        return self._succeed(current, "unchanged", "nothing has changed since it was saved", now)

    def _succeed(self, current: Round, result: str, why: str, now: float) -> list[Action]:
        self._failures, self._problem, self._not_before = 0, "", 0.0
        if current.ticket is None:
            self._due = self._after(min(current.clocks.values()))
            self._not_before = now + PAUSE if self.job.strategy.stores else 0.0
            if result == "committed" and current.selection == "full" and not self.running.manifest.full:
                mixed = len({ref.clock for ref, _ in current.objects}) > 1
                self._due = max(current.clocks.values()) + 1
                self._not_before = 0.0 if mixed else now + BACKOFF  # a shard or a block was missing: give it a moment
        return self._end(current, result, why, now)

    def _fail(self, current: Round, why: str, now: float) -> list[Action]:
        self._failures += 1
        self._problem = why
        self._not_before = now + min(BACKOFF_MOST, BACKOFF * 2 ** min(self._failures - 1, 8))
        return self._end(current, "failed", why, now)

    def _end(self, current: Round, result: str, why: str, now: float) -> list[Action]:
        """Tell whoever waits, and every shard that has a round open."""
        manifest = self.running.manifest if result == "committed" else None
        summary = current.summary(self.job.blocks, now, manifest, why)
        self.recent.append(summary)
        members = {member.key for member in self.epoch.shards} if self.epoch else set()
        told = [shard for shard in current.told() if shard.key in members]
        kept = {ref.owner for ref, _ in current.objects} if manifest else set()
        current.stage, current.waiting, current.again = Stage.FINISHING, {shard.key for shard in told}, {}
        current.answered, current.deadline = now, now + FINISH_SECONDS
        tickets = (current.ticket.number,) if current.ticket else ()
        finish = [Finish(shard, current.number, shard.key in kept, summary.manifest) for shard in told]
        return [Done(result, summary, tickets), *finish, *self._proceed(current, now)]

    def _follow(self, running: RunningCheckpoint, number: int) -> None:
        """Go on from somebody else's manifest, or from one of an earlier life."""
        self.running, self.rewrite = running, None
        self.number = max(number, running.manifest.number)
        self._last_round = max(self._last_round, running.manifest.round)

    def _at(self, round: int, stage: Stage | None, shard: str | None = None) -> Round | None:
        """The round under way, if that is what an answer is about. Late answers are about none."""
        current = self._round
        if current is None or current.number != round or (stage is not None and current.stage is not stage):
            return None
        return current if shard is None or shard in current.waiting else None
