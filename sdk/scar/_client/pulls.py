"""Pulls: from all shards in parallel into one result, until nothing is missing or the deadline is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from scar._client.cluster_view import ClusterView
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar._client.core.shard_map import ShardMap
from scar.blocks import Array, Ids, Positions
from scar.errors import DeadlineExceeded, Internal, NotServing, ScarError, StaleEpoch, Temporary
from scar.losses import LossPoint
from scar.placement import NOBODY, Epoch, Member
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.loss_messages import point_from_header
from scar.wire.row_names import set_rows
from scar.wire.shard_link import ShardLink
from scar.wire.small_message import HEADER_BYTES
from scar.wire.tensor_reader import TensorData, TensorSink, array_sink, read_tensors
from scar.wire.transport import AttemptLimit, Backoff, Deadline

PARALLEL = 32  # shards that one process pulls from at the same time
PartKey = tuple[str, str]  # a table, and which part of its blocks (scar.block_parts); empty: values


@dataclass(frozen=True)
class PullReply:
    """What a shard says beside the values. ``loss``: of the newest closed clock that has one.

    ``contents``: table -> what its settled values contain, where that was asked; ``waited``: seconds until it
    could serve the pull.
    """

    clock: int = 0
    loss: LossPoint | None = None
    contents: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    waited: float = 0.0


@dataclass
class PullShare:
    """What one pull wants from one shard."""

    blocks: list[ps_pb2.TableBlocks] = field(default_factory=list)
    buffers: dict[PartKey, Array] = field(default_factory=dict)
    places: list[tuple[PullBuffer, Positions]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Of the answer, but for the headers of tables."""
        parts = len(self.buffers) - len(self.blocks)
        return sum(buffer.nbytes for buffer in self.buffers.values()) + parts * HEADER_BYTES

    def add_blocks(self, wanted: PullBuffer, positions: Positions, ids: Ids, dense: bool) -> None:
        asked = ps_pb2.TableBlocks(table=wanted.table.name, dense=dense, bfloat16=wanted.short)
        if wanted.rows is not None:
            set_rows(asked, wanted.rows[positions])
        elif not dense:
            asked.block_ids = codec.ids_to_bytes(ids)
        self.buffers[wanted.table.name, ""] = wanted.receive_buffer(positions)
        if wanted.slots is not None:
            asked.slots = True
            for part, buffer in wanted.slots.receive_buffers(positions).items():
                self.buffers[wanted.table.name, part] = buffer
        self.blocks.append(asked)
        self.places.append((wanted, positions))

    def fill_buffers(self, reply: PullReply, epoch: int) -> None:
        """Everything of this share has arrived, in this epoch."""
        for wanted, positions in self.places:
            name = wanted.table.name
            wanted.fill_blocks(positions, self.buffers[name, ""])
            if wanted.slots is not None:
                parts = {part: self.buffers[name, part] for part in wanted.slots.parts}
                wanted.slots.add_blocks(positions, parts)
            watermark = reply.contents.get(name)
            if watermark is not None and wanted.rows is None:
                ids = positions if wanted.ids is None else wanted.ids[positions].astype(np.int64)
                wanted.parts.append(PulledPart(ids, epoch, reply.clock, watermark))


@dataclass(frozen=True)
class PullAttempt:
    """One try at all shards. ``loss_clock``: wait, too, until this clock's loss cannot change any more.

    ``exact``: values of exactly ``min_clock``, none of a later one. ``clock``: of the worker.
    """

    epoch: Epoch
    min_clock: int
    loss_clock: int
    deadline: Deadline
    limit: AttemptLimit
    exact: bool = False
    clock: int = 0

    def seconds(self, size: int) -> float:
        """For one shard that sends so many bytes."""
        return max(0.001, min(self.limit.seconds(size), self.deadline.remaining))


def make_pull_request(
    blocks: Sequence[ps_pb2.TableBlocks], epoch: int, member: Member | None, min_clock: int
) -> ps_pb2.PullRequest:
    """``member``: None for a reader, which is no part of the job."""
    return ps_pb2.PullRequest(
        tables=blocks,
        epoch=epoch,
        worker=member.name if member else "",
        incarnation=member.incarnation if member else "",
        min_clock=min_clock,
    )


