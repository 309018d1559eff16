"""Lanes: one queue and one sender thread for each life of each shard, strictly in order. See `docs/protocol.md` §3 to §5.

:class:`Retained` is the bookkeeping, without threads. :class:`Lane` carries it out: parts of finished clocks first, then
``Settle``, then the mark, then the rest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scar import codec
from scar.blocks import Array, Ids
from scar.codec import Chunk
from scar.epochs import View
from scar.errors import DeadlineExceeded, Internal, InvalidRequest, ScarError, StaleEpoch, Temporary
from scar.packing import gathered
from scar.placement import Epoch, Member
from scar.pulls import pull_request, receive
from scar.reroute import Journal, Part, Piece
from scar.strategies import BACKLOG, BACKLOG_RATE
from scar.transport import ATTEMPT_SECONDS, Backoff, ShardLink
from scar.v1 import ps_pb2

DONE = 1 << 63  # mark of a worker that will not push any more

LOSSES_KEPT = 256  # clocks

Step = Callable[[], None]


class Retained:
    """Parts of one lane that may have to be sent again. ``until_closed``: keep them after the acknowledgement (BSP);
    ``gather``: what waits behind a part that is on its way becomes one part. Pure."""

    def __init__(self, until_closed: bool, gather: Callable[[Sequence[Part]], Part] | None = None) -> None:
        self._until_closed, self._gather = until_closed, gather
        self._acked: list[Part] = []
        self._waiting: deque[Part] = deque()
        self._seq = 0
        self.clock = 0  # newest open clock that the shard has told
        self.waiting_bytes = 0

    def add(self, part: Part) -> None:
        self._waiting.append(part)
        self.waiting_bytes += part.bytes

    def head(self) -> Part | None:
        """The oldest part that is not acknowledged; it gets its number with the first look, because it is sent next."""
        if not self._waiting:
            return None
        if not self._waiting[0].seq:
            self.gather()
        part = self._waiting[0]
        if not part.seq:
            self._seq += 1
            part.seq = self._seq
        return part

    def gather(self) -> None:
        """Make one of all parts that were never sent, where that is allowed."""
        fresh = [part for part in self._waiting if not part.seq]
        if self._gather is not None and len(fresh) > 1:
            self._waiting = deque([*(part for part in self._waiting if part.seq), self._gather(fresh)])
            self.waiting_bytes = sum(part.bytes for part in self._waiting)

    def acknowledge(self, seq: int, clock: int, joins: int = 0) -> list[Part]:
        """The shard, whose open clock is ``clock``, has this number. Returns parts that need not be retained any more.

        ``joins``: its open clock when it does not tell everybody yet; a late part is applied with that one.
        """
        if not self._waiting or self._waiting[0].seq != seq:
            return []
        part = self._waiting.popleft()
        self.waiting_bytes -= part.bytes
        part.acked = True
        if not self._until_closed:
            return [part]
        part.joined = max(part.clock, clock, joins)
        self._acked.append(part)
        return self.see(clock)

    def see(self, clock: int) -> list[Part]:
        """The shard's open clock is ``clock``: what it applied before is contained there. Returns what is released."""
        self.clock = max(self.clock, clock)
        released = [part for part in self._acked if part.joined < self.clock]
        if released:
            self._acked = [part for part in self._acked if part.joined >= self.clock]
        return released

    def parts(self) -> list[Part]:
        return [*self._acked, *self._waiting]

    def replace(self, parts: Sequence[Part]) -> None:
        """What is left of :meth:`parts` after an epoch change, in the same order."""
        self._acked = [part for part in parts if part.acked]
        self._waiting = deque(part for part in parts if not part.acked)
        self.waiting_bytes = sum(part.bytes for part in self._waiting)

    def before_mark(self, finished: int) -> bool:
        """True while parts wait that must arrive before the shard hears that ``finished`` clocks are finished."""
        return any(part.owed or part.clock < finished for part in self._waiting)

    def unsettled(self) -> bool:
        """True while something that was sent again because of an epoch is not acknowledged."""
        return any(part.owed for part in self._waiting)

    @property
    def gathers(self) -> bool:
        return self._gather is not None

    @property
    def first_clock(self) -> int:
        """Lowest clock of what waits; no clock: :data:`DONE`."""
        return min((part.clock for part in self._waiting), default=DONE)

    @property
    def idle(self) -> bool:
        return not self._waiting

    @property
    def empty(self) -> bool:
        return not self._waiting and not self._acked


