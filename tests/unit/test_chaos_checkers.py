"""The oracles of the system tests: each must accept what is right and find what is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role, spread_blocks
from scar.tables import Checkpoint, Job, Table
from scar.v1 import recovery_pb2
from scar_chaos.core.counting_job import PAIRS, make_job, push_amount, strategy_options, torn_blocks
from scar_chaos.oracles import checkers
from scar_chaos.oracles.exactly_once import ReportedLoss, SettledPushes, find_surplus
from scar_chaos.oracles.history import History, PullRecord, PushRecord
from tests.framework.lost import lost

JOB = make_job(shards=2)
QUEUES = make_job(shards=2, **strategy_options("stateless"))
INITIAL = {table.name: np.full(table.blocks, 7 if table.name == "pairs" else 0) for table in JOB.tables}
WORKER = "worker-0@aaaaaaaaaaaa"
SHARDS = tuple(Member(Role.SHARD, f"ps-{n}", letter * 12) for n, letter in enumerate("bc"))


def ids(*blocks: int) -> np.ndarray:
    return np.array(blocks, dtype=np.uint32)


def past() -> tuple[History, dict[str, np.ndarray]]:
    """Three acknowledged pushes and one that is not; values with all but the last."""
    pushes = [PushRecord(WORKER, n, n - 1, "rows", ids(1, 2, n + 3)) for n in (1, 2, 3, 4)]
    values = {table: array.copy() for table, array in INITIAL.items()}
    for push in pushes[:3]:
        values["rows"][push.ids] += push.amount
    return History(pushes=pushes, acknowledged={WORKER: 3}, opened=[(1.0, WORKER, 0)]), values


def record(after: int, upto: int, *blocks: int) -> recovery_pb2.FailureRecord:
    told = recovery_pb2.LostReport(worker=WORKER, lost=[lost("rows", list(blocks), after, upto)])
    return recovery_pb2.FailureRecord(number=1, lost=[told])


def exactly_once(
    history: History, values: dict[str, np.ndarray], *ledger: recovery_pb2.FailureRecord
) -> None:
    no_surplus(JOB, history, ReportedLoss(ledger), values)


def no_surplus(job: Job, history: History, losses: ReportedLoss, values: dict[str, np.ndarray]) -> None:
    found = find_surplus(job, INITIAL, history, losses, values)
    assert not found, found[0].text


def test_right_values_are_accepted_with_and_without_the_open_push() -> None:
    history, values = past()
    exactly_once(history, values)
    values["rows"][ids(1, 2, 7)] += push_amount(WORKER, 4)
    exactly_once(history, values)


def test_what_a_verdict_has_found_out_stays_known() -> None:
    """The open push was in it, so it may not go without an epoch that loses it; nor may it come later."""
    history, without = past()
    values = {table: array.copy() for table, array in without.items()}
    values["rows"][ids(1, 2, 7)] += push_amount(WORKER, 4)
    seen, missed = SettledPushes(), SettledPushes()
    assert not find_surplus(JOB, INITIAL, history, ReportedLoss([]), values, seen)
    assert not find_surplus(JOB, INITIAL, history, ReportedLoss([]), without, missed)
    gone = find_surplus(JOB, INITIAL, history, ReportedLoss([]), without, seen)
    came = find_surplus(JOB, INITIAL, history, ReportedLoss([]), values, missed)
    assert [block.block for block in gone] == [block.block for block in came] == [1, 2, 7]
    group = BlockGroup("rows", ids(1, 2, 7), 3, former_owner=SHARDS[0].key, source=BlockSource.OBJECT)
    losses = ReportedLoss([], [epoch(1), epoch(2, moved=(group,), workers=())])
    assert not find_surplus(JOB, INITIAL, history, losses, without, seen)


def sixty_more(history: History) -> History:
    """Sixty workers left a push each of which nobody knows: too many ways to say."""
    pushes = [PushRecord(f"worker-{n}@{n:012x}", 1, 0, "rows", ids(1)) for n in range(60)]
    opened = [(2.0 + n, f"worker-{n}@{n:012x}", 0) for n in range(60)]
    return replace(history, pushes=[*history.pushes, *pushes], opened=[*history.opened, *opened])


def test_many_deaths_do_not_take_all_memory() -> None:
    history, values = past()
    exactly_once(sixty_more(history), values)
    values["rows"][1] += 1
    exactly_once(sixty_more(history), values)


def test_what_a_verdict_could_not_explain_is_not_known_afterwards() -> None:
    """An epoch has lost the open push, but there were too many ways to say what the value is made of."""
    history, without = past()
    values = {table: array.copy() for table, array in without.items()}
    values["rows"][ids(1, 2, 7)] += push_amount(WORKER, 4)
    known = SettledPushes()
    assert not find_surplus(JOB, INITIAL, history, ReportedLoss([]), values, known)
    group = BlockGroup("rows", ids(1, 2, 7), 3, former_owner=SHARDS[0].key, source=BlockSource.OBJECT)
    losses = ReportedLoss([], [epoch(1), epoch(2, moved=(group,), workers=())])
    unclear = {**without, "rows": without["rows"] + np.eye(1, len(without["rows"]), 1, dtype=np.int64)[0]}
    assert not find_surplus(JOB, INITIAL, sixty_more(history), losses, unclear, known)
    assert not find_surplus(JOB, INITIAL, history, losses, without, known)


@pytest.mark.parametrize(("sign", "fate"), [(1, "applied twice"), (-1, "acknowledged, yet missing")])
def test_wrong_sum_names_the_push(sign: int, fate: str) -> None:
    history, values = past()
    values["rows"][2] += sign * push_amount(WORKER, 2)
    with pytest.raises(AssertionError, match=rf"rows block 2 .*push 2 of {WORKER} .*{fate}"):
        exactly_once(history, values)


def test_books_must_agree_with_the_values() -> None:
    history, values = past()
    with pytest.raises(AssertionError, match="called lost, yet applied"):
        exactly_once(history, values, record(1, 2, 2))
    values["rows"][2] -= push_amount(WORKER, 2) + push_amount(WORKER, 3)
    exactly_once(history, values, record(1, 3, 2))


def test_a_block_that_moves_may_leave_out_a_repeated_clock_between_two_others() -> None:
    """Its new owner had finished clock 2 of the predecessor, and its former one nothing (seed 89)."""
    history, values = past()
    heir = "worker-0@dddddddddddd"
    history.opened.append((2.0, heir, 1))
    history.acknowledged[heir] = 5
    history.pushes += [PushRecord(heir, n, n, "rows", ids(9)) for n in (1, 2, 3)]
    values["rows"][9] += push_amount(heir, 1) + push_amount(heir, 3)
    group = BlockGroup("rows", ids(9), 3, former_owner=SHARDS[0].key, source=BlockSource.DONOR)
    worker = Member(Role.WORKER, *heir.split("@"))
    moved = epoch(3, moved=(group,), workers=(worker,))
    for epochs, wrong in (((moved,), [9]), ((epoch(2, workers=(worker,)), moved), [])):
        found = find_surplus(QUEUES, INITIAL, history, ReportedLoss([], epochs), values)
        assert [block.block for block in found] == wrong


def test_a_successor_s_repeated_clock_may_be_left_out_where_pushes_are_queued() -> None:
    history, values = past()
    heir = "worker-0@dddddddddddd"
    history.opened.append((2.0, heir, 3))
    history.acknowledged[heir] = 5
    history.pushes += [PushRecord(heir, 1, 3, "rows", ids(9)), PushRecord(heir, 2, 4, "rows", ids(9))]
    values["rows"][9] += push_amount(heir, 2)
    no_surplus(QUEUES, history, ReportedLoss([]), values)
    with pytest.raises(AssertionError, match="rows block 9"):
        exactly_once(history, values)
    values["rows"][9] += push_amount(heir, 1) - push_amount(heir, 2)
    with pytest.raises(AssertionError, match="rows block 9"):
        no_surplus(QUEUES, history, ReportedLoss([]), values)


def epoch(number: int, **changes: object) -> Epoch:
    workers = (Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa"),)
    return replace(Epoch(number, "author", JOB.name, SHARDS, workers, spread_blocks(JOB, 2)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clock", "workers", "excused"),
    [(2, (), True), (3, (), False), (2, (Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa"),), False)],
)
def test_only_a_dead_worker_need_not_report(clock: int, workers: tuple[Member, ...], excused: bool) -> None:
    """And only for what it pushed at the restored clock or later."""
    history, values = past()
    values["rows"][1] -= push_amount(WORKER, 3)
    group = BlockGroup("rows", ids(1), former_owner=SHARDS[0].key, source=BlockSource.OBJECT, clock=clock)
    losses = ReportedLoss([], [epoch(1), epoch(2, moved=(group,), workers=workers)])
    if excused:
        no_surplus(JOB, history, losses, values)
    else:
        with pytest.raises(AssertionError, match="yet missing"):
            no_surplus(JOB, history, losses, values)


def test_where_nobody_waits_a_dead_worker_takes_the_end_of_its_queue_along() -> None:
    """Its pushes are applied in order: what is missing is the end, never something in between."""
    job = replace(JOB, **{**strategy_options("stateless"), "checkpoint": Checkpoint(fraction=1.0, period=1)})
    losses = ReportedLoss([], [epoch(1), epoch(2, workers=())])
    history, values = past()
    values["rows"][ids(1, 2)] -= push_amount(WORKER, 3)
    values["rows"][6] = 0
    no_surplus(job, history, losses, values)
    with pytest.raises(AssertionError, match="acknowledged, yet missing"):
        no_surplus(JOB, history, losses, values)
    values["rows"][ids(1, 2)] += push_amount(WORKER, 3) - push_amount(WORKER, 1)
    with pytest.raises(AssertionError):
        no_surplus(job, history, losses, values)


def test_every_rollback_may_void_pushes_of_its_own() -> None:
    """One clock at each of two rollbacks never counted; all between them did."""
    pushes = [PushRecord(WORKER, n, n - 1, "rows", ids(1)) for n in range(1, 11)]
    pulls = [
        PullRecord(WORKER, clock, "rows", *[1 + (clock > 2) + (clock > 6)] * 2, np.zeros(24))
        for clock in range(10)
    ]
    history = History(pushes, pulls, acknowledged={WORKER: 10}, opened=[(1.0, WORKER, 0)])
    losses = ReportedLoss([], [epoch(1), epoch(2, rollback=True), epoch(3, rollback=True)])
    values = {table: array.copy() for table, array in INITIAL.items()}
    values["rows"][1] += sum(push.amount for push in pushes if push.clock not in (2, 6))
    no_surplus(JOB, history, losses, values)
    values["rows"][1] -= pushes[4].amount
    with pytest.raises(AssertionError, match="rows block 1"):
        no_surplus(JOB, history, losses, values)


def test_going_backwards_needs_a_restoring_epoch() -> None:
    high = np.full(24, 9)
    low = np.where(np.arange(24) == 5, 3, 9)
    pulls = [
        PullRecord(WORKER, clock, "rows", 1, after, values)
        for clock, after, values in ((0, 1, high), (1, 2, low))
    ]
    moved = BlockGroup("rows", ids(5), former_owner=SHARDS[0].key, source=BlockSource.OBJECT)
    checkers.never_backwards(History(pulls=pulls), [epoch(1), epoch(2, moved=(moved,))])
    for source in (replace(moved, source=BlockSource.DONOR), replace(moved, ids=ids(6))):
        with pytest.raises(AssertionError, match=r"blocks \[5\] go backwards"):
            checkers.never_backwards(History(pulls=pulls), [epoch(1), epoch(2, moved=(source,))])


def changed(block: int) -> dict[str, np.ndarray]:
    owners = {table: owner.copy() for table, owner in spread_blocks(JOB, 2).items()}
    owners["rows"][block] = 1 - owners["rows"][block]
    return owners


def test_epochs_that_are_right() -> None:
    group = BlockGroup("rows", ids(3), former_owner=SHARDS[0].key, source=BlockSource.DONOR)
    checkers.epochs_linear(JOB, [epoch(1), epoch(2, owners=changed(3), moved=(group,))])


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (epoch(3), r"epochs are \[1, 3\]"),
        (epoch(2, owners=changed(3)), r"moved rows blocks \[3\] silently"),
        (epoch(2, shards=SHARDS[:1]), "an owner that is no shard"),
        (epoch(2, fenced=("b" * 12,)), "fenced member"),
    ],
)
def test_epochs_that_are_wrong(second: Epoch, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        checkers.epochs_linear(JOB, [epoch(1), second])


def test_fences_may_not_be_forgotten() -> None:
    with pytest.raises(AssertionError, match="forgot a fence"):
        checkers.epochs_linear(JOB, [epoch(1, fenced=("d" * 12,)), epoch(2)])


def initial_array(table: Table) -> np.ndarray:
    every = np.arange(table.blocks, dtype=np.uint32)
    return np.asarray(table.initial(JOB.seed, every)).reshape(table.shape)


def test_torn_pairs_are_seen_in_both_rows() -> None:
    table = JOB.table(PAIRS)
    array = initial_array(table)
    array[4] += 3
    assert torn_blocks(table, array) == [], "first rows count"
    array[6, 1] += 1
    array[9] += 1
    assert torn_blocks(table, array) == [3, 4]


def test_torn_blocks_are_seen() -> None:
    numbers = count()
    for table in JOB.tables:
        array = initial_array(table)
        assert torn_blocks(table, array) == []
        array.reshape(-1)[-1] = next(numbers) + 1
        assert torn_blocks(table, array) == [table.blocks - 1]


def test_amounts_are_different_and_exact_in_float64() -> None:
    amounts = [push_amount(WORKER, push) for push in range(1, 2000)]
    assert len(set(amounts)) == len(amounts)
    assert sum(amounts) < 1 << 53


def test_an_epoch_that_a_worker_had_seen_before_excuses_nothing() -> None:
    pulls = [
        PullRecord(WORKER, 0, "rows", 2, 2, np.full(24, 9)),
        PullRecord(WORKER, 1, "rows", 2, 2, np.where(np.arange(24) == 5, 3, 9)),
    ]
    moved = BlockGroup("rows", ids(5), former_owner=SHARDS[0].key, source=BlockSource.OBJECT)
    with pytest.raises(AssertionError, match=r"blocks \[5\] go backwards"):
        checkers.never_backwards(History(pulls=pulls), [epoch(1), epoch(2, moved=(moved,))])


def test_a_job_has_the_name_that_it_is_given_and_no_options_of_the_workload() -> None:
    job = make_job("chaos-7-abc", slow={"1": 0.5}, pace=1.2, shards=3)
    assert (job.name, job.shards) == ("chaos-7-abc", 3)
