"""What a coordinator chooses within a budget, held to the costs that it minimises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar.checkpoints import Checkpoint, CheckpointBudget
from scar.errors import ConfigError
from scar.placement import BlockGroup, BlockSource
from scar.tables import Job, Table
from scar.wire.codec import job_from_proto, job_to_proto
from scar_checkpoint.core.events import AbandonRound, MeasureDistances
from scar_checkpoint.core.round_policy import LEARNED, PRIOR_SECONDS, RoundPolicy
from scar_checkpoint.core.round_schedule import RoundSchedule
from scar_checkpoint.core.rounds import ActiveRound
from scar_runtime.checkpoint.manifest import ObjectRef
from tests.unit.checkpoint_play import A, Play, epoch_of

BLOCKS = 1000


def job(shards: int = 4, **budget: float) -> Job:
    return Job("job", [Table("w", (BLOCKS,))], shards=shards, checkpoint=Checkpoint.auto(**budget))


class PolicyPlay:
    """Rounds that cost what these numbers say. ``clock``: seconds of one; ``stall``, ``written``: seconds and
    bytes of a sweep; ``seconds``: from a round's begin to its end.
    """

    def __init__(
        self, job: Job, clock: float = 0.05, stall: float = 0.02, written: float = 1e7, seconds: float = 0.01
    ) -> None:
        self.policy = RoundPolicy(job)
        self.job, self.clock, self.stall, self.written, self.seconds = job, clock, stall, written, seconds
        self.now, self.at = 50.0, 0

    def play(self, rounds: int = 20) -> None:
        for number in range(1, rounds + 1):
            plan = self.policy.plan
            assert plan is not None
            self.at += plan.every
            self.now += plan.every * self.clock
            blocks = max(1, round(plan.fraction * BLOCKS))
            share = blocks / BLOCKS
            ref = ObjectRef(f"objects/{number}", round(share * self.written), 10, A.key, 1, number, blocks)
            current = ActiveRound(number, "priority", plan.fraction, self.at, None, {A.key: A})
            current.clocks = {A.key: self.at}
            current.saved = {A.key: (ref, None)}  # type: ignore[dict-item]  # nobody reads its header
            current.copy_seconds = share * self.stall
            current.answered_at = self.now
            self.policy.record_round(current, self.now + self.seconds)

    def fail(self, epoch: int, share: float = 0.25, source: BlockSource = BlockSource.OBJECT) -> None:
        group = BlockGroup("w", np.arange(share * BLOCKS, dtype=np.uint32), source=source)
        self.policy.record_epoch(epoch_of(epoch, A, cause="failure", moved=(group,)))

    @property
    def sweep(self) -> float:
        """Seconds in which as many blocks are saved as there are."""
        plan = self.policy.plan
        assert plan is not None
        return plan.every * self.clock / plan.fraction

    def cost(self, sweep: float, rate: float) -> float:
        """Of a second of training; ``rate``: share of all blocks that is lost in one."""
        return self.stall / sweep + rate * sweep / 2


@pytest.mark.parametrize("stall", [1e-4, 2e-3, 0.05])
@pytest.mark.parametrize("failures", [0, 3, 30])
def test_without_a_narrow_budget_it_costs_least(stall: float, failures: int) -> None:
    play = PolicyPlay(job(stall_share=1.0), stall=stall)
    play.play(5)
    for number in range(failures):
        play.fail(10 + number)
    play.play(40)
    plan = play.policy.plan
    assert plan is not None
    rate = (0.25 * failures + 0.25) / (plan.seconds + PRIOR_SECONDS)
    best = min(play.cost(sweep, rate) for sweep in np.geomspace(0.1, 600, 2000))
    assert play.cost(play.sweep, rate) <= 1.03 * best, (play.sweep, plan)
    assert (plan.failures, plan.lost) == (failures, pytest.approx(0.25 * failures))


@pytest.mark.parametrize("share", [0.0005, 0.003, 0.02])
@pytest.mark.parametrize("clock", [0.002, 0.05, 3.0])
def test_the_budget_of_stall_holds(share: float, clock: float) -> None:
    play = PolicyPlay(job(stall_share=share), clock=clock, stall=0.3)
    for number in range(50):
        play.fail(number + 2)
    play.play(60)
    assert play.stall / play.sweep <= 1.26 * share  # a plan stays while it is nearly right
    assert play.policy.plan is not None
    assert "budget" in play.policy.plan.reason or play.stall / play.sweep < share


def test_the_budget_of_bytes_holds() -> None:
    play = PolicyPlay(job(stall_share=1.0, bytes_per_second=1e5), written=1e8)
    play.play()
    assert play.written / play.sweep <= 1.26e5
    assert play.policy.plan is not None
    assert "1e+05 bytes a second" in play.policy.plan.reason


def test_a_round_is_over_before_the_next() -> None:
    play = PolicyPlay(job(stall_share=1.0), clock=0.01, stall=1e-5, seconds=0.4)
    play.play(40)
    assert play.policy.plan is not None
    assert play.policy.plan.every * play.clock >= 0.79
    assert play.policy.plan.fraction <= 1


def test_a_round_waits_for_no_clock_that_has_become_far_slower() -> None:
    schedule = RoundSchedule(job())
    play = PolicyPlay(job())
    play.policy = schedule._policy
    play.play()
    plan = play.policy.plan
    assert plan is not None
    assert plan.every > 10
    schedule.due_clock = play.at + plan.every
    meant = plan.every * play.clock
    assert not schedule.hasten(play.now + 1.9 * meant)
    assert schedule.due_clock == play.at + plan.every
    assert schedule.hasten(play.now + 2.1 * meant)
    assert schedule.due_clock == play.at + 1, "or at the first clock after the last round"
    assert not schedule.hasten(play.now + 9 * meant), "it waits for that one already"


def test_a_waiting_round_is_begun_anew_when_it_is_overdue() -> None:
    budget = Checkpoint.auto(bytes_per_second=10)
    play = Play(Job("job", [Table("w", (12,))], checkpoint=budget))
    for clock in range(1, LEARNED + 3):
        play.now += 0.1
        play.round(clock=clock)
    waiting = play.take(MeasureDistances)
    assert {one.min_clock for one in waiting} == {play.core.schedule.due_clock}
    assert play.core.schedule.due_clock > clock + 50
    play.later(10.0)
    assert not play.take(MeasureDistances)
    play.later(1000.0)  # a clock takes many times as long now
    again = play.take(MeasureDistances)
    assert {one.min_clock for one in again} == {clock + 1}
    assert {one.round for one in play.take(AbandonRound)} >= {one.round for one in waiting}
    play.later(1000.0)
    assert not play.take(MeasureDistances), "asked once"


def test_more_failures_mean_younger_copies() -> None:
    quiet, loud = PolicyPlay(job()), PolicyPlay(job())
    quiet.play()
    for number in range(20):
        loud.fail(number + 2)
    loud.play()
    assert loud.sweep < quiet.sweep / 2


def test_blocks_that_come_back_as_they_were_are_no_loss() -> None:
    play = PolicyPlay(job())
    for number, source in enumerate((BlockSource.REPLICA, BlockSource.WORKER, BlockSource.DONOR)):
        play.fail(number + 2, source=source)
    play.play()
    assert play.policy.plan is not None
    assert (play.policy.plan.failures, play.policy.plan.lost) == (0, 0.0)


def test_a_full_checkpoint_stays_whole() -> None:
    full = replace(job(), recovery="full", checkpoint=Checkpoint.auto(selection="full"))
    play = PolicyPlay(full)
    play.play()
    assert play.policy.plan is not None
    assert play.policy.plan.fraction == 1.0
    assert play.policy.plan.every > 8


def test_a_successor_goes_on_with_what_was_seen() -> None:
    play = PolicyPlay(job())
    play.fail(5)
    play.play()
    plan = play.policy.plan
    after = PolicyPlay(job())
    assert plan is not None
    after.policy.resume(plan, 5, 40, 1000.0)
    assert after.policy.plan == plan
    meant = plan.every * play.clock
    assert after.policy.overdue_clock(1000.0 + 1.9 * meant) is None
    assert after.policy.overdue_clock(1000.0 + 2.1 * meant) == 41
    after.fail(5)
    after.fail(6)
    after.play(LEARNED + 1)
    assert after.policy.plan is not None
    assert after.policy.plan.failures == 2, "epoch 5 was counted by the one before"
    assert after.policy.plan.seconds > plan.seconds


def test_without_a_budget_nothing_is_chosen() -> None:
    policy = RoundPolicy(Job("job", [Table("w", (BLOCKS,))]))
    policy.resume(PolicyPlay(job()).policy.plan, 1, 1, 0.0)
    assert policy.plan is None


def test_a_round_saves_what_was_chosen_and_its_manifest_says_so() -> None:
    auto = Job("job", [Table("w", (12,))], checkpoint=Checkpoint.auto())
    play = Play(auto)
    play.round(clock=1)
    manifest = play.core.chain.running.manifest
    assert manifest.plan is not None
    assert manifest.plan.reason == "it begins as the job says, until 3 rounds are measured"
    for clock in range(2, 9):
        play.now += 60.0
        play.round(clock=clock)
    plan = play.core.chain.running.manifest.plan
    assert plan is not None
    assert "all blocks once in" in plan.reason
    assert play.core.schedule.due_clock == play.core.chain.running.manifest.clock + plan.every


def test_a_budget_travels_with_the_job() -> None:
    auto = job(stall_share=0.02, bytes_per_second=5e6)
    assert job_from_proto(job_to_proto(auto)).checkpoint == auto.checkpoint
    fixed = replace(auto, checkpoint=Checkpoint())
    assert job_from_proto(job_to_proto(fixed)).checkpoint.budget is None


@pytest.mark.parametrize(("share", "rate"), [(0.0, 0.0), (1.5, 0.0), (0.1, -1.0), (0.1, float("nan"))])
def test_an_impossible_budget_is_refused(share: float, rate: float) -> None:
    with pytest.raises(ConfigError):
        CheckpointBudget(share, rate)


def test_a_strategy_that_saves_without_a_pause_has_nothing_to_choose() -> None:
    with pytest.raises(ConfigError, match="rounds that save all"):
        replace(job(), consistency="asp", recovery="stateless")
