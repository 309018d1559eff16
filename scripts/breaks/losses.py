"""Breaks of "a loss is never partial" (docs/protocol.md §4)."""

from __future__ import annotations

from scripts.breaks.kind import Break

CLIENT = "tests/component/test_client_losses.py"
CHAOS_REPORTED_LOSSES = "tests/unit/test_chaos_reported_losses.py"
LOSSES = "tests/unit/test_losses.py"
PS_LOSSES = "tests/unit/test_ps_losses.py"

BREAKS = (
    Break(
        "L-spoilt",  # the job went back to what had the poisoned push already, three times, and ended
        "services/scar_runtime/checkpoint/good_state.py",
        "max(1, clock - 1 - 2 * job.staleness)",
        "max(1, clock)",
        "tests/unit/test_good_state.py::test_under_ssp_blocks_of_earlier_clocks_may_have_what_spoilt_the_loss",
    ),
    Break(
        "room-for-parts",
        "services/scar_ps/core/barrier.py",
        "if clock not in self._parts and len(self._parts) >= PARTS_KEPT + OPEN_KEPT:",
        "if clock in self._parts and len(self._parts) >= PARTS_KEPT + OPEN_KEPT:",
        "tests/unit/test_ps_losses.py::test_parts_of_a_worker_that_is_far_ahead_take_bounded_memory",
    ),
    Break(
        "G11",
        "sdk/scar/losses.py",
        "    same = len(ranks) == world and all(",
        "    same = True or all(",
        f"{LOSSES}::test_no_loss_of_parts_that_are_no_whole",
    ),
    Break(
        "L1",
        "sdk/scar/losses.py",
        "part.world == world for part in parts",
        "True for part in parts",
        f"{LOSSES}::test_no_loss_of_parts_that_are_no_whole",
    ),
    Break(
        "L1",
        "sdk/scar/losses.py",
        "if {part.rank for part in ranked} & {rank for part in ranked for rank in part.absent}:",
        "if False:",
        f"{LOSSES}::test_who_comes_back_within_a_clock_makes_no_other_loss_than_the_one_without_it",
    ),
    Break(
        "L1",
        "sdk/scar/losses.py",
        "is_whole = covered == total > 0",
        "is_whole = total > 0",
        f"{LOSSES}::test_no_loss_of_parts_that_are_no_whole",
    ),
    Break(
        "L2",
        "services/scar_ps/core/barrier.py",
        "        if loss.clock in self.losses:\n            return\n",
        "",
        f"{LOSSES}::test_the_newest_part_of_a_worker_counts_and_the_first_loss_of_a_clock_stays",
    ),
    Break(
        "L2",
        "services/scar_ps/core/barrier.py",
        "        if clock < self.clock:\n",
        "        if False:\n",
        f"{LOSSES}::test_a_mark_given_again_brings_its_part_to_a_clock_that_is_closed",
    ),
    Break(
        "L3",
        "sdk/scar/losses.py",
        "rank for rank, name in enumerate(opened.ranks) if drops and name not in living",
        "rank for rank, name in enumerate(opened.ranks) if name not in living",
        f"{LOSSES}::test_only_those_are_absent_who_were_dead_before_the_clock_and_whose_share_is_dropped",
    ),
    Break(
        "L4",
        "services/scar_ps/core/epochs.py",
        "            state.barrier.drop_parts()\n",
        "",
        f"{PS_LOSSES}::test_a_rollback_voids_parts_that_wait",
    ),
    Break(
        "L4",
        "sdk/scar/_client/core/clocks.py",
        "        self.parts.clear()  #",
        "        pass  #",
        f"{CLIENT}::test_after_a_rollback_nobody_tells_what_was_computed_before",
    ),
    Break(
        "L5",
        "sdk/scar/_client/core/clocks.py",
        "counts = not self.is_void(epoch) and self.finished >= self._first_new",
        "counts = not self.is_void(epoch)",
        "tests/unit/test_worker_clocks.py::test_a_clock_that_is_done_again_has_no_second_part_in_its_loss",
    ),
    Break(
        "L6",
        "sdk/scar/_client/loss_listener.py",
        "    client.end_at_loss(loss)\n",
        "",
        f"{CLIENT}::test_who_ends_for_a_loss_tells_for_which",
    ),
    Break(
        "L7",
        "services/scar_ps/core/pushes.py",
        "        if missing:",
        "        if False:",
        f"{PS_LOSSES}::test_a_shard_that_came_later_answers_for_a_loss_when_it_has_heard_everybody",
    ),
    Break(
        "L8",
        "sdk/scar/training.py",
        "        if warning := self._report.warn_outdated(opened):\n",
        "        if warning := '':\n",
        f"{CLIENT}::test_an_old_share_is_told_aloud",
    ),
    Break(  # a late push is applied with a clock that nobody closes any more
        "late-end",
        "sdk/scar/_client/core/push_state.py",
        "push.needed_clock for push in pushes",
        "push.clock for push in pushes",
        "tests/component/test_client_failures.py::test_leaving_finishes_the_clock_that_a_late_push_joins",
    ),
    Break(
        "L9",
        "sdk/scar/_client/client.py",
        'self.pushes.wait_until(self.state.is_acknowledged, deadline, "pushes to be acknowledged")\n'
        "        with",
        "with",
        f"{CLIENT}::test_who_leaves_leaves_no_mark_out",
    ),
    Break(
        "L10",
        "services/scar_cli/demo/report.py",
        "if found and twin and found < twin]",
        "if found and twin and found < 0]",
        "tests/unit/test_demo_report.py::test_rework_below_zero_is_found",
    ),
    Break(
        "L11",
        "services/scar_chaos/oracles/reported_losses.py",
        "            point.loss in sums,",
        "            True,",
        f"{CHAOS_REPORTED_LOSSES}::test_a_partial_loss_is_found",
    ),
    Break(
        "L11",
        "services/scar_chaos/oracles/reported_losses.py",
        "require(point == other,",
        "require(True,",
        f"{CHAOS_REPORTED_LOSSES}::test_two_values_for_one_clock_are_found",
    ),
    Break(
        "L11",
        "services/scar_chaos/oracles/reported_losses.py",
        "        newest >= reached - 1 - CALM,\n",
        "        True,\n",
        f"{CHAOS_REPORTED_LOSSES}::test_a_job_that_stays_without_losses_is_found",
    ),
    Break(
        "L12",
        "sdk/scar/losses.py",
        "        self._dealt = self._dealt or epoch\n",
        "        self._dealt = epoch\n",
        "tests/unit/test_losses.py::test_a_deal_lasts_a_clock",
    ),
    Break(
        "L13",
        "experiments/convergence.py",
        "if not math.isnan(loss)]",
        "]",
        "tests/unit/test_experiments_recovery_trials.py::test_a_passage_goes_over_iterations_without_a_loss",
    ),
    Break(
        "L14",
        "examples/mlr.py",
        "    for _ in worker.clocks(limit=300, until=0.6):\n"
        "        x, y = data.examples(worker.data_slice(len(data)))",
        "    x, y = data.examples(worker.data_slice(len(data)))\n"
        "    for _ in worker.clocks(limit=300, until=0.6):",
        "tests/system/test_losses.py::test_the_example_ends_at_its_true_loss",
    ),
    Break(  # the oracle of chaos runs sees it
        "L15",
        "sdk/scar/losses.py",
        "    if is_whole:",
        "    if True:",
        "tests/system/test_worker_strategies.py::test_nobody_waits_for_an_ignored_worker",
    ),
    Break(
        "metrics-of-one",
        "sdk/scar/losses.py",
        "sums[name] = sums.get(name, 0.0) + value",
        "sums[name] = value",
        "tests/unit/test_losses.py::test_metrics_are_summed_over_the_parts_that_have_them_and_come_with_a_whole_loss",
    ),
    Break(
        "metrics-stay",
        "sdk/scar/losses.py",
        "        self._metrics: dict[str, float] = {}\n        self._examples",
        "        self._metrics = getattr(self, '_metrics', {})\n        self._examples",
        "tests/unit/test_losses.py::test_what_is_logged_in_a_clock_goes_with_its_loss",
    ),
)
