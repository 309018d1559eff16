"""Pulls: from all shards in parallel into one result, again and again until nothing is missing or the deadline has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from scar import codec
from scar.blocks import Array, Ids, Positions
from scar.codec import Chunk
from scar.epochs import Deal, View
from scar.errors import DeadlineExceeded, Internal, NotServing, ScarError, StaleEpoch, Temporary
from scar.packing import Wanted
from scar.placement import NOBODY, Epoch, Member
from scar.transport import Backoff, Deadline, ShardLink
from scar.v1 import ps_pb2

PARALLEL = 32  # shards that one process pulls from at the same time


@dataclass(frozen=True)
class Answer:
    """What a shard says beside the values."""

    clock: int
    loss: float
    loss_clock: int


@dataclass
class Share:
    """What one pull wants from one shard."""

    blocks: list[ps_pb2.TableBlocks] = field(default_factory=list)
    buffers: dict[str, Array] = field(default_factory=dict)
    places: list[tuple[Wanted, Positions]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers.values())

    def add(self, wanted: Wanted, positions: Positions, ids: Ids, dense: bool) -> None:
        raw = b"" if dense else codec.ids_to_bytes(ids)
        self.blocks.append(ps_pb2.TableBlocks(table=wanted.table.name, dense=dense, block_ids=raw))
        self.buffers[wanted.table.name] = wanted.buffer(positions)
        self.places.append((wanted, positions))

    def fill(self) -> None:
        for wanted, positions in self.places:
            wanted.fill(positions, self.buffers[wanted.table.name])


def pull_request(blocks: Sequence[ps_pb2.TableBlocks], epoch: int, member: Member | None, min_clock: int) -> ps_pb2.PullRequest:
    worker, incarnation = (member.name, member.incarnation) if member else ("", "")
    return ps_pb2.PullRequest(tables=blocks, epoch=epoch, worker=worker, incarnation=incarnation, min_clock=min_clock)


def receive(stream: Iterator[Chunk], buffers: Mapping[str, Array], target: str) -> Answer:
    """Read a tensor stream into packed buffers of known size. Raises :class:`Internal` when the stream does not fit them."""
    answer, table, view, at, complete = Answer(0, 0.0, 0), "", memoryview(b""), 0, 0
    for chunk in stream:
        header = chunk.header
        if header is not None:
            if at < len(view) or header.table not in buffers or header.bytes != buffers[header.table].nbytes:
                raise Internal(f"{target} sent {header.bytes} bytes of table {header.table!r} that were not asked for")
            answer = Answer(header.clock, header.loss, header.loss_clock)
            table, at, complete = header.table, 0, complete + 1
            view = buffers[table].data.cast("B") if header.bytes else memoryview(b"")
        end = at + len(chunk.data)
        if end > len(view):
            raise Internal(f"{target} sent more of table {table!r} than its header says")
        view[at:end] = chunk.data
        at = end
    if at < len(view) or complete < len(buffers):
        raise Internal(f"{target} ended its answer after {at} of {len(view)} bytes of table {table!r}")
    return answer


class Puller:
    """Pulls for one member (None: a reader). ``saw`` hears every shard's answer, by member key."""

    def __init__(self, view: View, member: Member | None, saw: Callable[[str, Answer], None] | None = None) -> None:
        self._view, self._member, self._saw = view, member, saw
        self._pool = ThreadPoolExecutor(PARALLEL, "scar-pull")

    def pull(self, wants: Sequence[Wanted], min_clock: int, deadline: Deadline) -> None:
        """Fill these with values at or after ``min_clock``. Blocks that have arrived stay valid when others move."""
        backoff, last = Backoff(), None
        rollbacks = self._view.rollbacks
        while not all(wanted.complete for wanted in wants) or rollbacks != self._view.rollbacks:
            self._view.check()
            with self._view.lock:
                deal, epoch = self._view.deal, self._view.epoch
                if rollbacks != self._view.rollbacks:
                    rollbacks = self._view.rollbacks
                    for wanted in wants:
                        wanted.restart()
                shares = _shares(wants, deal)
                links = [(share, key, self._view.links.get(key)) for key, share in shares.items()]
            last = self._round(links, epoch, min_clock, deadline) or last
            if all(wanted.complete for wanted in wants):
                continue
            if deadline.expired:
                raise deadline.exceeded(_waited_for(wants, epoch, min_clock), last)
            self._view.wait_beyond(epoch.number, min(backoff.next(), deadline.remaining))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _round(
        self, links: Sequence[tuple[Share, str, ShardLink | None]], epoch: Epoch, min_clock: int, deadline: Deadline
    ) -> ScarError | None:
        """One try at every shard; the last of the errors that pass by themselves. The first share needs no other thread."""
        jobs: list[Future[ScarError | None]] = [
            self._pool.submit(self._try, share, key, link, epoch.number, min_clock, deadline) for share, key, link in links[1:]
        ]
        errors = [self._try(*links[0], epoch.number, min_clock, deadline)] if links else []
        errors += [job.result() for job in jobs]
        found = [error for error in errors if error is not None]
        for error in found:
            if not isinstance(error, (Temporary, StaleEpoch, DeadlineExceeded)):
                raise error
        return found[-1] if found else None

    def _try(
        self, share: Share, key: str, link: ShardLink | None, epoch: int, min_clock: int, deadline: Deadline
    ) -> ScarError | None:
        if link is None:
            return NotServing(f"{key} has left")
        try:
            request = pull_request(share.blocks, epoch, self._member, min_clock)
            answer = receive(link.pull(request, max(0.001, deadline.remaining), share.bytes), share.buffers, link.target)
        except ScarError as error:
            return error
        share.fill()
        if self._saw is not None:
            self._saw(key, answer)
        return None


def _shares(wants: Sequence[Wanted], deal: Deal) -> dict[str, Share]:
    """What is missing, by owner."""
    shares: dict[str, Share] = {}
    for wanted in wants:
        table = wanted.table.name
        positions, ids = wanted.missing()
        everything = wanted.ids is None and len(ids) == wanted.table.blocks
        for owner, part in deal.shares(table) if everything else deal.epoch.split(table, ids):
            if owner == NOBODY:
                continue
            owned = deal.owned(table, owner)
            share = shares.setdefault(deal.epoch.shards[owner].key, Share())
            if everything:
                share.add(wanted, part, owned, dense=True)
            else:
                share.add(wanted, positions[part], ids[part], dense=len(part) == len(owned))
    return shares


def _waited_for(wants: Sequence[Wanted], epoch: Epoch, min_clock: int) -> str:
    tables = ", ".join(wanted.table.name for wanted in wants if not wanted.complete)
    blocks = sum(len(wanted.missing()[0]) for wanted in wants)
    return f"{blocks} blocks of {tables} at clock {min_clock} in epoch {epoch.number}"
