"""What the page remembers of a run: which clock was open when, and what failures have cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scar.tables import Job, Table
from scar.v1.recovery_pb2 import FailureRecord, HistorySample, RecoveryStatus
from scar.wire.codec import job_to_proto
from scar_admin.iteration_costs import NEXT_CAME, measured_costs
from scar_admin.status import ClusterStatus
from scar_console.moments import moments_document
from scar_console.run_history import RunHistory
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store, open_store
from scar_runtime.store.history_log import HistoryLog
from tests.unit.test_console_page import STATUS, Looks, record, shard

JOB = job_to_proto(Job("descent", tables=[Table("w", 10)]))


def at_clock(clock: int, **changes: object) -> ClusterStatus:
    return replace(STATUS, job=JOB, shards={"ps-0": shard("ps-0", clock=clock)}, **changes)  # type: ignore[arg-type]


def repaired(number: int, clock: int) -> FailureRecord:
    found = record(number, epoch=1 + number, load_seconds=0.1)
    found.clock = clock
    return found


def test_a_viewer_who_takes_every_step_knows_all_moments() -> None:
    """As `moments.js` does it, also when looks are thinned."""
    history = RunHistory()
    times: list[float] = []
    clocks: list[int] = []
    known: tuple[HistorySample, ...] = ()
    for look in range(3000):
        history.note_look(at_clock(7 * look, losses={}), 1e9 + 0.5 * look)
        samples = tuple(history.progress.samples)
        told = moments_document(samples, known)
        known = samples
        if told is not None:
            times = times[: told["from"]] + told["times"]
            clocks = clocks[: told["from"]] + told["clocks"]
    assert clocks == [one.clock for one in history.progress.samples]
    assert times == [round(one.time, 3) for one in history.progress.samples]
    assert len(clocks) <= 512
    assert (clocks[0], clocks[-1]) == (0, 7 * 2999)


def test_a_look_that_sees_less_than_another_did_tells_no_time() -> None:
    """Shards that died or have just begun know of no clock."""
    history = RunHistory()
    for time, clock in enumerate((5, 9, 0, 12)):
        history.note_look(at_clock(clock, losses={}), 100.0 + 2 * time)
    history.note_look(at_clock(13, losses={}, workers={}), 110.0)
    assert [(one.time, one.clock) for one in history.progress.samples] == [(100, 5), (102, 9), (106, 12)]


def test_the_costs_of_failures_are_those_of_all_losses() -> None:
    """Looked at as they come, a few at a time, and of a part of the data none."""
    losses = {clock: 10.0 - 0.1 * clock + (3.0 if 20 <= clock < 35 else 0.0) for clock in range(80)}
    fractions = dict.fromkeys(range(22, 70, 9), 0.5)
    losses |= {clock: 0.5 * losses[clock] for clock in fractions}
    failures = (repaired(1, 20), repaired(2, 60))
    history = RunHistory()
    for first in range(0, 80, 8):
        seen = {clock: losses[clock] for clock in range(max(0, first - 8), first + 8)}
        history.note_failures(at_clock(first, losses=seen, fractions=fractions), failures)
    truth = measured_costs(at_clock(80, losses=losses, fractions=fractions), failures)
    assert history.costs == truth
    assert [cost.back for cost in history.costs.values()] == [cost.back for cost in truth.values()]
    assert truth[1].at_most is not None
    history.note_failures(at_clock(80, losses={}), failures[1:])
    assert list(history.costs) == [2], "of failures that are shown no more nothing stays"


def test_a_cost_that_was_measured_gives_way_to_a_failure_that_is_told_later() -> None:
    """The ledger has the second failure, and then its clock, after the loss was seen to be back."""
    losses = {clock: 10.0 - clock for clock in range(8)}
    first, second = repaired(1, 3), repaired(2, 4)
    unhealed = record(2)
    history = RunHistory()
    for failures in ((first,), (first, unhealed), (first, second), (first, repaired(2, 6))):
        status = at_clock(8, losses=losses)
        history.note_failures(status, failures)
        assert history.costs == measured_costs(status, failures)
    assert history.costs[1].at_most == 2, "the last one came after the loss was back"
    assert measured_costs(status, (first, second))[1].reason == NEXT_CAME


def test_a_loss_that_a_look_lacked_changes_a_cost_that_was_measured_without_it() -> None:
    """The shard that knew it did not answer in time: before the failure, and where the loss is back."""
    losses = {0: 9.0, 1: 4.0, 2: 3.0, 3: 8.0, 4: 7.0, 5: 2.0, 6: 1.0, 7: 0.5}
    failures = (repaired(1, 3),)
    for late in losses:
        history = RunHistory()
        others = {clock: loss for clock, loss in losses.items() if clock != late}
        for seen in (others, others, losses, losses):
            status = at_clock(8, losses=seen)
            history.note_failures(status, failures)
            assert history.costs == measured_costs(status, failures)
    for seen in ({0: 9.0, 1: 4.0, 4: 3.5}, {2: 3.0, 3: 8.0, 5: 2.0}):
        history.note_failures(at_clock(8, losses=seen), failures)
    assert history.costs == measured_costs(at_clock(8, losses=losses), failures)


def test_a_loss_that_a_look_lacked_matters_to_the_next_failure() -> None:
    """It was to come first; the loss was back before."""
    losses = dict(enumerate((9.0, 8.0, 9.0, 9.0, 7.0, 9.0, 6.0)))
    failures = (repaired(1, 2), repaired(2, 5))
    history = RunHistory()
    for seen in ({0: 9.0, 1: 8.0, 2: 9.0, 3: 9.0, 6: 6.0}, losses):
        status = at_clock(7, losses=seen)
        history.note_failures(status, failures)
        assert history.costs == measured_costs(status, failures)
    assert history.costs[1].at_most == 3


def test_a_cost_is_on_the_page_as_the_command_says_it() -> None:
    losses = {clock: 10.0 - clock for clock in range(8)}
    failures = (repaired(1, 3),)
    status = at_clock(8, losses=losses, failures=failures)
    [shown] = json.loads(Looks(status, status).view().look().whole)["state"]["failures"]
    assert shown["cost"] == measured_costs(status, failures)[1].document
    assert shown["cost"]["back"] == 4


@pytest.mark.parametrize("redis", [True, False, None])
def test_redis_and_the_store_are_as_those_say_who_ask_them(redis: bool | None) -> None:
    recovery = RecoveryStatus(leader=True)
    status = replace(STATUS, recovery=recovery, redis=redis)
    state = json.loads(Looks(status, status).view().look().whole)["state"]
    assert (state["redis"], state["store_health"]) == (redis, None)
    recovery.store_health.age = 1.5
    recovery.store_health.problem = "gone"
    state = json.loads(Looks(status, status).view().look().whole)["state"]
    assert state["store_health"] == {"age": 1.5, "seconds": 0.0, "problem": "gone"}


def test_a_page_that_is_opened_late_has_what_the_store_knows_of_before(tmp_path: Path) -> None:
    """Shards may know the end of the losses alone."""
    store = open_store(f"file://{tmp_path}")
    before = ProgressHistory()
    before.add_losses({0: 9.0, 1: 8.0})
    before.add_samples([HistorySample(time=5.0, clock=1)])
    HistoryLog(store.under("descent")).write(before, "a")

    class Stored(Looks):
        def store(self) -> Store:
            return store

    status = at_clock(40, epoch=None)
    view = Stored(status, status, status).view()
    view.look()
    view.read_saved()
    step = json.loads(view.look().step)
    assert step["curve"] == {"from": 0, "clocks": [0, 1, 38, 39], "losses": [9.0, 8.0, 0.5, 0.25]}
    assert (step["moments"]["from"], step["moments"]["clocks"][0]) == (0, 1)
