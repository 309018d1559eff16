"""How a run went: bounded, merged in any order, kept in versions; and who writes it down."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scar.errors import StoreError, StoreUnavailable, Unreachable
from scar.placement import END, Member, Role
from scar.v1.recovery_pb2 import HistoryRecord, HistorySample
from scar_recovery.history_recorder import HistoryRecorder
from scar_recovery.shard_client import ShardProgress
from scar_runtime.progress_history import MAX_SAMPLES, ProgressHistory
from scar_runtime.store import Store, open_store
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.layout import HISTORY, folder, history_key

CLOCKS = 100_000
BYTES = 90_000  # of a version, whatever the length of the run


def sample(time: float, clock: int) -> HistorySample:
    return HistorySample(time=time, clock=clock, epoch=3, shards=2, workers=2)


def test_a_long_run_takes_as_little_as_a_short_one() -> None:
    history = ProgressHistory()
    history.add_losses({clock: 1 / (1 + clock) for clock in range(CLOCKS)})
    names = [f"metric-{number}" for number in range(20)]
    history.metrics.add_metrics(
        {clock: dict.fromkeys(names, 1 / (1 + clock)) for clock in range(0, CLOCKS, 10)}
    )
    for second in range(10_000):
        history.add_samples([sample(second, 10 * second)])
    assert len(history.samples) <= MAX_SAMPLES
    assert (history.samples[0].time, history.samples[-1].time) == (0, 9999)
    assert history.to_proto().ByteSize() < BYTES
    assert history.clocks_per_second == pytest.approx(10)


def test_whoever_reads_all_versions_has_what_each_has_in_any_order() -> None:
    whole, first, second = ProgressHistory(), ProgressHistory(), ProgressHistory()
    losses = {clock: random.Random(clock).random() for clock in range(5000)}
    whole.add_losses(losses)
    first.add_losses({clock: loss for clock, loss in losses.items() if clock < 3000})
    second.add_losses({clock: loss for clock, loss in losses.items() if clock >= 2000})
    accuracy = {clock: {"accuracy": loss} for clock, loss in losses.items()}
    whole.metrics.add_metrics(accuracy)
    first.metrics.add_metrics({clock: found for clock, found in accuracy.items() if clock < 3000})
    second.metrics.add_metrics({clock: found for clock, found in accuracy.items() if clock >= 2000})
    first.add_samples([sample(1.0, 0), sample(10.0, 2900)])
    second.add_samples([sample(10.0, 2900), sample(20.0, 5000)])
    for order in ((first, second), (second, first), (first, second, first)):
        merged = ProgressHistory()
        for one in order:
            merged.merge_record(one.to_proto())
        assert merged.curve.points_from() == whole.curve.points_from()
        kept = merged.metrics.curves["accuracy"].points_from()
        assert kept == whole.metrics.curves["accuracy"].points_from()
        assert [one.time for one in merged.samples] == [1.0, 10.0, 20.0]


def test_the_clock_at_a_time_is_that_of_the_next_look() -> None:
    history = ProgressHistory()
    history.add_samples([sample(1.0, 5), sample(3.0, 9)])
    assert [history.clock_at(time) for time in (0.5, 1.0, 2.0, 3.0, 3.5)] == [5, 5, 9, 9, -1]


def test_a_newer_format_is_named() -> None:
    with pytest.raises(StoreError, match="format 2"):
        ProgressHistory().merge_record(HistoryRecord(format=2))


# --- in the store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}").under("job")


def keys(store: Store) -> list[str]:
    return sorted(store.list(folder(HISTORY)))


def test_each_version_takes_the_place_of_those_in_it(store: Store) -> None:
    log = HistoryLog(store)
    history = log.read()
    assert history.samples == []
    for clock in range(3):
        history.add_losses({clock: 1.0})
        log.write(history, "a")
    assert keys(store) == [history_key(3, "a")]
    assert dict(HistoryLog(store).read().curve.points_from()) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_what_a_former_leader_writes_late_is_not_lost_and_takes_nothing_back(store: Store) -> None:
    former, late = HistoryLog(store), ProgressHistory()
    late.add_losses({0: 1.0})
    former.write(late, "a")
    successor = HistoryLog(store)
    history = successor.read()
    history.add_losses({1: 0.5})
    successor.write(history, "b")
    late.add_losses({7: 0.25})
    former.write(late, "a")
    assert dict(HistoryLog(store).read().curve.points_from()) == {0: 1.0, 1: 0.5, 7: 0.25}


def test_a_damaged_version_is_left_out(store: Store) -> None:
    log, history = HistoryLog(store), ProgressHistory()
    history.add_losses({3: 0.5})
    log.write(history, "a")
    store.put(history_key(2, "b"), b"nonsense")
    assert dict(HistoryLog(store).read().curve.points_from()) == {3: 0.5}


# --- the recorder


class Cluster:
    """Shards that close a clock a look, as the recorder asks for them."""

    def __init__(self, store: Store) -> None:
        self.members = tuple(Member(Role.SHARD, f"ps-{number}", "a" * 12) for number in range(8))
        self.epoch = SimpleNamespace(number=3, cause="", shards=self.members, workers=("w",))
        self.now = 0.0
        self.asked: list[tuple[str, int]] = []
        self.silent = False
        self.executor = self.lead(store)
        self.recorder = HistoryRecorder(
            lambda: self.executor, self.progress, "a", wall=lambda: self.now, now=lambda: self.now
        )

    def lead(self, store: Store) -> Any:
        return cast(
            Any,
            SimpleNamespace(
                state=SimpleNamespace(epoch=self.epoch),
                store=SimpleNamespace(history_log=lambda: HistoryLog(store)),
                job=SimpleNamespace(name="job"),
            ),
        )

    def progress(self, member: Member, since: int) -> ShardProgress:
        self.asked.append((member.name, since))
        if self.silent:
            raise Unreachable("gone")
        clock = int(100 * self.now)
        losses = {one: 1 / (1 + one) for one in range(since, clock)}
        return ShardProgress(clock, 5, losses, {one: {"accuracy": 1 - loss} for one, loss in losses.items()})

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.recorder.step()


def test_it_writes_what_shards_say_and_asks_a_few_of_them_for_what_is_new(store: Store) -> None:
    cluster = Cluster(store)
    for _ in range(4):
        cluster.look()
    assert [name for name, _ in cluster.asked[:8]] == [f"ps-{number}" for number in range(8)]
    assert cluster.asked[4][1] == 99 - 64
    history = HistoryLog(store).read()
    assert dict(history.curve.points_from()) == {clock: 1 / (1 + clock) for clock in range(300)}
    accuracy = history.metrics.curves["accuracy"].points_from()
    assert (accuracy[0], accuracy[-1]) == ((0, 0.0), (299, 1 - 1 / 300))
    assert [(one.time, one.clock) for one in history.samples] == [(1.0, 100), (2.0, 200), (3.0, 300)]
    assert keys(store) == [history_key(2, "a")], "not at each look"


def test_the_next_leader_goes_on_with_it(store: Store) -> None:
    cluster = Cluster(store)
    cluster.look()
    cluster.executor = cluster.lead(store)
    cluster.look(5.0)
    assert [one.time for one in HistoryLog(store).read().samples] == [1.0, 6.0]
    assert len(keys(store)) == 1


def test_the_end_is_written_at_once_by_what_all_shards_know(store: Store) -> None:
    cluster = Cluster(store)
    cluster.look()
    cluster.now += 0.01
    cluster.asked.clear()
    cluster.recorder.step(at_once=True)
    assert len(cluster.asked) == len(cluster.members)
    assert len(HistoryLog(store).read().curve.points_from()) == 101


def test_without_an_answer_a_store_or_a_job_it_tries_again(store: Store) -> None:
    cluster = Cluster(store)
    log = cluster.executor.store.history_log
    cluster.executor.store.history_log = refuse
    cluster.look()
    assert cluster.asked == []
    cluster.executor.store.history_log = log
    cluster.silent = True
    cluster.look()
    assert cluster.asked != []
    cluster.silent = False
    cluster.epoch.cause = END
    cluster.look()
    assert keys(store) == []
    cluster.epoch.cause = ""
    cluster.look()
    assert len(keys(store)) == 1


def test_it_says_how_the_store_answers(store: Store) -> None:
    cluster = Cluster(store)
    health = cluster.recorder.store_watch.read
    assert (health().age, health().problem) == (-1.0, "")
    cluster.look()
    assert (health().age, health().problem) == (0.0, "")
    cluster.now += 2.5
    assert health().age == 2.5
    log = cluster.executor.store.history_log
    cluster.executor = cluster.lead(store)
    cluster.executor.store.history_log = refuse
    cluster.look()
    assert (health().age, health().problem) == (3.5, "the store is away")
    cluster.executor.store.history_log = log
    cluster.look()
    assert (health().age, health().problem) == (0.0, "")


def refuse() -> HistoryLog:
    raise StoreUnavailable("the store is away")
