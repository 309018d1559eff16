"""Slips that a tired engineer might make in the checkpoint coordinator.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

COMMIT = "tests/unit/test_checkpoint_commit.py"
COMPACTOR = "tests/unit/test_checkpoint_compactor.py"
COORDINATOR = "tests/unit/test_checkpoint_coordinator.py"
EPOCHS = "tests/unit/test_checkpoint_epochs.py"
POLICY = "tests/unit/test_checkpoint_round_policy.py"
ROUND_DRIVER = "tests/component/test_round_driver.py"

BREAKS = (
    # --- the checkpoint coordinator
    # --------------------------------------------------------------------------------------
    Break(
        "cp-turn",
        "services/scar_checkpoint/core/coordinator.py",
        "choose_blocks(current, self.job, self.chain.number + 1)",
        "choose_blocks(current, self.job, self.chain.number)",
        f"{COORDINATOR}::test_round_robin_goes_on_where_the_last_committed_round_ended",
    ),
    Break(
        "cp-unread-saved",
        "services/scar_checkpoint/core/round_schedule.py",
        "bool(running.passed_over or running.unreadable)",
        "False",
        f"{COMMIT}::test_what_shards_take_for_saved_and_nobody_can_read_is_saved_again_by_rounds_of_all",
    ),
    Break(
        "cp-unread-missed",
        "services/scar_checkpoint/core/round_schedule.py",
        "self.saves_all and bool(current.missed)",
        "False",
        f"{COMMIT}::test_what_shards_take_for_saved_and_nobody_can_read_is_saved_again_by_rounds_of_all",
    ),
    Break(
        "cp-repeat-awaited",
        "services/scar_checkpoint/core/round_schedule.py",
        "self._unless_awaited(max(current.clocks.values()) + 1)",
        "max(current.clocks.values()) + 1",
        f"{COMMIT}::test_what_cannot_be_read_keeps_no_acknowledgement_waiting_for_a_clock",
    ),
    Break(
        "cp-rewrite-newer",
        "services/scar_runtime/checkpoint/running_checkpoint.py",
        "(replaced[self._source[table]] != stands[after._source[table]]).any()",
        "(replaced[self._source[table]] & ~stands[after._source[table]]).any()",
        "tests/unit/test_running.py::test_compaction_brings_nothing_back_that_a_recovery_went_behind",
    ),
    Break(
        "cp-waits-forever",
        "services/scar_checkpoint/round_driver.py",
        "return self._patience.read(self._store, self._job, load), number",
        "return load(), number",
        f"{ROUND_DRIVER}::test_where_nothing_can_be_read_for_long_it_goes_on_from_nothing",
    ),
    Break(
        "cp-settled",
        "services/scar_checkpoint/core/rounds.py",
        "        if self.settled:\n",
        "        if True:\n",
        f"{COORDINATOR}::test_a_round_that_finds_all_blocks_being_loaded_says_so",
    ),
    Break(
        "cp-wrong-owner",
        "services/scar_checkpoint/core/rounds.py",
        "if found is not None and found[0].owner != shard:",
        "if False:",
        f"{COORDINATOR}::test_a_foreign_object_is_not_accepted",
    ),
    Break(
        "cp-late",
        "services/scar_checkpoint/core/rounds.py",
        "early = self.answered_at is None or now < self.answered_at + LATE",
        "early = True",
        f"{COORDINATOR}::test_after_the_others_have_answered_a_refusal_is_final_soon",
    ),
    Break(
        "cp-rolled-back",
        "services/scar_checkpoint/core/round_schedule.py",
        "self.due_clock = min(self.due_clock, self._next_clock(epoch.clock))",
        "pass",
        f"{EPOCHS}::test_a_rollback_voids_the_round_and_sets_the_clock_back",
    ),
    Break(
        "cp-sealed-for",  # between the copy and the epoch, a round brought back what the epoch took back
        "services/scar_checkpoint/core/coordinator.py",
        "is_late = self.epoch.number < self.chain.running.manifest.sealed_for",
        "is_late = False",
        f"{COMMIT}::test_no_round_follows_a_copy_before_the_epoch_that_it_was_made_for",
    ),
    Break(
        "cp-own-manifest",
        "services/scar_checkpoint/core/coordinator.py",
        "manifest.author == self._author and manifest.round == event.round:",
        "manifest.author == self._author:",
        f"{COMMIT}::test_an_older_put_of_ours_that_arrived_late_becomes_the_parent",
    ),
    Break(
        "cp-full",
        "services/scar_checkpoint/core/manifest_chain.py",
        "full = whole and (",
        "full = whole or (",
        f"{COORDINATOR}::test_a_round_goes_from_distances_to_finish",
    ),
    Break(
        "cp-pool-error",
        "services/scar_checkpoint/round_driver.py",
        "            self._error = done.exception() or self._error\n",
        "            pass\n",
        "tests/component/test_round_driver.py::test_what_is_read_wrongly_ends_the_term_loudly",
    ),
    Break(
        "cp-read-again",
        "services/scar_checkpoint/core/takeover.py",
        "        self._read_at = now + RETRY_SECONDS",
        "        self._read_at = None",
        f"{COORDINATOR}::test_a_leader_reads_the_checkpoint_until_the_store_lets_it",
    ),
    Break(
        "cp-told",
        "services/scar_checkpoint/core/events.py",
        "kept = {ref.owner: ref.key for ref, _ in current.objects} if summary.manifest else {}",
        "kept = {ref.owner: ref.key for ref, _ in current.objects}",
        f"{COMMIT}::test_behind_another_coordinators_manifest_the_round_fails_and_we_go_on_from_it",
    ),
    Break(
        "cp-backoff",
        "services/scar_checkpoint/core/round_schedule.py",
        '        self._failures = 0\n        self.problem = ""\n',
        '        self.problem = ""\n',
        f"{EPOCHS}::test_after_a_round_that_worked_a_failure_waits_as_short_as_the_first_one",
    ),
    Break(
        "cp-garbage",
        "services/scar_checkpoint/core/retention.py",
        "<= newest.round",
        "<= newest.round + 1",
        f"{COMPACTOR}::test_garbage_is_never_what_a_remaining_manifest_names_or_a_coming_one_may_name",
    ),
    Break(
        "cp-window",
        "services/scar_checkpoint/core/retention.py",
        "set(readable[-keep:])",
        "set(readable[:keep])",
        f"{COMPACTOR}::test_a_job_that_rolls_back_keeps_its_newest_consistent_manifest",
    ),
    Break(
        "cp-protected",
        "services/scar_checkpoint/garbage_collector.py",
        " | (protected & set(existing))",
        "",
        f"{COMPACTOR}::test_the_last_manifests_stay_restorable_and_the_rest_goes_after_its_grace",
    ),
    Break(
        "cp-grace",
        "services/scar_checkpoint/garbage_collector.py",
        ">= self._grace",
        ">= 0",
        f"{COMPACTOR}::test_the_last_manifests_stay_restorable_and_the_rest_goes_after_its_grace",
    ),
    Break(
        "cp-cancelled",
        "services/scar_checkpoint/shard_calls.py",
        "            future.cancel()\n",
        "            pass\n",
        f"{ROUND_DRIVER}::test_calls_of_a_round_that_is_over_are_cancelled_and_those_of_others_go_on",
    ),
    Break(
        "cp-resigned",
        "services/scar_checkpoint/round_driver.py",
        "                waiting.set_result(RoundSummary(0, error=RESIGNED))\n",
        "                pass\n",
        f"{ROUND_DRIVER}::test_who_asked_for_a_round_that_was_never_begun_hears_of_the_end",
    ),
    Break(
        "cp-budget",
        "services/scar_checkpoint/core/round_policy.py",
        "typical.stall / self._budget.stall_share,",
        "typical.stall * self._budget.stall_share,",
        f"{POLICY}::test_the_budget_of_stall_holds",
    ),
    Break(
        "cp-recount",  # a successor counts failures that its predecessor has counted
        "services/scar_checkpoint/core/round_policy.py",
        "        self._counted = max(self._counted, epoch)\n",
        "",
        f"{POLICY}::test_a_successor_goes_on_with_what_was_seen",
    ),
    Break(
        "ck-seal-no-problem",  # each recovery that met a round under way showed a problem
        "services/scar_checkpoint/core/coordinator.py",
        "if manifest.sealed_for:",
        "if False:",
        "tests/unit/test_checkpoint_commit.py"
        "::test_no_round_follows_a_copy_before_the_epoch_that_it_was_made_for",
    ),
)
