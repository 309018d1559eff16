"""Asks workers, which have no server, what they hold of lost blocks: with the answers to their long polls."""

from __future__ import annotations

import logging
import threading
import uuid

from scar.blocks import BlockState
from scar.errors import InvalidRequest
from scar.placement import Member
from scar.tables import Job
from scar.v1 import recovery_pb2 as pb
from scar.wire import codec
from scar_recovery.core.actions import CollectOffers
from scar_recovery.core.block_sources import WorkerOffer
from scar_recovery.core.events import OffersCollected
from scar_recovery.epoch_log import EpochLog

MOST_CLOCK = 1 << 62

_log = logging.getLogger(__name__)


class OfferBoard:
    """One question at a time. Safe to use from any thread.

    ``seconds``: to hear from every worker; one that computes without a pause has other threads for it.
    """

    def __init__(self, epochs: EpochLog, seconds: float) -> None:
        self._epochs = epochs
        self._seconds = seconds
        self._changed = threading.Condition()
        self._question = ""  # its id; empty: nothing is asked
        self._asked: dict[str, Member] = {}
        self._offers: dict[str, list[WorkerOffer]] = {}  # by key of the workers that have answered

    def collect_offers(self, action: CollectOffers) -> OffersCollected:
        """Returns when all have answered, or the time is over."""
        tables = [
            pb.LostTable(table=table, block_ids=codec.ids_to_bytes(ids))
            for table, ids in action.blocks.items()
        ]
        question = pb.HoldingsQuestion(id=uuid.uuid4().hex, epoch=action.number - 1, tables=tables)
        with self._changed:
            self._question = question.id
            self._asked = {worker.key: worker for worker in action.workers}
            self._offers = {}
        self._epochs.ask(question)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._offers.keys() == self._asked.keys(), self._seconds)
                self._question = ""
                offers = tuple(one for offers in self._offers.values() for one in offers)
                silent = tuple(sorted(self._asked.keys() - self._offers.keys()))
                self._offers = {}
        finally:
            self._epochs.ask(None)
        if silent:
            _log.info("offers.missing", extra={"epoch": action.number, "workers": list(silent)})
        return OffersCollected(action.number, offers, silent)

    def accept_offer(self, request: pb.OfferRequest, job: Job) -> None:
        """An answer; a late one is of no use, and forgotten. Raises :class:`InvalidRequest`."""
        key = codec.member_from_proto(request.worker).key
        with self._changed:
            worker = self._asked.get(key)
            if worker is None or request.question != self._question:
                return
            self._offers[key] = [offer_from_proto(one, worker, job) for one in request.held]
            self._changed.notify_all()


def offer_from_proto(held: pb.HeldBlocks, worker: Member, job: Job) -> WorkerOffer:
    """Raises :class:`InvalidRequest`, :class:`scar.errors.UnknownTable`."""
    ids = codec.ids_from_bytes(held.block_ids, job.table(held.table).blocks)
    if held.clock > MOST_CLOCK or any(push > MOST_CLOCK for push in held.watermark.values()):
        raise InvalidRequest(f"{worker.key} offers blocks of a clock that cannot be")
    return WorkerOffer(worker, BlockState(held.table, ids, held.clock, dict(held.watermark), worker.key))
