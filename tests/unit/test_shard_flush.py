"""What a shard that goes has not saved is saved in parts, the dearest first, until it has gone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import numpy as np
import pytest

from scar.placement import Member, Role
from scar.tables import Job, Table
from scar.v1.checkpoint_pb2 import RoundReport, TriggerRequest
from scar_recovery.shard_flush import FAILURES, ShardFlush
from scar_runtime.checkpoint.selection import blocks_per_round

BLOCKS = 1000
JOB = Job("test", [Table("w", (2 * BLOCKS, 1))], shards=2)  # 4 bytes a block
SHARD = Member(Role.SHARD, "ps-0", "a" * 12)
SELECT, BLOCK = 0.2, 0.01  # seconds to choose a part, and to save one block


class FlushedShard:
    """A shard of ``BLOCKS`` changed blocks, its coordinator and the time, which only passes in rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.distances = np.random.default_rng(1).lognormal(0, 2, BLOCKS)
        self.parts: list[tuple[float, int]] = []  # seconds after which it was safe, and its blocks
        self.told: list[float] = []
        self.failing: Callable[[], str] = lambda: ""
        self.closed = Event()
        monkeypatch.setattr("scar_recovery.shard_flush.time.monotonic", lambda: self.now)
        monkeypatch.setattr(self.closed, "wait", self._wait)

    def _wait(self, seconds: float) -> None:
        self.now += seconds

    def trigger(self, request: TriggerRequest, _seconds: float) -> tuple[str, RoundReport]:
        assert (request.selection, request.shard) == ("priority", SHARD.key)
        self.now += SELECT
        if problem := self.failing():
            return problem, RoundReport(error=problem)
        count = min(blocks_per_round(request.fraction, JOB), int(np.count_nonzero(self.distances)))
        if not count:
            return "nothing has changed", RoundReport(error="nothing has changed", unchanged=True)
        self.distances[np.argsort(-self.distances)[:count]] = 0.0
        self.now += BLOCK * count
        self.parts.append((self.now, count))
        return "", RoundReport(blocks_saved=count, select_seconds=SELECT, commit_seconds=BLOCK * count)

    def flush(self, seconds: float, is_there: Callable[[], bool] = lambda: True, first: int = 8) -> None:
        flush = ShardFlush(self.trigger, JOB, SHARD, 4 * first, self.closed)
        flush.run(seconds, is_there, lambda: self.told.append(self.now))


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> FlushedShard:
    return FlushedShard(monkeypatch)


@pytest.mark.parametrize("notice", [1.0, 2.0, 4.0, 8.0])
def test_whenever_it_dies_little_time_was_wasted(shard: FlushedShard, notice: float) -> None:
    shard.flush(100.0)
    safe = sum(count for at, count in shard.parts if at <= notice)
    assert safe >= 0.2 * notice / BLOCK, "of what could have been saved without any choosing"
    assert shard.parts[0][1] == 8


def test_all_is_saved_and_then_blocks_move(shard: FlushedShard) -> None:
    shard.flush(100.0)
    assert not shard.distances.any()
    assert shard.told == [shard.now], "once"


def test_blocks_move_after_a_while_and_what_is_left_is_saved_beside_in_short_parts(
    shard: FlushedShard,
) -> None:
    shard.flush(3.0)
    assert not shard.distances.any()
    (told,) = shard.told
    assert 3.0 <= told < 3.0 + 1 / 3 * 3.0 + SELECT + 0.1, "the part under way ends first"
    beside = [count for at, count in shard.parts if at > told]
    assert max(beside[1:]) * BLOCK <= SELECT + BLOCK, "an epoch would void a longer one"


def test_a_part_that_fails_lets_blocks_move_and_is_tried_again_smaller(shard: FlushedShard) -> None:
    failed: list[str] = []

    def fail_twice() -> str:
        if len(shard.parts) == 3 and len(failed) < 2:
            failed.append("ps-0 took no part")
            return failed[-1]
        return ""

    shard.failing = fail_twice
    shard.flush(100.0)
    assert not shard.distances.any()
    assert len(shard.told) == 1
    assert shard.told[0] < shard.now
    assert shard.parts[3][1] < shard.parts[2][1]


def test_saving_that_never_works_ends_and_holds_up_nothing(shard: FlushedShard) -> None:
    shard.failing = lambda: "no checkpoint coordinator is there"
    shard.flush(3.0)
    assert len(shard.told) == 1
    assert shard.told[0] < 2 * SELECT
    assert shard.now < FAILURES * SELECT + 4.0


def test_nothing_more_is_asked_of_a_shard_that_has_gone(shard: FlushedShard) -> None:
    shard.flush(100.0, lambda: len(shard.parts) < 2)
    assert len(shard.parts) == 2
    assert len(shard.told) == 1


def test_where_nothing_has_changed_blocks_move_at_once(shard: FlushedShard) -> None:
    shard.distances[:] = 0.0
    shard.flush(3.0)
    assert shard.told == [SELECT]