def resume_points(records: Sequence[ps_pb2.SettleReply]) -> list[int]:
    """For each shard the clock from which on a new incarnation's pushes count there; the lowest is the one to begin with.

    A predecessor may have died between two of its marks: clocks that it finished are not done twice on the shards that know. A
    shard that has just joined knows no marks and may be far behind, so it decides nothing. A shard that closed clocks while
    nobody of this name was there (the open clocks of two shards may differ) takes what is pushed for them late.
    """
    reached = [max(clock for clock in (0, record.clock, record.finished) if clock < DONE) for record in records]
    told = [clock for clock, record in zip(reached, records, strict=True) if record.finished]
    start = min(told) if told else max(reached)
    return [max(record.finished if record.finished < DONE else 0, start) for record in records]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Blocks that a recovery put back, with the values that this worker pulled last (packed)."""

    epoch: int
    table: str
    ids: Ids
    cached: Array

    def squared(self, restored: Array) -> float:
        """||restored - cached||^2; not a number where either is not."""
        return float(np.square(np.subtract(restored, self.cached, dtype=np.float64)).sum())


@dataclass
class Course:
    """How far this worker is; what all its lanes read. Guarded by the view's lock."""

    view: View
    member: Member
    timeout: float
    compared: Callable[[Comparison, float | None], None]
    journal: Journal = field(init=False)
    finished: int | None = None  # clocks; None: not known yet
    loss: float | None = None  # this worker's part of the loss of the last finished clock
    losses: dict[int, float] = field(default_factory=dict)  # finished clocks -> loss, for lanes that are behind
    done: bool = False

    def __post_init__(self) -> None:
        self.journal = Journal(self.view.job)

    def loss_at(self, mark: int) -> float | None:
        """This worker's part of the loss of the clock before this mark."""
        return self.loss if mark == self.mark else self.losses.get(mark)

    def finish(self, finished: int, loss: float | None) -> None:
        """A clock is finished."""
        self.finished, self.loss = finished, loss
        if loss is not None:
            self.losses[finished] = loss
            while len(self.losses) > LOSSES_KEPT:
                del self.losses[next(iter(self.losses))]

    @property
    def mark(self) -> int | None:
        return DONE if self.done else self.finished


