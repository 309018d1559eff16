"""Carries out what the planner decides: one leadership of one coordinator, from taking over to being deposed.

Every step can be the last. What was decided is in the store before anybody acts on it, everything can be repeated, and a
successor starts from the newest epoch: :meth:`Executor.take_over`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from scar.codec import epoch_from_proto, epoch_to_proto
from scar.errors import NotServing, ScarError
from scar.placement import Epoch, Member, by_table
from scar.tables import Job
from scar.v1 import types_pb2
from scar_recovery import metrics
from scar_recovery.archive import Archive
from scar_recovery.chronicle import Chronicle
from scar_recovery.ledger import Ledger
from scar_recovery.members import Report
from scar_recovery.planner import Commit, Confirm, Move, Planner
from scar_recovery.plans import Blocks, Copy, Intent, Moved, NothingSaved, Transfer, draft
from scar_recovery.shards import Shards

PARALLEL = 16  # calls to members at once
CLAIM_PATIENCE = 5.0  # seconds to hear from every survivor what it keeps; a hung one is found dead before
RESTART_AHEAD = 3  # clocks beyond the open one: some shard may be one ahead, a worker one ahead of it, one more to be beyond

_log = logging.getLogger(__name__)
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Patience:
    """How long one epoch waits for survivors that do not answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number, self._since = 0, 0.0

    def over(self, number: int, now: float) -> bool:
        if number != self._number:
            self._number, self._since = number, now
        return now > self._since + self._seconds


class Delivery(Protocol):
    """Who tells the shards (:class:`scar_recovery.couriers.Couriers`)."""

    def deliver(self, epoch: Epoch) -> None: ...


