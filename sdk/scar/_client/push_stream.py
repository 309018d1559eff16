"""Push streams: a thread for each life of each shard sends what the core decides, strictly in order.

:class:`scar._client.core.push_state.PushState` decides, guarded by the view's lock; nothing is sent while the
lock is held. See `docs/protocol.md` §3 to §5.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from scar import bfloat16
from scar._client.cluster_view import ClusterView
from scar._client.core.clocks import ShardRecord
from scar._client.core.comparisons import RecoveredBlocks
from scar._client.core.epoch_change import EpochChange
from scar._client.core.push_shares import split_by_owner
from scar._client.core.push_state import (
    EpochSettled,
    MarkTaken,
    PushAcked,
    PushState,
    StepFailed,
    StreamEvent,
)
from scar._client.core.pushes import PackedTable, TablePush
from scar._client.core.stream_steps import CompareBlocks, NextStep, SendMark, SendPush, SettleEpoch
from scar._client.pulls import make_pull_request, receive_tensors
from scar._client.push_traces import PushTraces
from scar.blocks import Array
from scar.errors import DeadlineExceeded, Internal, InvalidRequest, ScarError, StaleEpoch, Temporary
from scar.placement import Member
from scar.strategies import BACKLOG, BACKLOG_RATE
from scar.tables import Job
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.loss_messages import part_to_proto, point_to_proto
from scar.wire.row_names import set_rows
from scar.wire.shard_link import ShardLink
from scar.wire.transport import ATTEMPT_SECONDS, AttemptLimit, Backoff, Deadline

LOOK_SECONDS = 1.0  # between looks at the deadline, which may end early

OnCompared = Callable[[RecoveredBlocks, float | None], None]


class PushStreams:
    """All push streams of one worker, and what its user waits for.

    ``timeout``: most seconds for one try of one push. ``unacked_bytes``: that one stream may have under way.
    ``on_compared``: hears, under the lock, how far restored values are from those pulled before (squared;
    None: not measured).
    """

    def __init__(
        self,
        view: ClusterView,
        member: Member,
        timeout: float,
        unacked_bytes: int,
        on_compared: OnCompared,
    ) -> None:
        self.view = view
        self.member = member
        self.timeout = timeout
        self.on_compared = on_compared
        self.state = PushState(view.job, member.key)
        self.count = 0  # pushes of the user
        self.traces = PushTraces()
        self._unacked_bytes = unacked_bytes
        self._streams: dict[str, PushStream] = {}

    def push(self, tables: Mapping[str, PackedTable], deadline: Deadline) -> None:
        """One push. Returns when its parts are queued; waits only while a stream is full.

        Raises :class:`NonFinite`; then there was no push.
        """
        while True:
            self.wait_until(self._has_room, deadline, "room to push")
            shards = self.view.shards
            shares = split_by_owner(self.view.job, shards, tables, self._borrow_memory)
            self.traces.begin(self.count + 1, len(shares))
            with self.view.lock:
                self.view.check_failure()
                if shards is not self.view.shards:
                    continue  # split again: an epoch arrived while the parts were copied
                self.count += 1
                self.state.add_push(shards.epoch, shares, self._unacked_bytes)
                for key in shares:
                    if key in self._streams:
                        self._streams[key].wake_sender()
                return

    def _borrow_memory(self, key: str, size: int) -> Array | None:
        link = self.view.links.find(key)
        return None if link is None else link.borrow_memory(size)

    def _has_room(self) -> bool:
        return self.state.has_room(self._unacked_bytes)

    def follow_change(self, change: EpochChange) -> None:
        """Open and close streams as the epoch has it; the view's lock is held."""
        for shard in change.opened:
            link = self.view.links.find(shard.key)
            assert link is not None  # the view has followed the epoch
            self._streams[shard.key] = PushStream(self, shard, link)
        for key in change.closed:
            self._streams.pop(key).end()

    def repeat_marks(self) -> None:
        """Ask the shards that keep something for their clocks; the view's lock is held."""
        for key, stream in self.state.streams.items():
            if not stream.buffer.empty:
                stream.repeat_mark()
                self._streams[key].wake_sender()

    def close(self) -> None:
        """Nothing is waited for; the view's lock is held."""
        for stream in self._streams.values():
            stream.end()

    def wait_until(
        self, ready: Callable[[], bool], deadline: Deadline, what: str, poll: float | None = None
    ) -> bool:
        """Wait until ``ready`` or (with ``poll``) for that many seconds; says which.

        Raises :class:`DeadlineExceeded`, and what has ended the work.
        """
        with self.view.lock:
            while True:
                seconds = min(poll or LOOK_SECONDS, deadline.remaining)
                done = self.view.changed.wait_for(lambda: self.view.failure is not None or ready(), seconds)
                self.view.check_failure()
                if done or (poll is not None and not deadline.expired):
                    return done
                if deadline.expired:
                    raise self._deadline_exceeded(deadline, what)

    def _deadline_exceeded(self, deadline: Deadline, what: str) -> ScarError:
        stuck = [
            stream
            for key, stream in self._streams.items()
            if stream.problem is not None or self.state.is_unfinished(key)
        ]
        names = [stream.shard.name for stream in stuck]
        if self.state.orphans:
            names.append("an owner for some blocks")
        problem = next((stream.problem for stream in stuck if stream.problem is not None), None)
        waited_for = f"{what} ({', '.join(names) or 'no shard'}, epoch {self.view.number})"
        return deadline.exceeded(waited_for, problem)


