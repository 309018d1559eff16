"""A loss is never partial: what makes a whole, of which share a part is, and shards in every order of
marks and deaths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.errors import InvalidRequest
from scar.losses import LossPart, LossPoint, LossReport, combine_parts
from scar.placement import Epoch, Member, Role
from scar.wire import loss_messages
from scar_ps.core.barrier import PARTS_KEPT, Barrier


def epoch(number: int, *seats: str, dead: tuple[str, ...] = ()) -> Epoch:
    """Workers in rank order; the dead keep their seat."""
    workers = tuple(Member(Role.WORKER, name, "0") for name in seats if name not in dead)
    return Epoch(number, "recovery", "test", (), workers, {}, seats=seats if dead else ())


BOTH = epoch(1, "w0", "w1")
ALONE = epoch(2, "w0")


# --- what makes a whole
# ----------------------------------------------------------------------------------------------


def test_every_share_of_one_deal_once_in_any_order():
    parts = [LossPart(1e16, 0, 3), LossPart(1.0, 1, 3), LossPart(-1e16, 2, 3)]
    assert {combine_parts(7, order) for order in permutations(parts)} == {
        LossPoint(7, sum(part.loss for part in parts))
    }


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [LossPart(1.0, 0, 2)],  # the other one is missing
        [LossPart(1.0, 1, 1)],
        [LossPart(1.0, 0, 2), LossPart(1.0, 0, 2)],  # one twice
        [LossPart(1.0, 0, 1), LossPart(1.0, 1, 2)],  # of two deals
        [LossPart(1.0, 0, 2), LossPart(1.0, 1, 3)],
        [LossPart(1.0, 0, 2), LossPart(1.0, 1, 2), LossPart(1.0, 2, 2)],
        [LossPart(1.0, 0, 2, 50, 100, True), LossPart(1.0, 1, 2, 49, 100, True)],
        [LossPart(1.0, 0, 2, 50, 100, True), LossPart(1.0, 1, 2, 51, 100, True)],
        [LossPart(1.0, 0, 2, 50, 100, True), LossPart(1.0, 1, 2, 50, 99, True)],
        [LossPart(1.0, 0, 2, 50, 100, True), LossPart(1.0, 1, 2, 50, 100)],  # one counted, one not
        [LossPart(1.0, 0, 3, absent=(1,))],  # another one lives and has reported none
        # only one of them knows that it was dead before
        [LossPart(1.0, 0, 3, absent=(1,)), LossPart(1.0, 2, 3)],
        [LossPart(1.0, 0, 1 << 32, absent=())],
    ],
)
def test_no_loss_of_parts_that_are_no_whole(parts):
    assert combine_parts(0, parts) is None


def test_counted_examples_make_a_whole_whoever_has_them():
    assert combine_parts(3, [LossPart(1.0, 1, 2, 100, 100, True)]) == LossPoint(3, 1.0)
    assert combine_parts(
        3, [LossPart(1.0, 1, 2, 30, 100, True), LossPart(2.0, 0, 2, 70, 100, True)]
    ) == LossPoint(3, 3.0)


def test_a_dropped_share_is_named():
    left = [LossPart(1.0, 0, 4, absent=(1, 3)), LossPart(2.0, 2, 4, absent=(1, 3))]
    assert combine_parts(0, left) == LossPoint(0, 3.0, 0.5)
    assert combine_parts(0, left).scaled == 6.0
    dealt = [LossPart(1.0, 0, 2, 3, 10, absent=(1,))]
    assert combine_parts(0, dealt).fraction == 0.3
    assert combine_parts(0, [LossPart(1.0, 0, 2, 3, 10, True, (1,))]).fraction == 0.3


@pytest.mark.parametrize("examples", [0, 5])
def test_who_comes_back_within_a_clock_makes_no_other_loss_than_the_one_without_it(examples):
    counted = examples > 0
    stayed = LossPart(1.0, 0, 2, examples, 2 * examples, counted, absent=(1,))
    back = LossPart(2.0, 1, 2, examples, 2 * examples, counted)
    assert combine_parts(7, [stayed]) == LossPoint(7, 1.0, 0.5)  # a shard that closed the clock before
    assert combine_parts(7, [stayed, back]) is None


def test_parts_and_points_survive_the_wire():
    metrics = (("accuracy", 0.5), ("f1", 0.25))
    part = LossPart(0.5, 1, 4, 30, 100, True, (0, 2), metrics)
    point = LossPoint(9, 0.25, 0.75, metrics)
    assert loss_messages.part_from_proto(loss_messages.part_to_proto(part)) == part
    assert loss_messages.point_from_proto(loss_messages.point_to_proto(point)) == point


def test_metrics_are_summed_over_the_parts_that_have_them_and_come_with_a_whole_loss():
    first = LossPart(1.0, 0, 2, metrics=(("accuracy", 0.25), ("held out", 0.5)))
    second = LossPart(2.0, 1, 2, metrics=(("accuracy", 0.5),))
    expected = LossPoint(3, 3.0, metrics=(("accuracy", 0.75), ("held out", 0.5)))
    assert combine_parts(3, [second, first]) == expected
    assert combine_parts(3, [first]) is None


def test_what_is_logged_in_a_clock_goes_with_its_loss():
    report = LossReport("w0")
    report.add_metrics({"b": 1, "a": 0.5})
    report.add_metrics({"a": 0.25})
    with pytest.raises(InvalidRequest, match="b, a was logged without a loss"):
        report.make_part(BOTH, False)
    report.add_loss(2.0, None, None)
    part = report.make_part(BOTH, False)
    assert part is not None
    assert part.metrics == (("a", 0.75), ("b", 1.0))
    report.open_clock()
    assert reported(report, BOTH) == LossPart(1.0, 0, 2)
    with pytest.raises(InvalidRequest, match="no name of a metric"):
        report.add_metrics({"": 1.0})
    with pytest.raises(InvalidRequest, match="65 metrics"):
        report.add_metrics({f"m{number}": 1.0 for number in range(65)})
    assert reported(report, BOTH) == LossPart(1.0, 0, 2)


# --- of which share a worker's part is
# -------------------------------------------------------------------------------


def reported(report: LossReport, opened: Epoch, drops: bool = False) -> LossPart | None:
    report.add_loss(1.0, None, None)
    part = report.make_part(opened, drops)
    report.open_clock()
    return part


def test_a_share_that_was_dealt_once_stays_what_it_was():
    report = LossReport("w0")
    assert report.data_slice(BOTH, 11) == slice(0, 5)
    assert reported(report, BOTH) == LossPart(1.0, 0, 2, 5, 11)
    assert (report.read_rank(ALONE), report.read_world_size(ALONE)) == (0, 1)  # who prints?
    assert reported(report, ALONE) == LossPart(1.0, 0, 2, 5, 11)
    assert report.data_slice(ALONE, 11) == slice(0, 11)
    assert reported(report, ALONE) == LossPart(1.0, 0, 1, 11, 11)


def test_a_deal_lasts_a_clock():
    report = LossReport("w1")
    assert report.data_slice(BOTH, 10) == slice(5, 10)
    later = epoch(2, "w1")
    assert report.data_slice(later, 4) == slice(2, 4)
    assert (report.read_rank(later), report.read_world_size(later)) == (1, 2)
    assert reported(report, BOTH) == LossPart(1.0, 1, 2, 2, 4)
    assert report.data_slice(later, 10) == slice(0, 10)


def test_who_never_asks_has_the_share_of_the_epoch_in_which_the_clock_was_opened():
    report = LossReport("w1")
    assert reported(report, BOTH) == LossPart(1.0, 1, 2)
    assert reported(report, epoch(2, "w1")) == LossPart(1.0, 0, 1)
    assert reported(report, epoch(3, "w0")) is None  # not its own


def test_reading_the_world_deals_and_reading_the_rank_again_does_not():
    report = LossReport("w0")
    report.read_rank(BOTH)
    report.read_rank(ALONE)
    assert reported(report, ALONE) == LossPart(1.0, 0, 2)
    report = LossReport("w0")
    for where in (BOTH, ALONE):
        report.read_rank(where)
        report.read_world_size(where)
        assert reported(report, where) == LossPart(1.0, 0, len(where.ranks))


def test_rank_and_world_of_two_deals_are_no_share():
    report = LossReport("w0")
    report.read_rank(BOTH)
    report.read_world_size(ALONE)
    assert reported(report, ALONE) is None
    assert "inside the loop" in warned(report, epoch(3, "w0"))


def warned(report: LossReport, opened: Epoch) -> str:
    report.add_loss(1.0, None, None)
    said = report.warn_outdated(opened)
    report.open_clock()
    return said


def test_an_old_share_is_told_once_for_each_change_with_names():
    report = LossReport("w0")
    report.data_slice(BOTH, 10)
    assert warned(report, BOTH) == ""
    said = warned(report, ALONE)
    for word in ("w0", "w1", "share 1 of 2", "1 of 1", "worker.data_slice(n)"):
        assert word in said
    assert warned(report, ALONE) == ""
    assert warned(report, epoch(3, "w0", "w1")) == ""  # what it holds is right again
    assert "epoch 4" in warned(report, epoch(4, "w0", "w2", "w3"))
    report.data_slice(epoch(4, "w0"), 10)
    assert warned(report, epoch(4, "w0")) == ""


def test_examples_are_counted_and_need_a_total():
    report = LossReport("w0")
    with pytest.raises(InvalidRequest, match="of how many"):
        report.add_loss(1.0, 5, None)
    with pytest.raises(InvalidRequest, match="needs examples"):
        report.add_loss(1.0, None, 5)
    report.add_loss(1.0, 5, 10)
    report.add_loss(2.0, 3, 10)
    assert report.make_part(BOTH, False) == LossPart(3.0, 0, 2, 8, 10, True)
    for wrong in ((3, 10), (1, 11), (-1, 10), (None, None)):
        with pytest.raises(InvalidRequest):
            report.add_loss(1.0, *wrong)
    assert report.make_part(BOTH, False) == LossPart(3.0, 0, 2, 8, 10, True)  # a wrong call changes nothing
    report.open_clock()
    report.data_slice(BOTH, 10)
    report.add_loss(1.0, 4, None)
    assert report.make_part(BOTH, False) == LossPart(1.0, 0, 2, 4, 10, True)


def test_only_those_are_absent_who_were_dead_before_the_clock_and_whose_share_is_dropped():
    report, half = LossReport("w0"), epoch(2, "w0", "w1", dead=("w1",))
    report.data_slice(half, 10)
    assert reported(report, half, drops=True) == LossPart(1.0, 0, 2, 5, 10, absent=(1,))
    assert reported(report, half, drops=False) == LossPart(1.0, 0, 2, 5, 10)
    assert reported(report, BOTH, drops=True) == LossPart(1.0, 0, 2, 5, 10)


# --- one shard
# -------------------------------------------------------------------------------------------------------


def test_a_mark_given_again_brings_its_part_to_a_clock_that_is_closed():
    barrier = Barrier()
    barrier.mark_finished("w0", 1, 1, LossPart(1.0, 0, 2))
    barrier.close_clocks(1)
    assert barrier.last_loss is None
    barrier.mark_finished("w1", 1, 2, LossPart(2.0, 1, 2))
    assert barrier.last_loss == LossPoint(0, 3.0)


def test_the_newest_part_of_a_worker_counts_and_the_first_loss_of_a_clock_stays():
    barrier = Barrier()
    barrier.mark_finished("w0", 1, 1, LossPart(1.0, 0, 1))
    barrier.mark_finished("w0", 1, 2, LossPart(5.0, 0, 1))
    barrier.close_clocks(1)
    barrier.mark_finished("w0", 1, 3, LossPart(7.0, 0, 1))
    barrier.add_loss(LossPoint(0, 9.0))
    assert barrier.losses == {0: LossPoint(0, 5.0)}
    barrier.add_loss(LossPoint(4, 2.0))
    barrier.add_loss(LossPoint(2, 3.0))
    assert barrier.last_loss == LossPoint(4, 2.0)


@pytest.mark.parametrize(
    ("known", "since", "found"),
    [
        ([0, 1, 2, 3], 2, [2, 3]),
        ([3, 0, 1], 1, [1, 3]),  # in the order in which they became known
        ([900, 5], 5, [5, 900]),  # few, and far apart
        ([900, 5], 6, [900]),
        ([900, 5], 901, []),
        ([], 0, []),
        ([4], (1 << 64) - 1, []),
    ],
)
def test_losses_from_a_clock_on_ascend(known: list[int], since: int, found: list[int]):
    barrier = Barrier()
    for clock in known:
        barrier.add_loss(LossPoint(clock, 1.0))
    assert [loss.clock for loss in barrier.losses_from(since)] == found


def test_a_rollback_forgets_parts_and_memory_is_bounded():
    barrier = Barrier()
    barrier.mark_finished("w0", 1, 1, LossPart(1.0, 0, 2))
    barrier.drop_parts()
    barrier.mark_finished("w1", 1, 1, LossPart(2.0, 1, 2))
    barrier.close_clocks(1)
    assert barrier.losses == {}
    for clock in range(1, 3 * PARTS_KEPT):
        barrier.mark_finished("w0", clock + 1, 1, LossPart(1.0, 0, 2))
        barrier.close_clocks(clock + 1)
    barrier.mark_finished("w1", 10, 1, LossPart(1.0, 1, 2))
    barrier.mark_finished("w1", 3 * PARTS_KEPT, 1, LossPart(1.0, 1, 2))
    assert list(barrier.losses) == [3 * PARTS_KEPT - 1]


def test_who_asks_for_the_loss_of_a_clock_waits_for_parts_that_may_still_come():
    barrier = Barrier()
    assert barrier.awaited_parts(0, ["w0", "w1"]) == ["w0", "w1"]
    barrier.mark_finished("w0", 1, 1, None)
    assert barrier.awaited_parts(0, ["w0", "w1"]) == ["w1"]
    barrier.mark_finished("w1", 1, 1, None)
    assert barrier.awaited_parts(0, ["w0", "w1"]) == []
    barrier.add_loss(LossPoint(7, 1.0))
    assert barrier.awaited_parts(7, ["w0", "w1"]) == []


# --- all shards, in every order
# --------------------------------------------------------------------------------------

SHARDS, SHARES = 2, 24
NAMES = ("w0", "w1", "w2")


@dataclass
class Life:
    """One incarnation of a worker in synchronous training: its clock, and parts that wait for their mark."""

    name: str
    report: LossReport
    finished: int
    first_new: int
    opened: Epoch
    part: LossPart | None = None
    told: set[int] = field(default_factory=set)


class Scene:
    """Workers, shards and a coordinator; each shard and worker hears of an epoch when hypothesis says so.

    A share ``rank`` of ``world`` has ``SHARES / world`` unit losses, and the unit is another one for each
    clock and for each model that a part was computed from, so that no wrong sum looks like a right one.
    """

    def __init__(self, drops: bool, deals_once: bool) -> None:
        self.drops, self.deals_once = drops, deals_once
        self.epochs = [epoch(1, *NAMES)]
        self.shards = [Barrier() for _ in range(SHARDS)]
        self.known = [1] * SHARDS
        self.lives = {name: Life(name, LossReport(name), 0, 0, self.epochs[0]) for name in NAMES}
        self.clocks: dict[int, set[float]] = {}
        self.deals: dict[int, list[tuple[str, LossPart]]] = {}

    @property
    def now(self) -> Epoch:
        return self.epochs[-1]

    def follow(self, shard: int) -> None:
        if self.known[shard] < self.now.number:
            self.known[shard] += 1
            fresh = self.epochs[self.known[shard] - 1]
            for name in fresh.workers:
                self.shards[shard].mark_returned(name.name)
            self.advance(shard)

    def advance(self, shard: int) -> None:
        workers = [member.name for member in self.epochs[self.known[shard] - 1].workers]
        barrier = self.shards[shard]
        barrier.close_clocks(barrier.next_clock(workers, 0))

    def work(self, name: str) -> None:
        """Finish a clock: every shard has the mark before it, and every shard that is pulled from has
        opened it.
        """
        life = self.lives.get(name)
        if life is None or len(life.told) < SHARDS or any(one.clock < life.finished for one in self.shards):
            return
        if not (self.deals_once and life.finished > life.first_new):
            life.report.data_slice(self.now, SHARES)
        closed_somewhere = any(one.clock > life.finished for one in self.shards)
        life.report.add_loss(0.0, None, None)
        part = life.report.make_part(life.opened, self.drops)
        life.report.open_clock()
        if part is not None and life.finished >= life.first_new:
            assert not closed_somewhere, "a part of values that contain the clock already"
            unit = 1 + life.finished
            life.part = LossPart(
                unit * SHARES / part.world,
                part.rank,
                part.world,
                part.examples,
                part.total,
                False,
                part.absent,
            )
        else:
            life.part = None
        life.opened = self.now
        life.finished += 1
        life.told = set()

    def mark(self, name: str, shard: int) -> None:
        life = self.lives.get(name)
        if life is None or name not in {one.name for one in self.epochs[self.known[shard] - 1].workers}:
            return
        self.shards[shard].mark_finished(name, life.finished, self.known[shard], life.part)
        life.told.add(shard)
        self.advance(shard)

    def kill(self, name: str) -> None:
        if name in self.lives and len(self.lives) > 1:
            del self.lives[name]
            gone = tuple(one for one in NAMES if one not in self.lives)
            left = [one for one in self.now.ranks if one in self.lives]
            seats = self.now.ranks if self.drops else left
            self.epochs.append(epoch(self.now.number + 1, *seats, dead=gone if self.drops else ()))

    def restart(self, name: str) -> None:
        """All shards are asked first, so all follow; the new one begins where its predecessor was."""
        if name in self.lives:
            return
        seats = self.now.ranks if self.drops else (*self.now.ranks, name)
        gone = tuple(one for one in NAMES if one not in self.lives and one != name)
        self.epochs.append(epoch(self.now.number + 1, *seats, dead=gone if self.drops else ()))
        for shard in range(SHARDS):
            while self.known[shard] < self.now.number:
                self.follow(shard)
        reached = [max(barrier.clock, barrier.finished_clocks(name)) for barrier in self.shards]
        self.lives[name] = Life(name, LossReport(name), max(reached), max(reached), self.now)

    def check(self) -> None:
        found: dict[int, set[LossPoint]] = {}
        for barrier in self.shards:
            for clock, loss in barrier.losses.items():
                assert loss.loss == pytest.approx((1 + clock) * SHARES * loss.fraction), (
                    f"clock {clock}: {loss}"
                )
                assert loss.fraction == 1 or self.drops
                found.setdefault(clock, set()).add(loss)
        assert all(len(points) == 1 for points in found.values()), found


STEPS = st.one_of(
    st.tuples(st.just("work"), st.sampled_from(NAMES)),
    st.tuples(st.just("work"), st.sampled_from(NAMES)),
    st.tuples(st.just("mark"), st.sampled_from(NAMES), st.integers(0, SHARDS - 1)),
    st.tuples(st.just("mark"), st.sampled_from(NAMES), st.integers(0, SHARDS - 1)),
    st.tuples(st.just("mark"), st.sampled_from(NAMES), st.integers(0, SHARDS - 1)),
    st.tuples(st.just("follow"), st.integers(0, SHARDS - 1)),
    st.tuples(st.just("kill"), st.sampled_from(NAMES)),
    st.tuples(st.just("restart"), st.sampled_from(NAMES)),
)


@settings(max_examples=400, deadline=None)
@given(st.booleans(), st.booleans(), st.lists(STEPS, min_size=10, max_size=120))
def test_no_shard_ever_has_a_partial_loss_or_another_than_the_next(drops, deals_once, steps):
    scene = Scene(drops, deals_once)
    for name, *arguments in steps:
        getattr(scene, name)(*arguments)
        scene.check()
