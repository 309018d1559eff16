"""Recovery's question to workers: who is asked, who has answered, and what counts as an answer."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from scar.errors import BlockOutOfRange, InvalidRequest, UnknownTable
from scar.placement import Member, Role
from scar.tables import Job, Table
from scar.v1 import recovery_pb2 as pb
from scar.wire import codec
from scar_recovery.core.actions import CollectOffers
from scar_recovery.core.events import OffersCollected
from scar_recovery.epoch_log import EpochLog
from scar_recovery.offer_board import OfferBoard

JOB = Job("test", [Table("w", 6)], sources="workers")
WORKERS = tuple(Member(Role.WORKER, f"worker-{number}", f"{number:012x}") for number in range(2))
ACTION = CollectOffers(4, WORKERS, {"w": np.array([1, 3], np.uint32)})


def unread(_number: int) -> Any:
    raise AssertionError("nobody reads an epoch")


class Asked:
    """A question under way, in a thread of its own."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.epochs = EpochLog(unread)
        self.board = OfferBoard(self.epochs, seconds)
        self.found: list[OffersCollected] = []
        self._thread = threading.Thread(target=lambda: self.found.append(self.board.collect_offers(ACTION)))

    def __enter__(self) -> Asked:
        self._thread.start()
        assert self.epochs.after(3, 30.0, "") == []  # a poll that may be asked ends with the question
        question = self.epochs.open_question("")
        assert question is not None
        self.question = question
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def answer(self, worker: int, **changes: Any) -> None:
        ids = np.array([1, 3], np.uint32)
        held = {"table": "w", "block_ids": codec.ids_to_bytes(ids), "clock": 5, "watermark": {"a": 2}}
        request = pb.OfferRequest(
            worker=codec.member_to_proto(WORKERS[worker]),
            question=changes.pop("question", self.question.id),
            held=[pb.HeldBlocks(**(held | changes))],
        )
        self.board.accept_offer(request, JOB)


def test_it_returns_as_soon_as_all_have_answered() -> None:
    with Asked() as asked:
        assert (asked.question.epoch, asked.question.tables[0].table) == (3, "w")
        assert asked.epochs.open_question(asked.question.id) is None, "who has answered is not asked again"
        asked.answer(0)
        asked.answer(1, clock=6)
    (result,) = asked.found
    assert result.silent == ()
    assert {(one.worker.name, one.state.clock) for one in result.offers} == {("worker-0", 5), ("worker-1", 6)}
    assert asked.epochs.open_question("") is None
    asked.answer(0)  # too late, and forgotten


def test_a_silent_worker_is_no_source() -> None:
    with Asked(0.2) as asked:
        asked.answer(1, question="of another leader")
        asked.answer(0)
    (result,) = asked.found
    assert result.silent == (WORKERS[1].key,)
    assert [one.worker.name for one in result.offers] == ["worker-0"]


def test_an_offer_that_cannot_be_is_refused() -> None:
    with Asked(0.2) as asked:
        for changes, error in (
            ({"table": "x"}, UnknownTable),
            ({"block_ids": codec.ids_to_bytes(np.array([6], np.uint32))}, BlockOutOfRange),
            ({"block_ids": codec.ids_to_bytes(np.array([3, 1], np.uint32))}, InvalidRequest),
            ({"clock": 1 << 63}, InvalidRequest),
            ({"watermark": {"a": 1 << 63}}, InvalidRequest),
        ):
            with pytest.raises(error):
                asked.answer(0, **changes)
    assert len(asked.found[0].silent) == 2