class PushStream:
    """The sender to one life of one shard. ``problem``: why its last attempt failed; None: it did not."""

    def __init__(self, streams: PushStreams, shard: Member, link: ShardLink) -> None:
        self.shard = shard
        self.problem: ScarError | None = None
        self._streams = streams
        self._state = streams.state.streams[shard.key]
        self._view = streams.view
        self._link = link
        self._limit = AttemptLimit()
        self._ended = False
        self._wake = threading.Condition(streams.view.lock)
        self._view.wakers.add(self._wake)
        self._thread = threading.Thread(target=self._run, name=f"scar-push-{shard.name}", daemon=True)
        self._thread.start()

    def wake_sender(self) -> None:
        """There may be something to send; the view's lock is held."""
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
                step = self._await_step()
                number = self._view.number
            if step is None:
                return
            try:
                self._carry_out(step)
                self.problem = None
                backoff.reset()
            except (Temporary, StaleEpoch, DeadlineExceeded) as error:
                self.problem = error
                self._limit.note_error(error)
                self._handle_event(StepFailed(str(error)))
                self._pause_sending(number, backoff.next())
            except ScarError as error:
                self._fail_work(error)
            except Exception as error:
                self._fail_work(Internal(f"sending to {self.shard.name} failed: {error!r}"))
                raise
            del step  # the memory of what it sent is free while this waits for the next

    def _await_step(self) -> NextStep | None:
        """What the core has decided; None: the stream has ended. The lock is held."""
        while not self._ended and self._view.failure is None:
            step = self._state.next_step(self._view.shards, self._streams.state.clocks)
            if step is not None:
                return step
            self._wake.wait()
        return None

    def _pause_sending(self, number: int, seconds: float) -> None:
        with self._view.lock:
            self._wake.wait_for(lambda: self._ended or self._view.number > number, seconds)

    def _fail_work(self, error: ScarError) -> None:
        with self._view.lock:
            if not self._ended:
                self._view.fail(error)

    def _carry_out(self, step: NextStep) -> None:
        if isinstance(step, SendPush):
            self._handle_event(self._send_push(step))
        elif isinstance(step, SettleEpoch):
            self._handle_event(self._settle_epoch(step))
        elif isinstance(step, SendMark):
            self._handle_event(self._send_mark(step))
        else:
            self._compare_blocks(step)

    def _handle_event(self, event: StreamEvent) -> None:
        with self._view.lock:
            if not self._ended:
                self._streams.state.handle(self.shard.key, event, time.monotonic())
            self._view.changed.notify_all()

    def _send_push(self, step: SendPush) -> PushAcked:
        push = step.push
        with self._streams.traces.sending(push.push_id):
            reply = self._link.push(
                encode_push(self._view.job, self._streams.member, step), self._seconds(push.bytes), push.bytes
            )
        self._streams.traces.end_part(push.push_id)
        self._limit.note_error(None)
        return PushAcked(step.push.seq, reply.clock, reply.joins, reply.owed)

    def _seconds(self, size: int) -> float:
        """For one try to move so many bytes."""
        return min(self._streams.timeout, self._limit.seconds(size))

    def _settle_epoch(self, step: SettleEpoch) -> EpochSettled:
        member = self._streams.member
        request = ps_pb2.SettleRequest(worker=member.name, incarnation=member.incarnation, epoch=step.epoch)
        reply = self._link.call(self._link.control.Settle, request, ATTEMPT_SECONDS)
        return EpochSettled(step.epoch, ShardRecord(reply.clock, reply.finished, reply.joins))

    def _send_mark(self, step: SendMark) -> MarkTaken:
        member = self._streams.member
        request = ps_pb2.ClockRequest(
            worker=member.name,
            incarnation=member.incarnation,
            epoch=step.epoch,
            finished=step.finished,
            first=self._streams.state.clocks.first,
            holds=step.holds,
        )
        if step.part is not None:
            request.part.CopyFrom(part_to_proto(step.part))
        if step.final_loss is not None:
            request.heard.CopyFrom(point_to_proto(step.final_loss))
        reply = self._link.call(self._link.clock, request, ATTEMPT_SECONDS)
        return MarkTaken(step.epoch, step.mark, reply.clock, reply.settled)

    def _compare_blocks(self, step: CompareBlocks) -> None:
        blocks = step.blocks
        wanted = ps_pb2.TableBlocks(table=blocks.table)
        set_rows(wanted, blocks.rows)
        if blocks.rows is None:
            wanted.block_ids = codec.ids_to_bytes(blocks.ids)
        buffers = {(blocks.table, ""): np.empty_like(blocks.cached)}
        size = blocks.cached.nbytes
        squared = None
        try:
            request = make_pull_request([wanted], step.epoch, self._streams.member, 0)
            request.unsettled = True  # they are settled only after this, where nobody sees them before
            stream = self._link.pull(request, self._seconds(size), size)
            receive_tensors(stream, buffers, self._link.target)
            squared = blocks.squared_distance(buffers[blocks.table, ""])
        except (InvalidRequest, Internal):
            pass  # a measurement only: training does not stop for it
        with self._view.lock:
            if blocks in self._state.comparisons:
                self._state.comparisons.remove(blocks)
                self._streams.on_compared(blocks, squared)


