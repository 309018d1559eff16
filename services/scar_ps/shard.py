"""The shard's decisions: who may push, what is applied when, which clock is open, what is saved (docs/protocol.md §2-§7, §10).

Pure and single-threaded: calls in, values out; no I/O, no clock. A call that has to wait raises :class:`NotYet` before it has
changed anything and is repeated after the next change. Errors of :mod:`scar.errors` are raised before any change, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from scar.errors import Fenced, InvalidRequest, NotServing, StaleEpoch, WrongJob
from scar.placement import Epoch, Member
from scar.tables import Job
from scar_ps.barrier import Barrier, Lanes, NotYet, Sender
from scar_ps.blockstore import Contents, Part, Progress
from scar_ps.chain import Chain
from scar_ps.contributions import Contribution, Contributions, summed
from scar_ps.holdings import Aside, Holdings, Load
from scar_ps.replicas import Replicas
from scar_ps.requests import Counts, Push, View, Wanted
from scar_ps.rounds import Candidates, Chosen, Copied, Rounds


class Shard:
    """One life of one shard. ``progress`` is called during long work, about every millisecond."""

    def __init__(self, member: Member, progress: Progress = lambda: None) -> None:
        self.member, self._progress = member, progress
        self.job: Job | None = None
        self.epoch: Epoch | None = None
        self.dismissed = ""  # why this shard may never serve again; empty: it may
        self.heard = 0  # newest epoch that somebody spoke of
        self.view = View()
        self.counts = Counts()
        self.holdings = Holdings(member.key, progress)
        self.barrier, self.lanes = Barrier(), Lanes()
        self.contributions, self.rounds = Contributions(), Rounds()
        self.chain, self.replicas = Chain(member.key), Replicas(member.key)
        self._gained = 0  # newest epoch in which this shard gained blocks
        self._unsettled = False
        self._settled: dict[str, int] = {}  # worker key -> newest epoch for which it has re-routed
        self._since: dict[str, int] = {}  # worker key -> epoch in which this shard first heard of it
        self._incarnations: dict[str, str] = {}

    @property
    def number(self) -> int:
        """Newest epoch adopted; 0: none."""
        return self.epoch.number if self.epoch else 0

    @property
    def clock(self) -> int:
        """The open clock: all clocks below are closed."""
        return self.barrier.clock

    @property
    def told(self) -> int:
        """The open clock as others may hear of it: what they believe closed is not lost with this shard."""
        return self.chain.told(self.clock) if self._bsp else self.clock

    @property
    def workers(self) -> list[str]:
        """Names in rank order."""
        return list(self.epoch.ranks) if self.epoch else []

    @property
    def awaited(self) -> list[str]:
        """Names of those without whom no clock closes."""
        if self.epoch is None or (self.job is not None and self.job.worker_strategy.waits):
            return self.workers
        return [member.name for member in self.epoch.workers]

    # --- epochs ------------------------------------------------------------------------------------------------------

    def bridged(self, epoch: Epoch, job: Job) -> bool:
        """False when epochs before this one have to be adopted first, because they say where blocks come from."""
        if epoch.number <= self.number + 1 or self._excluded(epoch):
            return True
        return self.number == 0 and self.holdings.covers(epoch, job)

    def adopt(self, epoch: Epoch, job: Job) -> list[Load]:
        """Follow an epoch; returns what is to be loaded. An older or equal one changes nothing."""
        if epoch.number <= self.number or self.dismissed:
            return []
        if epoch.job != job.name or (self.job is not None and self.job.name != job.name):
            raise WrongJob(f"{self.member.key} belongs to another job than {epoch.job}")
        excluded = self._excluded(epoch)
        if excluded:
            self._dismiss(excluded)
            return []
        if epoch.shard_index(self.member.key) < 0:
            return []
        empty = self.holdings.value_bytes == 0
        self.holdings.put_aside(self.replicas.given(job, epoch))
        loads, relocations = self.holdings.adopt(epoch, job)
        if empty:  # nothing of ours waits for a clock; without workers no mark would ever raise it
            self.barrier.clock = max(self.barrier.clock, epoch.clock)
        gained = any(relocation.gained.any() for relocation in relocations.values())
        if gained:
            self._gained, self._unsettled = epoch.number, True
        self.job, self.epoch = job, epoch
        self.contributions.follow(relocations, self.clock)
        self.contributions.drop_replaced(self._incarnations, self.barrier.finished)
        self.rounds.follow(relocations)
        self._enrol(epoch)
        self.replicas.follow(epoch)
        self.chain.follow(job, epoch, gained)
        self._publish()
        self._advance()
        return loads

    def _excluded(self, epoch: Epoch) -> str:
        if {self.member.incarnation, self.member.key} & set(epoch.fenced):
            return f"epoch {epoch.number} has fenced {self.member.key}"
        if self.epoch is not None and epoch.shard_index(self.member.key) < 0:
            return f"{self.member.key} is not part of epoch {epoch.number}"
        return ""

    def _dismiss(self, why: str) -> None:
        self.dismissed = why
        self.holdings = Holdings(self.member.key, self._progress)
        self.contributions.clear()
        self.rounds = Rounds()
        self.chain, self.replicas = Chain(self.member.key), Replicas(self.member.key)
        self._publish()

    def _enrol(self, epoch: Epoch) -> None:
        keys = [worker.key for worker in epoch.workers]
        if epoch.rollback:
            self.contributions.clear()
            self.lanes.watermark.clear()
        self.lanes.keep(keys)
        for worker in epoch.workers:
            if worker.key not in self._since:
                self.barrier.returned(worker.name)
        self._since = {key: self._since.get(key, epoch.number) for key in keys}
        self._settled = {key: number for key, number in self._settled.items() if key in self._since}

    def _publish(self) -> None:
        limit = 2 * len(self.workers) * self.holdings.value_bytes
        self.view = View(0 if self.dismissed else self.number, dict(self.holdings.tables), limit)

    def install(self, load: Load, contents: Contents) -> None:
        """Loaded blocks have arrived."""
        if not self.dismissed:
            self.holdings.install(load, contents)

    def wanted(self, load: Load) -> bool:
        return not self.dismissed and self.holdings.wanted(load)

    # --- requests: may the sender speak? -----------------------------------------------------------------------------

    def check_epoch(self, epoch: int) -> Epoch:
        """The shard's epoch, which is the request's. Raises :class:`StaleEpoch`, :class:`NotServing`."""
        if self.dismissed:  # that is this shard's end; the sender lives, and hears of the epoch soon
            raise NotServing(self.dismissed)
        if self.epoch is None:
            self.heard = max(self.heard, epoch)
            raise NotServing(f"{self.member.name} has no epoch yet")
        if epoch > self.number:
            self.heard = max(self.heard, epoch)
            raise NotServing(f"{self.member.name} knows epoch {self.number}, not yet {epoch}")
        if epoch < self.number:
            self.counts.stale += 1
            raise StaleEpoch(f"epoch {epoch} is over, {self.member.name} is in epoch {self.number}", epoch=self.number)
        return self.epoch

    def admit(self, sender: Sender, epoch: int) -> None:
        """The same, and the sender must be a worker of the epoch. A first request replaces the sender's former incarnation."""
        self._refuse_fenced(sender)
        self._greet(sender, self.check_epoch(epoch))

    def _refuse_fenced(self, sender: Sender) -> None:
        if self.epoch and {sender.incarnation, sender.key} & set(self.epoch.fenced):
            self.counts.stale += 1
            raise Fenced(f"{sender.key} was declared dead in epoch {self.number} or before")

    def _greet(self, sender: Sender, epoch: Epoch) -> None:
        if sender.key not in self._since:
            self.counts.stale += 1
            raise Fenced(f"{sender.key} is no worker of epoch {epoch.number}")
        if self._incarnations.get(sender.name) != sender.incarnation:
            self._incarnations[sender.name] = sender.incarnation
            self.contributions.drop_unsealed(sender, self.barrier.finished(sender.name))

    def _available(self, parts: Sequence[Part]) -> None:
        for part in parts:
            waiting = part.store.unavailable(part.positions)
            if waiting:
                raise NotYet(f"{waiting} blocks of table {part.store.table.name} are loading or moving")

    def _resolved(self, wanted: Wanted) -> list[Part]:
        parts = []
        for name, ids in wanted:
            store = self.holdings.table(name)
            parts.append(Part(store, None if ids is None else store.locate(ids), store.values))
        return parts

    # --- data --------------------------------------------------------------------------------------------------------

    def push(self, push: Push) -> bool:
        """Apply (BSP: keep) a push. True: it was a duplicate and nothing was done."""
        self.admit(push.sender, push.epoch)
        if self.lanes.is_duplicate(push.sender, push.seq):
            self.counts.duplicates += 1
            return True
        if self.held:
            raise NotYet("a checkpoint to be durable")
        self._available(list(push.parts.values()))
        self.lanes.take(push.sender, push.seq)
        self.counts.pushes += 1
        if self._bsp:
            joined = max(push.clock, self.clock)
            self.contributions.add(Contribution(push.sender, push.push_id, push.clock, joined, push.parts))
            return False
        for part in push.parts.values():
            part.store.apply(part.positions, part.values, self._progress, push.rate)
        self.lanes.contains(push.sender.key, push.push_id)
        self.chain.updates += 1
        return False

    def await_copy(self, updates: int) -> None:
        """Until this update may be acknowledged. BSP: what is not :attr:`told` need not wait, it is sent again."""
        if self.chain.waits and not self._bsp and self.chain.shipped < self.chain.owed(updates):
            raise NotYet(f"update {updates} waits for the next replica of {self.member.name}")
        if self.job is not None and self.job.strategy.stores and self.rounds.stored < updates:
            raise NotYet(f"update {updates} waits for the store")

    @property
    def delays(self) -> bool:
        """An acknowledgement may have to wait: :meth:`await_copy`."""
        return self.chain.waits or (self.job is not None and self.job.strategy.stores)

    def pull(self, sender: Sender, epoch: int, min_clock: int, wanted: Wanted) -> list[Part]:
        """Where the values of these blocks are (a part's values are those of the whole store), once the clock is open."""
        if sender.name:
            self.admit(sender, epoch)
        else:
            self.check_epoch(epoch)
        self._await_clock(min_clock)
        if self.told < min_clock:
            raise NotYet(f"clock {min_clock} waits for the next replica of {self.member.name}")
        parts = self._resolved(wanted)
        self._available(parts)
        return parts

    def _await_clock(self, clock: int) -> None:
        if self.clock < clock:
            behind = [name for name in self.awaited if self.barrier.finished(name) < clock]
            waiting = ", ".join(behind) or "marks in this epoch"
            raise NotYet(f"{self.member.name} is at clock {self.clock}, not {clock}, and waits for {waiting}")

    # --- clocks ------------------------------------------------------------------------------------------------------

    def mark(self, sender: Sender, epoch: int, finished: int, loss: float | None) -> None:
        """A worker has finished ``finished`` clocks. Closes the clocks that everybody has finished."""
        self.admit(sender, epoch)
        self.barrier.mark(sender.name, finished, epoch, loss)
        self._advance()

    def settle(self, sender: Sender, epoch: int) -> None:
        """A worker owes nothing more for ``epoch`` and those before; without effect when the shard has gained blocks since."""
        self._refuse_fenced(sender)
        self._greet(sender, self.check_epoch(max(epoch, self.number)))
        self._settled[sender.key] = max(self._settled.get(sender.key, 0), epoch)
        self._settle()

    def _settle(self) -> None:
        if not self._unsettled or self.contributions.any_late:
            return  # late contributions have push ids below the watermark: nothing may be saved before they are applied
        gained = self._gained  # a worker that came after it never pushed to those blocks
        if all(since > gained or self._settled.get(key, 0) >= gained for key, since in self._since.items()):
            self.holdings.settle()
            self._unsettled, self.chain.urgent = False, True

    def _advance(self) -> None:
        target = self.barrier.target(self.awaited, self._gained)
        if self._bsp:
            if self.holdings.frozen or self.held:
                return
            for clock in self.contributions.clocks(target):
                self._apply_clock(clock)
                self.barrier.close(clock + 1, self.workers)
            self.chain.updates = max(self.clock, target)
        self.barrier.close(target, self.workers)
        self._settle()

    def _apply_clock(self, clock: int) -> None:
        taken = self.contributions.take(clock, {name: rank for rank, name in enumerate(self.workers)})
        for store in self.holdings.tables.values():
            parts = [kept.parts[store.table.name] for kept in taken if store.table.name in kept.parts]
            if store.table.rule.kind != "assign":
                parts = [summed(parts)] if parts else []
            for part in parts:
                store.apply(part.positions, part.values, self._progress)
        for kept in taken:
            self.lanes.contains(kept.sender.key, kept.push_id)

    @property
    def held(self) -> bool:
        """Nothing may change: a checkpoint is being made on which training waits."""
        return self.rounds.underway and self.job is not None and self.job.strategy.stalls

    @property
    def _bsp(self) -> bool:
        return self.job is not None and self.job.consistency == "bsp"

    # --- live moves --------------------------------------------------------------------------------------------------

    def freeze(self, epoch: int, wanted: Wanted) -> dict[str, int]:
        """Stop these blocks until the next epoch; returns the watermark of what they contain."""
        self.check_epoch(epoch)
        self.holdings.freeze(self._resolved(wanted))
        return dict(self.lanes.watermark)

    def frozen(self, epoch: int, wanted: Wanted) -> list[Part]:
        """Where the frozen blocks are, for their new owner to copy."""
        self.check_epoch(epoch)
        parts = self._resolved(wanted)
        for part in parts:
            if not part.store.frozen[slice(None) if part.positions is None else part.positions].all():
                raise InvalidRequest(f"blocks of table {part.store.table.name} are not frozen")
        return parts

    def put_aside(self, asides: Sequence[Aside]) -> None:
        """Blocks that a donor has frozen for us."""
        self.holdings.put_aside(asides)

    # --- rounds ------------------------------------------------------------------------------------------------------

    def begin_round(self, epoch: int, number: int, min_clock: int) -> list[Candidates]:
        """Settled blocks, once the clock is open; their distances are to be handed to :meth:`measured`."""
        self.check_epoch(epoch)
        self._await_clock(min_clock)
        return self.rounds.begin(number, self.holdings, self.chain.updates)

    def measured(self, epoch: int, number: int, candidates: list[Candidates]) -> None:
        self.check_epoch(epoch)
        self.rounds.measured(number, candidates)

    def candidates(self, epoch: int, number: int) -> list[Candidates]:
        """What was measured, to choose from."""
        self.check_epoch(epoch)
        return self.rounds.candidates(number)

    def copy_round(self, epoch: int, number: int, chosen: Chosen) -> list[Copied]:
        """Copy what the coordinator chose."""
        current = self.check_epoch(epoch)
        self.holdings.forget_overtaken(self.lanes.watermark, [worker.key for worker in current.workers])
        return self.rounds.copy(number, self.clock, chosen, self.holdings, self.lanes.watermark)

    def uploaded(self, epoch: int, copied: Sequence[Copied]) -> None:
        """The round's object is durable. Raises :class:`StaleEpoch` when the epoch has changed: this shard misses the round."""
        self.check_epoch(epoch)
        self.rounds.uploaded(copied)

    def finish_round(self, number: int, committed: bool) -> bool:
        """The round is over. True when it was committed with this shard's object."""
        kept = self.rounds.finish(number, committed)
        self._advance()
        return kept

    def miss_round(self, copied: Sequence[Copied]) -> None:
        """The upload of this copy has failed."""
        self.rounds.failed(copied)
        self._advance()