def receive_tensors(stream: Iterable[Chunk], buffers: dict[PartKey, Array], target: str) -> PullReply:
    """Read the tensors of an answer into packed buffers of known size. Those that came in memory of their own
    are put in the place of a buffer, so look there for all of them.

    Raises :class:`Internal` when the stream does not fit them.
    """
    reply = PullReply()
    contents: dict[str, Mapping[str, int]] = {}
    awaited = set(buffers)

    def open_table(header: ps_pb2.TensorHeader) -> TensorSink:
        nonlocal reply
        key = header.table, header.part
        name = _part_name(*key)
        if key not in buffers or header.bytes != buffers[key].nbytes:
            raise Internal(f"{target} sent {header.bytes} bytes of {name} that were not asked for")
        if header.settled:
            contents[header.table] = dict(header.watermark)
        if not header.part:  # what goes behind the values says no more
            reply = PullReply(header.clock, point_from_header(header), contents, header.waited)
        awaited.discard(key)
        return _keep_or_copy(name, buffers, key)

    read_tensors(stream, open_table, lambda what: Internal(f"{target} sent {what}"))
    if awaited:
        missing = ", ".join(_part_name(*key) for key in sorted(awaited))
        raise Internal(f"{target} ended its answer without {missing}")
    return reply


def _keep_or_copy(name: str, buffers: dict[PartKey, Array], key: PartKey) -> TensorSink:
    """What arrives as a whole, where it may stay, need not be copied."""
    sink = array_sink(name, buffers[key])

    def keep(data: TensorData) -> bool:
        array: Array = np.frombuffer(data, buffers[key].dtype)
        usable = bool(array.flags.aligned and array.flags.writeable)
        if usable:
            buffers[key] = array
        return usable

    return replace(sink, keep=keep)


def _part_name(table: str, part: str) -> str:
    """For people."""
    return f"{part} of table {table!r}" if part else f"table {table!r}"