class Lane:
    """The sender to one life of one shard. ``sealed``: clocks below it count there already, from this worker's predecessor."""

    def __init__(self, course: Course, shard: Member, link: ShardLink) -> None:
        self.shard = shard
        job = course.view.job
        self.held = Retained(job.consistency == "bsp", partial(gathered, job) if job.strategy.queues else None)
        self.comparisons: deque[Comparison] = deque()
        self.record: ps_pb2.SettleReply | None = None  # the shard's first answer
        self.marked: tuple[int, int] = (0, -1)  # epoch and number of the last mark
        self.sealed = 0
        self.problem: ScarError | None = None
        self._settled = 0
        self._ended = False
        self._course, self._link, self._view = course, link, course.view
        self._wake = threading.Condition(course.view.lock)
        course.view.wakers.add(self._wake)
        self._thread = threading.Thread(target=self._run, name=f"scar-lane-{shard.name}", daemon=True)
        self._thread.start()

    def add(self, part: Part) -> None:
        """Queue a part; the view's lock is held."""
        self.held.add(part)
        self._wake.notify_all()

    def mark_again(self) -> None:
        """Repeat the mark, to hear the shard's clock; the view's lock is held."""
        self.marked = (0, self.marked[1])
        self._wake.notify_all()

    def end(self) -> None:
        """The shard has left the epoch, or the worker leaves; the view's lock is held."""
        self._ended = True
        self._view.wakers.discard(self._wake)
        self._wake.notify_all()

    def _run(self) -> None:
        backoff = Backoff()
        while True:
            with self._view.lock:
                self._wake.wait_for(lambda: self._ended or self._view.failure is not None or self._next() is not None)
                step, number = self._next(), self._view.number
                if self._ended or self._view.failure is not None or step is None:
                    return
            try:
                step()
                self.problem = None
                backoff.reset()
            except (Temporary, StaleEpoch, DeadlineExceeded) as error:
                self.problem = error
                self._pause(number, backoff.next())
            except ScarError as error:
                self._fail(error)
            except Exception as error:
                self._fail(Internal(f"sending to {self.shard.name} failed: {error!r}"))
                raise

    def _pause(self, number: int, seconds: float) -> None:
        with self._view.lock:
            self._wake.wait_for(lambda: self._ended or self._view.number > number, seconds)

    def _fail(self, error: ScarError) -> None:
        with self._view.lock:
            if not self._ended:
                self._view.fail(error)

    def _next(self) -> Step | None:
        """What this lane owes its shard next; None: nothing. The lock is held."""
        epoch, finished, mark = self._view.epoch, self._course.finished or 0, self._course.mark
        if self.held.gathers and mark is not None:  # nobody waits for what is on its way, so some always is
            finished = mark = min(mark, self.held.first_clock)
        settle = self._settled < epoch.number and not self.held.unsettled()
        due = mark is not None and self.marked != (epoch.number, mark)
        head = self.held.head()
        if head is not None and (self.held.before_mark(finished) or not (settle or due)):
            if head.owed and self.comparisons:  # the restored values, before anything is added to them
                return partial(self._compare, self.comparisons[0], epoch)
            return partial(self._send, head, epoch, self._dense(head, epoch))
        if self.comparisons:
            return partial(self._compare, self.comparisons[0], epoch)
        if settle:
            return partial(self._settle, epoch)
        if due and mark is not None:
            return partial(self._mark, epoch, mark, self._course.loss_at(mark))
        return None

    def _dense(self, part: Part, epoch: Epoch) -> set[str]:
        """Tables of which the part has every block that the shard owns: their ids need not travel."""
        index, deal = epoch.shard_index(self.shard.key), self._view.deal
        return {table for table, piece in part.pieces.items() if len(piece.ids) == len(deal.owned(table, index))}

    def _send(self, part: Part, epoch: Epoch, dense: set[str]) -> None:
        reply = self._link.push(self._chunks(part, epoch.number, dense), self._course.timeout, part.bytes)
        with self._view.lock:
            if not self._ended:
                self._course.journal.release(self.held.acknowledge(part.seq, reply.clock, reply.joins))
                self._view.changed.notify_all()

    def _chunks(self, part: Part, epoch: int, dense: set[str]) -> Iterator[Chunk]:
        # A part whose blocks have all moved away still has a number that the shard may wait for: it travels without blocks.
        first = self._view.job.tables[0]
        empty = {first.name: Piece(np.empty(0, np.uint32), np.empty(0, first.dtype))}
        for table, piece in (part.pieces or empty).items():
            header = ps_pb2.TensorHeader(
                table=table,
                dtype=piece.values.dtype.name,
                dense=table in dense,
                block_ids=b"" if table in dense else codec.ids_to_bytes(piece.ids),
                epoch=epoch,
                worker=self._course.member.name,
                incarnation=self._course.member.incarnation,
                seq=part.seq,
                push_id=part.push_id,
                clock=part.clock,
                rate=BACKLOG_RATE if part.count > BACKLOG else 1.0,
            )
            yield from codec.chunks(header, piece.values)

    def _settle(self, epoch: Epoch) -> None:
        member = self._course.member
        request = ps_pb2.SettleRequest(worker=member.name, incarnation=member.incarnation, epoch=epoch.number)
        reply = self._link.call(self._link.control.Settle, request, ATTEMPT_SECONDS)
        with self._view.lock:
            self._settled = max(self._settled, epoch.number)
            self.record = self.record or reply
            self._saw(reply.clock)

    def _mark(self, epoch: Epoch, mark: int, loss: float | None) -> None:
        member, finished = self._course.member, max(mark, self.sealed)
        request = ps_pb2.ClockRequest(worker=member.name, incarnation=member.incarnation, epoch=epoch.number, finished=finished)
        if loss is not None and finished == mark != DONE:  # else the loss belongs to another clock than the mark says
            request.has_loss, request.loss = True, loss
        reply = self._link.call(self._link.control.Clock, request, ATTEMPT_SECONDS)
        with self._view.lock:
            self.marked = (epoch.number, mark)
            self._saw(reply.clock)

    def _compare(self, comparison: Comparison, epoch: Epoch) -> None:
        blocks = ps_pb2.TableBlocks(table=comparison.table, block_ids=codec.ids_to_bytes(comparison.ids))
        restored = np.empty_like(comparison.cached)
        squared = None
        try:
            request = pull_request([blocks], epoch.number, self._course.member, 0)
            stream = self._link.pull(request, self._course.timeout, restored.nbytes)
            receive(stream, {comparison.table: restored}, self._link.target)
            squared = comparison.squared(restored)
        except (InvalidRequest, Internal):
            pass  # a measurement only: training does not stop for it
        with self._view.lock:
            if comparison in self.comparisons:
                self.comparisons.remove(comparison)
                self._course.compared(comparison, squared)

    def _saw(self, clock: int) -> None:
        if not self._ended:
            self._course.journal.release(self.held.see(clock))
        self._view.changed.notify_all()
