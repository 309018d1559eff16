"""Numbers, retention and order of the pushes of one stream."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar._client.core.clocks import DONE, ShardRecord, first_new_clock, resume_clocks
from scar._client.core.pushes import ShardPush, TablePush, merge_pushes
from scar._client.core.resend_buffer import ResendBuffer
from scar.tables import Job, Table

JOB = Job("test", [Table("w", (3, 4))])
SEEDED = settings(max_examples=60, derandomize=True)


def push(push_id: int, clock: int = 0, **fields: bool) -> ShardPush:
    return ShardPush(
        push_id, clock, {"w": TablePush(np.zeros(1, np.uint32), np.zeros(4, np.float32))}, **fields
    )


def sent(buffer: ResendBuffer) -> int:
    head = buffer.next_push()
    assert head is not None
    return head.seq


def test_one_more_clock_is_kept_where_the_state_before_it_may_come_back() -> None:
    buffer = ResendBuffer(until_closed=True, closed_kept=1)
    for push_id, clock in ((1, 3), (2, 4)):
        buffer.append(push(push_id, clock))
        buffer.acknowledge(sent(buffer), clock)
    assert buffer.see_clock(4) == []
    assert not buffer.empty, "a clock is open"
    assert [one.push_id for one in buffer.see_clock(5)] == [1]
    assert buffer.empty, "the rest is a copy of what is applied"
    assert buffer.idle
    assert [one.push_id for one in buffer.pushes()] == [2]
    assert [one.push_id for one in buffer.see_clock(6)] == [2]


def test_numbers_are_given_in_order_of_sending() -> None:
    buffer = ResendBuffer(until_closed=False)
    for push_id in (4, 7):
        buffer.append(push(push_id))
    assert [sent(buffer), sent(buffer)] == [1, 1]  # the same part until it is acknowledged
    buffer.acknowledge(1, 0)
    assert sent(buffer) == 2
    buffer.append(push(3, resent=True))  # sent again: an old push under a new number
    buffer.acknowledge(2, 0)
    assert (sent(buffer), buffer.next_push().push_id) == (3, 3)


@SEEDED
@given(st.lists(st.sampled_from(["add", "send", "answer", "late answer"]), max_size=60), st.booleans())
def test_no_gap_and_no_number_twice(events: list[str], until_closed: bool) -> None:
    buffer, numbers = ResendBuffer(until_closed), list[int]()
    for count, event in enumerate(events):
        if event == "add":
            buffer.append(push(count))
        elif event == "late answer" and numbers:
            buffer.acknowledge(numbers[-1] - 1, 0)  # of a number that was acknowledged before
        elif not buffer.idle:
            if sent(buffer) not in numbers:
                numbers.append(sent(buffer))
            if event == "answer":
                buffer.acknowledge(numbers[-1], 0)
    assert numbers == list(range(1, len(numbers) + 1))
    assert buffer.waiting_bytes == 16 * sum(not kept.acked for kept in buffer.pushes())


def test_released_when_acknowledged() -> None:
    buffer = ResendBuffer(until_closed=False)
    buffer.append(push(1))
    assert [released.push_id for released in buffer.acknowledge(sent(buffer), 0)] == [1]
    assert buffer.empty


def test_bsp_keeps_a_part_until_its_clock_is_seen_closed() -> None:
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(1, clock=3))
    assert buffer.acknowledge(sent(buffer), 3) == []
    assert (buffer.idle, buffer.empty) == (True, False)
    assert buffer.see_clock(3) == []
    assert [released.push_id for released in buffer.see_clock(4)] == [1]
    assert buffer.empty


def test_bsp_a_late_part_belongs_to_the_clock_that_was_open() -> None:
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(1, clock=3, resent=True))
    assert buffer.acknowledge(sent(buffer), 4) == []  # the shard had closed clock 3 already
    assert buffer.see_clock(4) == []
    assert [released.push_id for released in buffer.see_clock(5)] == [1]


def test_an_old_answer_does_not_turn_the_clock_back() -> None:
    buffer = ResendBuffer(until_closed=True)
    buffer.see_clock(5)
    buffer.see_clock(2)
    buffer.append(push(1, clock=4))
    assert [released.push_id for released in buffer.acknowledge(sent(buffer), 2)] == [1]


def test_what_must_arrive_before_a_mark_and_before_a_settle() -> None:
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(5, clock=2))
    assert not buffer.blocks_mark(2)  # it belongs to the open clock
    assert buffer.blocks_mark(3)
    assert not buffer.blocks_settle()
    buffer.append(push(3, clock=1, resent=True))
    assert buffer.blocks_mark(2)
    assert buffer.blocks_settle()
    buffer.acknowledge(sent(buffer), 2)
    buffer.acknowledge(sent(buffer), 2)
    assert not buffer.blocks_mark(3)
    assert not buffer.blocks_settle()


def test_replace_keeps_order_and_numbers() -> None:
    buffer = ResendBuffer(until_closed=True)
    for push_id in (1, 2, 3):
        buffer.append(push(push_id))
    buffer.acknowledge(sent(buffer), 0)
    sent(buffer)
    acked, numbered, fresh = buffer.pushes()
    emptied = ShardPush(numbered.push_id, 0, {}, seq=numbered.seq)
    buffer.replace_pushes([acked, emptied, fresh])
    assert buffer.waiting_bytes == 16
    assert (sent(buffer), buffer.next_push().tables) == (2, {})
    buffer.acknowledge(2, 0)
    assert sent(buffer) == 3


@pytest.mark.parametrize(
    ("records", "points"),
    [
        ([(0, 0, 0), (0, 0, 0)], [0, 0]),  # a new job
        ([(7, 0, 7), (8, 0, 8)], [8, 8]),  # a new worker: clock 7 closes on the first shard without it
        ([(7, 7, 7), (7, 8, 7)], [8, 8]),  # the predecessor had marked clock 7 as finished on one shard only
        ([(7, 7, 7), (8, 8, 8)], [8, 8]),  # and it is closed there
        ([(9, 4, 9), (9, 4, 9)], [9, 9]),  # it was away for a while
        ([(9, 4, 9), (10, 4, 10)], [10, 10]),  # the second has closed clock 9 without this worker
        ([(9, 4, 9), (9, 4, 10)], [10, 10]),  # and does not tell everybody yet
        ([(150, 150, 150), (0, 0, 0)], [150, 150]),  # the second shard has just joined
        ([(150, DONE, 150), (150, DONE, 150)], [150, 150]),  # it was done
        ([(DONE, DONE, DONE)], [0]),
    ],
)
def test_where_a_new_incarnation_goes_on(records: list[tuple[int, int, int]], points: list[int]) -> None:
    told = [ShardRecord(clock, finished, joins) for clock, finished, joins in records]
    assert resume_clocks(told, queues=False) == points


def test_where_pushes_are_queued_a_clock_is_done_again_for_the_shards_that_may_lack_it() -> None:
    told = [ShardRecord(7, 7), ShardRecord(7, 8), ShardRecord(0, 0)]
    assert resume_clocks(told, queues=True) == [7, 8, 7]


def queue(*push_ids: int) -> ResendBuffer:
    buffer = ResendBuffer(until_closed=False, merge=lambda parts: merge_pushes(JOB, parts))
    for push_id in push_ids:
        buffer.append(push(push_id, clock=push_id))
    return buffer


def test_what_waits_behind_a_part_on_its_way_becomes_one() -> None:
    buffer = queue(4)
    assert sent(buffer) == 1
    for push_id in (5, 6, 7):
        buffer.append(push(push_id, clock=push_id))
    assert buffer.next_push().push_id == 4, "what was sent keeps its number and its values"
    assert buffer.first_clock == 4
    buffer.acknowledge(1, 0)
    assert sent(buffer) == 2
    head = buffer.next_push()
    assert (head.push_id, head.clock, head.merged) == (7, 5, 3)
    assert buffer.waiting_bytes == 16
    assert [released.push_id for released in buffer.acknowledge(2, 0)] == [7]
    assert buffer.first_clock == DONE


def test_a_long_queue_is_as_large_as_one_push() -> None:
    buffer = queue(*range(1, 101))
    buffer.merge_unsent()
    assert (buffer.waiting_bytes, buffer.next_push().merged) == (16, 100)


def test_a_late_part_is_kept_until_the_clock_that_it_joined_is_told_closed() -> None:
    """The shard is at clock 6 and tells 5: the part, of clock 4, is applied when 6 closes."""
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(1, clock=4))
    assert buffer.acknowledge(sent(buffer), 5, 6) == []
    assert buffer.see_clock(6) == []
    assert [released.push_id for released in buffer.see_clock(7)] == [1]


def test_an_owed_part_is_applied_when_the_shard_has_settled_and_kept_until_then() -> None:
    """The shard has closed its clock already, and needs no further one."""
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(1, clock=4))
    assert buffer.acknowledge(sent(buffer), 5, 5, owed=True) == []
    assert not buffer.empty
    assert buffer.see_clock(5) == []
    buffer.end_owing()
    assert buffer.empty
    assert [released.push_id for released in buffer.see_clock(5)] == [1]


def test_an_owed_part_is_applied_before_the_open_clock_closes() -> None:
    buffer = ResendBuffer(until_closed=True)
    buffer.append(push(1, clock=4))
    assert buffer.acknowledge(sent(buffer), 5, 6, owed=True) == []
    assert [released.push_id for released in buffer.see_clock(7)] == [1]


def test_a_successor_has_no_part_in_clocks_that_anybody_has_heard_of():
    record = ShardRecord
    assert first_new_clock([record(), record()]) == 0
    assert first_new_clock([record(clock=4, finished=5), record(clock=4, finished=4)]) == 5
    assert first_new_clock([record(clock=4, finished=4), record(clock=6, finished=4)]) == 6
    # closed, though nobody may hear of it yet
    assert first_new_clock([record(clock=4, joins=7, finished=4)]) == 7
    assert first_new_clock([record(clock=4, finished=DONE)]) == 4