class Puller:
    """Pulls for one member (None: a reader). ``on_reply`` hears every shard's answer, by member key.

    ``wait_for_loss``: pulls wait, too, until their clock's loss cannot change any more.
    """

    def __init__(
        self,
        view: ClusterView,
        member: Member | None,
        on_reply: Callable[[str, PullReply], None] | None = None,
        wait_for_loss: bool = False,
    ) -> None:
        self._view = view
        self._member = member
        self._on_reply = on_reply
        self._wait_for_loss = wait_for_loss
        self._asks_contents = member is not None and view.job.strategy.asks_workers and not wait_for_loss
        self._pool = ThreadPoolExecutor(PARALLEL, "scar-pull")

    def pull(self, wants: Sequence[PullBuffer], min_clock: int, deadline: Deadline, clock: int = 0) -> float:
        """Fill these with values at or after ``min_clock``, for the worker's ``clock``. Returns since when
        the last of them were under way (:func:`time.monotonic`): before, shards or epochs were waited for.

        Blocks that have arrived stay valid when others move.
        """
        moving = time.monotonic()
        backoff = Backoff()
        limit = AttemptLimit()
        last: ScarError | None = None
        rollbacks = self._view.rollbacks
        while not all(wanted.complete for wanted in wants) or rollbacks != self._view.rollbacks:
            self._view.check_failure()
            with self._view.lock:
                shards = self._view.shards
                if rollbacks != self._view.rollbacks:
                    rollbacks = self._view.rollbacks
                    for wanted in wants:
                        wanted.discard_blocks()
                shares = _split_missing(wants, shards)
                links = [(share, key, self._view.links.find(key)) for key, share in shares.items()]
            epoch = shards.epoch
            loss_clock = min_clock if self._wait_for_loss else 0
            began = time.monotonic()
            error, waited = self._pull_shares(
                links, PullAttempt(epoch, min_clock, loss_clock, deadline, limit, clock=clock)
            )
            moving = began + waited
            limit.note_error(error)
            last = error or last
            if all(wanted.complete for wanted in wants):
                continue
            if deadline.expired:
                raise deadline.exceeded(_describe_missing(wants, epoch, min_clock), last)
            self._view.wait_beyond(epoch.number, min(backoff.next(), deadline.remaining))
        return moving

    def pull_exact(self, wants: Sequence[PullBuffer], clock: int, deadline: Deadline) -> int:
        """Fill these with values of exactly ``clock``, all of one epoch, whose number is returned: one try.

        Raises :class:`scar.errors.ClockPassed` when a shard is beyond it, and what passes by itself.
        """
        with self._view.lock:
            shards = self._view.shards
            shares = _split_missing(wants, shards)
            links = [(share, key, self._view.links.find(key)) for key, share in shares.items()]
        attempt = PullAttempt(shards.epoch, clock, 0, deadline, AttemptLimit(), exact=True)
        error, _ = self._pull_shares(links, attempt)
        if error is not None:
            raise error
        if not all(wanted.complete for wanted in wants):
            raise NotServing(f"some blocks have no owner in epoch {shards.epoch.number}")
        return shards.epoch.number

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _pull_shares(
        self, links: Sequence[tuple[PullShare, str, ShardLink | None]], attempt: PullAttempt
    ) -> tuple[ScarError | None, float]:
        """One try at every shard; the last of the errors that pass by themselves, and how long the slowest
        shard could not serve it, in seconds.

        The first share needs no other thread.
        """
        jobs: list[Future[PullReply | ScarError]] = [
            self._pool.submit(self._pull_share, share, key, link, attempt) for share, key, link in links[1:]
        ]
        results = [self._pull_share(*links[0], attempt)] if links else []
        results += [job.result() for job in jobs]
        errors = [result for result in results if isinstance(result, ScarError)]
        for error in errors:
            if not isinstance(error, (Temporary, StaleEpoch, DeadlineExceeded)):
                raise error
        waited = max((result.waited for result in results if isinstance(result, PullReply)), default=0.0)
        return errors[-1] if errors else None, waited

    def _pull_share(
        self, share: PullShare, key: str, link: ShardLink | None, attempt: PullAttempt
    ) -> PullReply | ScarError:
        if link is None:
            return NotServing(f"{key} has left")
        request = make_pull_request(share.blocks, attempt.epoch.number, self._member, attempt.min_clock)
        request.loss_clock = attempt.loss_clock
        request.clock = attempt.clock
        request.contents = self._asks_contents and not attempt.exact
        request.exact_clock = attempt.min_clock + 1 if attempt.exact else 0
        try:
            stream = link.pull(request, attempt.seconds(share.bytes), share.bytes)
            reply = receive_tensors(stream, share.buffers, link.target)
        except ScarError as error:
            return error
        share.fill_buffers(reply, attempt.epoch.number)
        if self._on_reply is not None:
            self._on_reply(key, reply)
        return reply


def _split_missing(wants: Sequence[PullBuffer], shards: ShardMap) -> dict[str, PullShare]:
    """What is missing, by owner."""
    shares: dict[str, PullShare] = {}
    for wanted in wants:
        table = wanted.table.name
        positions, ids = wanted.missing_blocks()
        everything = wanted.ids is None and len(ids) == wanted.table.blocks
        for owner, part in shards.split_table(table) if everything else shards.epoch.split(table, ids):
            if owner == NOBODY:
                continue
            owned = shards.owned(table, owner)
            share = shares.setdefault(shards.epoch.shards[owner].key, PullShare())
            if everything:
                share.add_blocks(wanted, part, owned, dense=True)
            else:
                dense = wanted.rows is None and len(part) == len(owned)
                alone = len(part) == len(ids)  # all of it is this shard's
                share.add_blocks(
                    wanted, positions if alone else positions[part], ids if alone else ids[part], dense
                )
    return shares


def _describe_missing(wants: Sequence[PullBuffer], epoch: Epoch, min_clock: int) -> str:
    tables = ", ".join(wanted.table.name for wanted in wants if not wanted.complete)
    blocks = sum(len(np.unique(wanted.missing_blocks()[1])) for wanted in wants)
    return f"{blocks} blocks of {tables} at clock {min_clock} in epoch {epoch.number}"
