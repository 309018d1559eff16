"""Answers recovery's question about lost blocks, and sends to their new owners what an epoch asks for."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from scar._client.cluster_view import ClusterView
from scar._client.core.held_copies import HeldCopies, OwedCopy
from scar._client.push_stream import OnCompared
from scar._client.recovery_client import RecoveryClient
from scar.blocks import Array, BlockState
from scar.errors import DeadlineExceeded, ScarError, StaleEpoch, Temporary
from scar.placement import Member
from scar.v1 import ps_pb2, recovery_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.transport import AttemptLimit, Backoff, Deadline

log = logging.getLogger(__name__)

SENDERS = 8  # new owners that are sent to at the same time
SEND_SECONDS = 10.0  # to try; the new owner does not wait longer for a source


class CopySender:
    """Of one worker. ``held`` is guarded by the view's lock.

    ``on_sent``: hears, under that lock, what was put back as it is here (None: it is not known), where the
    copies say how much was lost.
    """

    def __init__(
        self,
        view: ClusterView,
        member: Member,
        held: HeldCopies,
        recovery: RecoveryClient,
        on_sent: OnCompared | None = None,
    ) -> None:
        self._view = view
        self._member = member
        self._held = held
        self._recovery = recovery
        self._on_sent = on_sent
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(SENDERS, "scar-restore")

    def answer_question(self, question: recovery_pb2.HoldingsQuestion) -> bool:
        """Say what is held of lost blocks. False: this worker does not follow the epoch of the question."""
        wanted = {one.table: codec.ids_from_bytes(one.block_ids) for one in question.tables}
        with self._view.lock:
            if self._view.number != question.epoch:
                return False
            held = self._held.offer_blocks(wanted)
        self._recovery.offer_blocks(
            recovery_pb2.OfferRequest(
                worker=codec.member_to_proto(self._member),
                question=question.id,
                held=[_encode_state(state) for state in held],
            )
        )
        return True

    def send_copies(self, owed: Sequence[OwedCopy]) -> None:
        """Returns at once; the view's lock is held. One owner's copies go one after the other: while one that
        has died as well is tried again, others get theirs.
        """
        by_owner: dict[str, list[OwedCopy]] = {}
        for copy in owed:
            by_owner.setdefault(copy.owner, []).append(copy)
        for copies in by_owner.values():
            self._pool.submit(self._send_all, copies)

    def close(self) -> None:
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send_all(self, copies: Sequence[OwedCopy]) -> None:
        for copy in copies:
            self._send_copy(copy)

    def _send_copy(self, copy: OwedCopy) -> None:
        arrived = self._bring_copy(copy)
        if self._on_sent is not None:
            with self._view.lock:
                known = arrived and self._view.number == copy.epoch
                self._on_sent(copy.as_restored(), 0.0 if known else None)

    def _bring_copy(self, copy: OwedCopy) -> bool:
        """Until its owner has it, which it compares by checksum, or nobody waits for it any more."""
        deadline = Deadline(SEND_SECONDS, self._closing)
        limit = AttemptLimit()
        backoff = Backoff()
        parts = copy.gather_parts()
        size = sum(part.nbytes for part in parts.values())
        about = {"epoch": copy.epoch, "owner": copy.owner, "table": copy.state.table}
        while not deadline.expired:
            link = self._view.links.find(copy.owner)
            if link is None:
                return False  # the owner has left: a newer epoch has other sources
            try:
                link.restore(encode_copy(self._member, copy, parts), limit.seconds(size))
                log.info("copy.sent", extra=about | {"blocks": len(copy.state.ids)})
                return True
            except (Temporary, StaleEpoch, DeadlineExceeded) as error:
                limit.note_error(error)
                self._closing.wait(min(backoff.next(), deadline.remaining))
            except ScarError as error:
                log.warning("copy.refused", extra=about | {"error": str(error)})
                return False
        return False


def encode_copy(member: Member, copy: OwedCopy, parts: Mapping[str, Array]) -> Iterator[Chunk]:
    """The stream of a copy, of the worker ``member``."""
    for name, part in parts.items():
        header = ps_pb2.TensorHeader(
            table=copy.state.table,
            dtype=part.dtype.name,
            part=name,
            block_ids=codec.ids_to_bytes(copy.state.ids),
            epoch=copy.epoch,
            worker=member.name,
            incarnation=member.incarnation,
            clock=copy.state.clock,
            crc32=zlib.crc32(part.data.cast("B")),
            tensors=len(parts),
        )
        yield from codec.chunks(header, part)


def _encode_state(state: BlockState) -> recovery_pb2.HeldBlocks:
    return recovery_pb2.HeldBlocks(
        table=state.table,
        block_ids=codec.ids_to_bytes(state.ids),
        clock=state.clock,
        watermark=dict(state.watermark),
    )
