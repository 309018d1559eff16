"""Callbacks hear of each clock and each failure once."""

from __future__ import annotations

from collections.abc import Mapping

from scar.callbacks import FailureNote
from scar.v1 import recovery_pb2
from scar_admin.status import ClusterStatus
from scar_local.callback_feed import CallbackFeed


class Recorder:
    def __init__(self) -> None:
        self.clocks: list[tuple[int, Mapping[str, float]]] = []
        self.failures: list[FailureNote] = []
        self.closed = 0

    def log_metrics(self, clock: int, metrics: Mapping[str, float]) -> None:
        self.clocks.append((clock, metrics))

    def log_failure(self, failure: FailureNote) -> None:
        self.failures.append(failure)

    def close(self) -> None:
        self.closed += 1


def test_each_clock_is_told_once_and_a_late_one_later() -> None:
    heard = Recorder()
    feed = CallbackFeed([heard])
    feed.take(ClusterStatus(losses={0: 3.0, 2: 1.0}, metrics={2: {"hits": 5.0}}))
    feed.take(ClusterStatus(losses={1: 2.0, 2: 1.0}))
    assert heard.clocks == [(0, {"loss": 3.0}), (2, {"loss": 1.0, "hits": 5.0}), (1, {"loss": 2.0})]


def test_a_failure_is_told_when_it_is_complete_or_at_the_end() -> None:
    heard = Recorder()
    feed = CallbackFeed([heard])
    begun = recovery_pb2.FailureRecord(number=1, members=["ps-1@a"])
    other = recovery_pb2.FailureRecord(number=2, members=["ps-2@b"], lost_blocks=4)
    feed.take(ClusterStatus(failures=(begun, other)))
    assert not heard.failures
    whole = recovery_pb2.FailureRecord(
        number=1,
        members=["ps-1@a"],
        epoch=2,
        clock=7,
        lost_blocks=3,
        lost_pushes=2,
        detect_seconds=0.5,
        wait_seconds=0.25,
        commit_seconds=-1,
        load_seconds=1,
    )
    for _ in range(2):
        feed.take(ClusterStatus(failures=(whole, other)))
    first = FailureNote(1, 7, ("ps-1@a",), 3, 2, 1.75)
    assert heard.failures == [first]
    assert first.text == "ps-1@a: 3 blocks came back in 1.75 s, 2 pushes lost"
    feed.close()
    assert [failure.number for failure in heard.failures] == [1, 2]
    assert heard.closed == 1
