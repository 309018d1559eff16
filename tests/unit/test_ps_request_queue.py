"""Requests in front of a shard: which are served, parked, refused, dropped or tried again."""

from __future__ import annotations

from typing import Any

import pytest

from scar.errors import Busy, InvalidRequest, NotServing
from scar_ps.core.actions import (
    AnswerRequest,
    CrashProcess,
    ParkRequest,
    RefuseRequest,
    RetryRequests,
    ShardAction,
)
from scar_ps.core.events import Event, PushReceived, StatusRequested
from scar_ps.core.shard import RequestQueue, ShardRequest


class Change(Event):
    """Something that others may have waited for."""


class Look(Event):
    """Something that changes nothing."""

    changes = False


class Answers:
    """What the shard says next, by event."""

    def __init__(self) -> None:
        self.next: Any = AnswerRequest(None)
        self.queue = RequestQueue(self.handle)

    def handle(self, event: Event, now: float) -> list[ShardAction]:
        if isinstance(self.next, BaseException):
            raise self.next
        return [self.next]

    def ask(
        self, number: int, now: float, answer: Any = None, *, seconds: float = 10.0, **options: Any
    ) -> list[ShardAction]:
        self.next = AnswerRequest(number) if answer is None else answer
        event = options.pop("event", None) or Change()
        leased = options.pop("leased", True)
        return self.queue.handle(ShardRequest(number, event, now + seconds, **options), now, leased)


def test_who_waits_is_tried_again_after_a_change_in_order_of_arrival() -> None:
    shard = Answers()
    assert shard.ask(1, 0.0, ParkRequest("clock 1")) == [ParkRequest("clock 1")]
    assert shard.ask(2, 0.0, ParkRequest("clock 2")) == [ParkRequest("clock 2")]
    assert shard.queue.waiting_reason == "clock 1"
    assert shard.ask(3, 0.0, event=Look()) == [AnswerRequest(3)], "a look changes nothing"
    assert shard.ask(4, 0.0) == [AnswerRequest(4), RetryRequests((1, 2))]
    assert shard.ask(5, 0.0) == [AnswerRequest(5)], "both are being tried again"
    assert shard.queue.waiting_reason == ""


def test_a_refusal_wakes_nobody() -> None:
    shard = Answers()
    shard.ask(1, 0.0, ParkRequest("clock 1"))
    refused = RefuseRequest(InvalidRequest("no"))
    assert shard.ask(2, 0.0, refused) == [refused]


def test_who_has_given_up_is_not_tried_again_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_ps.core.shard.MAX_PARKED", 1)
    shard = Answers()
    shard.ask(1, 0.0, ParkRequest("clock 1"), seconds=5.0, limited=True)
    (refused,) = shard.ask(2, 4.9, ParkRequest("clock 1"), limited=True)
    assert isinstance(refused, RefuseRequest)
    assert isinstance(refused.error, Busy)
    assert shard.ask(3, 4.9, ParkRequest("blocks")) == [ParkRequest("blocks")], "a shard's own call"
    assert shard.ask(4, 5.0, ParkRequest("clock 1"), limited=True) == [ParkRequest("clock 1")]
    assert shard.ask(5, 5.0) == [AnswerRequest(5), RetryRequests((3, 4))]


def test_workers_are_served_with_a_lease_only() -> None:
    shard = Answers()
    (refused,) = shard.ask(1, 0.0, limited=True, leased=False)
    assert isinstance(refused, RefuseRequest)
    assert isinstance(refused.error, NotServing)
    assert shard.ask(2, 0.0, leased=False) == [AnswerRequest(2)]


def test_an_unexpected_error_crashes_the_process_when_it_may_have_changed_something() -> None:
    shard, error = Answers(), ZeroDivisionError("1 / 0")
    crash, refused = shard.ask(1, 0.0, error)
    assert crash == CrashProcess(error)
    assert isinstance(refused, RefuseRequest)
    assert refused.error.__cause__ is error
    (refused,) = shard.ask(2, 0.0, error, event=Look())
    assert isinstance(refused, RefuseRequest)


def test_events_say_whether_somebody_may_have_waited_for_them() -> None:
    assert PushReceived.changes
    assert not StatusRequested.changes
