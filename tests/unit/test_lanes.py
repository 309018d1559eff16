"""Numbers, retention and order of one lane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.lanes import DONE, Retained, resume_points
from scar.packing import gathered
from scar.reroute import Part, Piece
from scar.tables import Job, Table
from scar.v1.ps_pb2 import SettleReply

JOB = Job("test", [Table("w", (3, 4))])
SEEDED = settings(max_examples=60, derandomize=True)


def part(push_id: int, clock: int = 0, **fields: bool) -> Part:
    return Part(push_id, clock, {"w": Piece(np.zeros(1, np.uint32), np.zeros(4, np.float32))}, **fields)


def sent(lane: Retained) -> int:
    head = lane.head()
    assert head is not None
    return head.seq


def test_numbers_are_given_in_order_of_sending() -> None:
    lane = Retained(until_closed=False)
    for push_id in (4, 7):
        lane.add(part(push_id))
    assert [sent(lane), sent(lane)] == [1, 1]  # the same part until it is acknowledged
    lane.acknowledge(1, 0)
    assert sent(lane) == 2
    lane.add(part(3, owed=True))  # sent again: an old push under a new number
    lane.acknowledge(2, 0)
    assert (sent(lane), lane.head().push_id) == (3, 3)


@SEEDED
@given(st.lists(st.sampled_from(["add", "send", "answer", "late answer"]), max_size=60), st.booleans())
def test_no_gap_and_no_number_twice(events: list[str], until_closed: bool) -> None:
    lane, numbers = Retained(until_closed), list[int]()
    for count, event in enumerate(events):
        if event == "add":
            lane.add(part(count))
        elif event == "late answer" and numbers:
            lane.acknowledge(numbers[-1] - 1, 0)  # of a number that was acknowledged before
        elif not lane.idle:
            if sent(lane) not in numbers:
                numbers.append(sent(lane))
            if event == "answer":
                lane.acknowledge(numbers[-1], 0)
    assert numbers == list(range(1, len(numbers) + 1))
    assert lane.waiting_bytes == 16 * sum(not kept.acked for kept in lane.parts())


def test_released_when_acknowledged() -> None:
    lane = Retained(until_closed=False)
    lane.add(part(1))
    assert [released.push_id for released in lane.acknowledge(sent(lane), 0)] == [1]
    assert lane.empty


def test_bsp_keeps_a_part_until_its_clock_is_seen_closed() -> None:
    lane = Retained(until_closed=True)
    lane.add(part(1, clock=3))
    assert lane.acknowledge(sent(lane), 3) == []
    assert (lane.idle, lane.empty) == (True, False)
    assert lane.see(3) == []
    assert [released.push_id for released in lane.see(4)] == [1]
    assert lane.empty


def test_bsp_a_late_part_belongs_to_the_clock_that_was_open() -> None:
    lane = Retained(until_closed=True)
    lane.add(part(1, clock=3, owed=True))
    assert lane.acknowledge(sent(lane), 4) == []  # the shard had closed clock 3 already
    assert lane.see(4) == []
    assert [released.push_id for released in lane.see(5)] == [1]


def test_an_old_answer_does_not_turn_the_clock_back() -> None:
    lane = Retained(until_closed=True)
    lane.see(5)
    lane.see(2)
    lane.add(part(1, clock=4))
    assert [released.push_id for released in lane.acknowledge(sent(lane), 2)] == [1]


def test_what_must_arrive_before_a_mark_and_before_a_settle() -> None:
    lane = Retained(until_closed=True)
    lane.add(part(5, clock=2))
    assert not lane.before_mark(2)  # it belongs to the open clock
    assert lane.before_mark(3)
    assert not lane.unsettled()
    lane.add(part(3, clock=1, owed=True))
    assert lane.before_mark(2)
    assert lane.unsettled()
    lane.acknowledge(sent(lane), 2)
    lane.acknowledge(sent(lane), 2)
    assert not lane.before_mark(3)
    assert not lane.unsettled()


def test_replace_keeps_order_and_numbers() -> None:
    lane = Retained(until_closed=True)
    for push_id in (1, 2, 3):
        lane.add(part(push_id))
    lane.acknowledge(sent(lane), 0)
    sent(lane)
    acked, numbered, fresh = lane.parts()
    emptied = Part(numbered.push_id, 0, {}, seq=numbered.seq)
    lane.replace([acked, emptied, fresh])
    assert lane.waiting_bytes == 16
    assert (sent(lane), lane.head().pieces) == (2, {})
    lane.acknowledge(2, 0)
    assert sent(lane) == 3


@pytest.mark.parametrize(
    ("records", "points"),
    [
        ([(0, 0), (0, 0)], [0, 0]),  # a new job
        ([(7, 0), (8, 0)], [8, 8]),  # a new worker: clock 7 closes on the first shard without it
        ([(7, 7), (7, 8)], [7, 8]),  # the predecessor had marked clock 7 as finished on one shard only
        ([(9, 4), (9, 4)], [9, 9]),  # it was away for a while
        ([(9, 4), (10, 4)], [9, 9]),  # so that it pushes clock 9 to both: the second closed it without this worker
        ([(150, 150), (0, 0)], [150, 150]),  # the second shard has just joined
        ([(150, DONE), (150, DONE)], [150, 150]),  # it was done
        ([(DONE, DONE)], [0]),
    ],
)
def test_where_a_new_incarnation_goes_on(records: list[tuple[int, int]], points: list[int]) -> None:
    assert resume_points([SettleReply(clock=clock, finished=finished) for clock, finished in records]) == points


def queue(*push_ids: int) -> Retained:
    lane = Retained(until_closed=False, gather=lambda parts: gathered(JOB, parts))
    for push_id in push_ids:
        lane.add(part(push_id, clock=push_id))
    return lane


def test_what_waits_behind_a_part_on_its_way_becomes_one() -> None:
    lane = queue(4)
    assert sent(lane) == 1
    for push_id in (5, 6, 7):
        lane.add(part(push_id, clock=push_id))
    assert lane.head().push_id == 4, "what was sent keeps its number and its values"
    assert lane.first_clock == 4
    lane.acknowledge(1, 0)
    assert sent(lane) == 2
    head = lane.head()
    assert (head.push_id, head.clock, head.count) == (7, 5, 3)
    assert lane.waiting_bytes == 16
    assert [released.push_id for released in lane.acknowledge(2, 0)] == [7]
    assert lane.first_clock == DONE


def test_a_long_queue_is_as_large_as_one_push() -> None:
    lane = queue(*range(1, 101))
    lane.gather()
    assert (lane.waiting_bytes, lane.head().count) == (16, 100)


def test_a_late_part_is_kept_until_the_clock_that_it_joined_is_told_closed() -> None:
    """The shard is at clock 6 and tells 5: the part, of clock 4, is applied when 6 closes."""
    lane = Retained(until_closed=True)
    lane.add(part(1, clock=4))
    assert lane.acknowledge(sent(lane), 5, 6) == []
    assert lane.see(6) == []
    assert [released.push_id for released in lane.see(7)] == [1]