def encode_push(job: Job, member: Member, step: SendPush) -> Iterator[Chunk]:
    """The stream of a push, of the worker ``member``."""
    push = step.push
    # A push whose blocks have all moved away still has a number that the shard may wait for: it travels
    # without blocks.
    first = job.tables[0]
    nothing = {first.name: TablePush(np.empty(0, np.uint32), np.empty(0, first.dtype))}
    tables = push.tables or nothing
    for table, blocks in tables.items():
        spec = job.table(table)
        header = ps_pb2.TensorHeader(
            table=table,
            dtype=bfloat16.NAME if blocks.short else spec.dtype_name,
            dense=table in step.dense,
            epoch=step.epoch,
            worker=member.name,
            incarnation=member.incarnation,
            seq=push.seq,
            push_id=push.push_id,
            clock=push.clock,
            rate=BACKLOG_RATE if push.merged > BACKLOG else 1.0,
            tensors=len(tables),
            finite=spec.finite_only and push.merged == 1,  # as it was copied; sums of several may be infinite
        )
        set_rows(header, blocks.rows)
        if blocks.rows is None and table not in step.dense:
            header.block_ids = codec.ids_to_bytes(blocks.ids)
        values = bfloat16.shorten_values(blocks.values) if blocks.short else blocks.values
        width = spec.row_elements if blocks.rows is not None else spec.layout.width or 1
        yield from codec.chunks(header, values, width * values.itemsize)