class Executor:
    """``lock`` guards the planner and the ledger; no call to the store or to a member is made while it is held.

    ``background``: runs a function in a thread of its own (a move, which may take long).
    """

    def __init__(
        self,
        planner: Planner,
        job: Job,
        archive: Archive,
        shards: Shards,
        lock: threading.Condition,
        background: Callable[[Callable[[], None]], None],
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.planner, self.job, self.archive, self.shards = planner, job, archive, shards
        self.lock, self._background, self._now, self._wall = lock, background, now, wall
        self.chronicle = Chronicle(archive.epoch)
        self.ledger = Ledger(job)
        self.delivery: Delivery | None = None
        self._patience = Patience(CLAIM_PATIENCE)
        self._writing = threading.Lock()  # of the ledger: who has it writes the newest copies
        self.deposed = ""  # incarnation of the coordinator that creates epochs instead of us

    def take_over(self) -> None:
        """Read where the job stands. Raises what the store raises; then it is tried again."""
        started = self._now()
        protos = self.archive.history()
        history = [epoch_from_proto(proto) for proto in protos]
        records = self.archive.failures()
        gone, silent = self._call_roll([*history[-1].shards, *history[-1].workers]) if history else ([], [])
        now = self._now()
        ledger = Ledger(self.job, records, now)
        for before, epoch in pairwise(history):
            ledger.rebuilt(before, epoch, self._wall())
            ledger.followed(epoch, now)
        for proto in protos:
            self.chronicle.append(proto)
        with self.lock:
            self.ledger = ledger
            self.planner.begin(self.job, history, ledger.newest, started)
            for member in gone:
                self.planner.members.failed(Report(member, proved=True, evidence="nobody listens at its address"), now)
            for member in silent:
                self.planner.members.failed(Report(member, proved=False, evidence="it did not answer a new leader"), now)

    def leads(self) -> bool:
        """Ask the store whether somebody else has created an epoch since our last one. Raises what the store raises."""
        number = self.chronicle.newest + 1
        if self.archive.has_epoch(number):
            author = self.archive.epoch(number).author
            self.deposed = author if author != self.planner.author else self.deposed
        return not self.deposed

    def _call_roll(self, members: Sequence[Member]) -> tuple[list[Member], list[Member]]:
        """(gone for certain, silent). The detector's reports about them may have been taken by the former leader."""
        questions = [partial(ask, member) for ask in (self.shards.gone, self.shards.alive) for member in members]
        answers = self._parallel(lambda question: question(), questions)
        refused, alive = answers[: len(members)], answers[len(members) :]
        gone = [member for member, no in zip(members, refused, strict=True) if no]
        return gone, [m for m, no, yes in zip(members, refused, alive, strict=True) if not (no or yes)]

    def step(self) -> bool:
        """Do the next thing, if there is one now. Never raises for a store that is down: that is tried again later."""
        with self.lock:
            action = self.planner.tick(self._now())
        match action:
            case Commit():
                self._commit(action)
            case Confirm():
                self._confirm(action)
            case Move():
                self._background(lambda: self._move(action))
        return action is not None

    # --- epochs -------------------------------------------------------------------------------------------------------

    def _commit(self, action: Commit) -> None:
        intent, started = action.intent, self._now()
        try:
            needed = bool(intent.shards) and (bool(intent.lost()) or intent.rollback)
            if intent.rewinds:
                intent = replace(intent, restart=self._restart(intent.shards))
            saved = self.archive.sealed(intent.rollback, self.planner.author) if needed else NothingSaved()
            copies = self._claimed(intent) if needed else []
            wanted = epoch_to_proto(draft(intent, saved, copies))
            winner = self.archive.create_epoch(wanted)
        except ScarError as error:
            waits = "a copy" if isinstance(error, NotServing) else "the store"
            problem = f"epoch {intent.number} ({intent.cause}) waits for {waits}: {error.message}"
            if problem != self.planner.problem:
                _log.warning("epoch.refused", extra={"number": intent.number, "reason": str(error)})
            with self.lock:
                self.planner.refused(problem, self._now())
            return
        if winner.author != self.planner.author:
            self.deposed = winner.author
            return
        self._follow(winner, action if winner is wanted else None, self._now() - started)

    def _restart(self, shards: Sequence[Member]) -> int:
        """A clock that no worker can have reached while the dead one's mark is missing: all begin anew with it."""

        def clock(member: Member) -> int:
            try:
                return self.shards.state(member).clock
            except ScarError:
                return 0  # a shard that does not answer is not ahead of the others by more than a clock

        return max(self._parallel(clock, shards), default=0) + RESTART_AHEAD

    def _claimed(self, intent: Intent) -> list[Copy]:
        """Copies that survivors keep of what was lost. Raises :class:`NotServing` while one of them does not answer."""
        previous = intent.previous
        if previous is None or intent.rollback or not self.job.strategy.replicas:
            return []
        lost = np.sort(np.concatenate(list(intent.lost().values())))
        blocks = by_table(self.job, lost)
        survivors = [member for member in intent.shards if previous.shard_index(member.key) >= 0]
        answers = self._parallel(lambda member: self._claim(member, intent, blocks), survivors)
        silent = [member.key for member, answer in zip(survivors, answers, strict=True) if answer is None]
        if silent and not self._patience.over(intent.number, self._now()):
            raise NotServing(f"{', '.join(silent)} did not say what it keeps of lost blocks")
        return [copy for answer in answers if answer for copy in answer]

    def _claim(self, member: Member, intent: Intent, blocks: Blocks) -> list[Copy] | None:
        try:
            return self.shards.claim(member, intent.number - 1, sorted({*intent.dead, *intent.orphans}), blocks)
        except ScarError as error:
            _log.info("claim.failed", extra={"shard": member.key, "reason": error.message})
            return None

    def _follow(self, proto: types_pb2.Epoch, action: Commit | None, seconds: float) -> None:
        """An epoch of ours exists. Shards hear of it first, then the ledger, and only then the workers, who will report to it.

        ``action`` None: from an attempt whose answer was lost.
        """
        epoch = epoch_from_proto(proto)
        with self.lock:
            before, now = self.planner.epoch, self._now()
            self.planner.committed(epoch, now)
        if self.delivery is not None:
            self.delivery.deliver(epoch)
        with self.lock:
            if action is not None:
                self.ledger.opened(action.intent, action.failures, seconds, self._wall())
            elif before is not None:
                self.ledger.rebuilt(before, epoch, self._wall())
            self.ledger.followed(epoch, now)
            self.chronicle.append(proto)
            self.lock.notify_all()
        metrics.EPOCHS.labels(epoch.cause).inc()
        metrics.COMMIT_SECONDS.observe(seconds)
        metrics.FAILURES.inc(len(action.failures) if action is not None else 0)
        _log.info(
            "epoch.created",
            extra={
                "number": epoch.number,
                "cause": epoch.cause,
                "shards": len(epoch.shards),
                "workers": len(epoch.workers),
                "moved": sum(len(group.ids) for group in epoch.moved),
                "seconds": round(seconds, 4),
            },
        )

    # --- suspects and moves -------------------------------------------------------------------------------------------

    def _confirm(self, action: Confirm) -> None:
        answers = self._parallel(self.shards.alive, action.members)
        with self.lock:
            for member, alive in zip(action.members, answers, strict=True):
                self.planner.members.confirmed(member.key, alive, self._now())

    def _move(self, action: Move) -> None:
        done = [moved for moved in self._parallel(lambda t: self._transfer(action.number, t), action.transfers) if moved]
        with self.lock:
            self.planner.moved(action.number, done, len(done) == len(action.transfers), self._now())
            self.lock.notify_all()

    def _transfer(self, number: int, transfer: Transfer) -> Moved | None:
        """Freeze and copy; None when it did not work (the next epoch ends the freeze either way)."""
        try:
            clock, watermark = self.shards.freeze(transfer.donor, number, transfer.blocks)
            self.shards.receive(transfer.target, number, transfer.donor, transfer.blocks)
        except ScarError as error:
            _log.warning(
                "move.failed", extra={"donor": transfer.donor.key, "target": transfer.target.key, "reason": error.message}
            )
            return None
        return Moved(transfer, clock, watermark)

    def _parallel(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        if len(items) <= 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
            return list(pool.map(call, items))

    # --- books --------------------------------------------------------------------------------------------------------

    def heard(self, number: int, key: str, clock: int) -> None:
        """A shard has adopted an epoch; its open clock."""
        with self.lock:
            self.planner.members.heard(key, self._now())
            self.ledger.stopped_at(number, clock)

    def served(self, number: int, clock: int) -> None:
        """Every shard of the newest epoch serves all its blocks."""
        with self.lock:
            self.planner.loaded(number)
            self.ledger.served(self._now(), clock)
            self.lock.notify_all()

    def write_books(self) -> None:
        """Store changed ledger records, and read new manifests before a failure needs them. Raises what the store raises."""
        self.write_ledger()
        self.archive.warm()

    def write_ledger(self) -> None:
        """When it returns, everything that the ledger knew before the call is durable. Raises what the store raises."""
        with self._writing:
            with self.lock:
                records = self.ledger.unwritten()
            for index, record in enumerate(records):
                try:
                    self.archive.write_failure(record)
                except ScarError:
                    with self.lock:
                        for left in records[index:]:
                            self.ledger.rewrite(left.number)
                    raise
