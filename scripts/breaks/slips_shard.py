"""Slips that a tired engineer might make in the shard: what its tests have to notice.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_APPLY_THREAD = "tests/unit/test_ps_apply_thread.py"
ROUND = "tests/unit/test_ps_checkpoint_round.py"
SNAPSHOT = "tests/unit/test_block_snapshot.py"
PS_MIGRATION = "tests/unit/test_ps_migration.py"
PS_OWNERSHIP = "tests/unit/test_ps_ownership.py"
PS_PUSH_DECODER = "tests/unit/test_ps_push_decoder.py"
PS_SERVICE = "tests/component/test_ps_service.py"
PS_SHARD = "tests/unit/test_ps_shard.py"
PS_UPDATE_RULES = "tests/unit/test_ps_update_rules.py"
TORCH_RULES = "tests/unit/test_torch_rules.py"

BREAKS = (
    Break(
        "schedule-in-bsp",
        "services/scar_ps/core/clocks.py",
        "rule = store.table.rule.at_clock(clock)",
        "rule = store.table.rule.at_clock(0)",
        "tests/unit/test_schedules.py::test_a_closed_clock_has_its_own_rate_and_a_late_push_that_of_the_clock_it_joins",
    ),
    Break(
        "schedule-phases",
        "sdk/scar/schedules.py",
        "Phase(start + phase.start, phase.kind, phase.parameters)",
        "Phase(start + phase.start, phase.kind, one.phases[0].parameters)",
        "tests/unit/test_torch_schedules.py::test_a_schedule_is_torchs_scheduler",
    ),
    Break(
        "ps-marks",
        "services/scar_ps/core/barrier.py",
        "mark.epoch >= since",
        "mark.epoch > since",
        f"{PS_SHARD}::test_duplicates_in_any_interleaving_are_applied_once",
    ),
    Break(
        "ps-done",
        "services/scar_ps/core/barrier.py",
        "min(min(counted), self._reached)",
        "min(counted)",
        f"{PS_SHARD}::test_workers_that_are_done_hold_nobody_up",
    ),
    Break(
        "ps-gap",
        "services/scar_ps/core/push_sequences.py",
        "if seq > last + 1:",
        "if seq > last + 2:",
        f"{PS_SHARD}::test_a_gap_is_out_of_order_and_changes_nothing",
    ),
    Break(
        "ps-returned",
        "services/scar_ps/core/barrier.py",
        "self._marks[worker].done = False",
        "pass",
        f"{PS_SHARD}::test_a_worker_that_left_and_came_back_is_waited_for_again",
    ),
    Break(
        "ps-settle",
        "services/scar_ps/core/clocks.py",
        "if since <= gained and",
        "if since < gained and",
        f"{PS_OWNERSHIP}::test_a_new_shard_waits_for_workers_that_were_there_before_it",
    ),
    Break(
        "ps-replaced",
        "services/scar_ps/core/epochs.py",
        "        self._admission.drop_replaced()\n",
        "",
        f"{PS_MIGRATION}::test_what_a_dead_worker_had_not_finished_is_done_anew_and_counts_once",
    ),
    Break(
        "ps-late",
        "services/scar_ps/core/clocks.py",
        "if state.bsp_buffer.any_late:",
        "if False:",
        f"{PS_OWNERSHIP}::test_nothing_settles_before_what_joins_a_later_clock_is_applied",
    ),
    Break(
        "ps-frozen",
        "services/scar_ps/core/clocks.py",
        "if state.ownership.any_frozen or state.is_stalled:",
        "if state.is_stalled:",
        f"{PS_OWNERSHIP}::test_bsp_clocks_stay_open_while_something_is_frozen",
    ),
    Break(
        "ps-rollback",
        "services/scar_ps/core/epochs.py",
        "            state.sequences.watermark.clear()\n",
        "",
        f"{PS_OWNERSHIP}::test_a_rollback_replaces_every_value_and_drops_what_was_pending",
    ),
    Break(
        "ps-unsealed",
        "services/scar_ps/core/bsp_buffer.py",
        "kept.sender == sender or kept.clock < first",
        "kept.sender == sender or kept.clock <= first",
        f"{PS_SHARD}::test_a_new_incarnation_inherits_the_mark_and_drops_what_was_not_sealed",
    ),
    Break(
        "ps-inherited",
        "services/scar_ps/core/bsp_buffer.py",
        "                max(one.clock, clock),\n",
        "                one.clock,\n",
        f"{PS_MIGRATION}::test_a_state_on_which_training_waits_is_not_changed_by_what_comes_along",
    ),
    Break(
        "ps-copy-twice",
        "services/scar_ps/core/bsp_buffer.py",
        "kept.parts = kept.without_blocks(blocks)",
        "pass",
        f"{PS_MIGRATION}::test_a_living_worker_sends_it_again_and_it_counts_once",
    ),
    Break(
        "ps-freeze",
        "services/scar_ps/core/ownership.py",
        "if (part.store.loading[at] > 0).any() or part.store.unsettled[at].any():",
        "if (part.store.loading[at] > 0).any():",
        f"{PS_OWNERSHIP}::test_blocks_that_may_miss_a_push_are_not_frozen",
    ),
    Break(
        "ps-overtaken",
        "services/scar_ps/core/ownership.py",
        "if base and all(own.get(",
        "if base and any(own.get(",
        f"{PS_OWNERSHIP}::test_a_base_watermark_stays_until_the_pushes_of_every_worker_have_overtaken_it",
    ),
    Break(
        "ps-aside",
        "services/scar_ps/core/ownership.py",
        "and incoming.epoch == epoch.number - 1",
        "and incoming.epoch <= epoch.number",
        f"{PS_OWNERSHIP}::test_blocks_that_were_not_received_for_this_epoch_are_a_bug",
    ),
    Break(
        "ps-slots",
        "services/scar_ps/core/block_store.py",
        "                getattr(new, name)[target] = known\n",
        "                getattr(new, name)[: len(known)] = known\n",
        "tests/unit/test_block_memory.py::test_what_is_known_of_a_block_goes_with_it",
    ),
    Break(
        "ps-uploaded",
        "services/scar_ps/core/checkpoint_round.py",
        "kept = committed and self.stage is ShardRoundStage.UPLOADED",
        "kept = committed",
        f"{ROUND}::test_a_failed_round_gives_the_distances_back",
    ),
    Break(
        "ps-put-back",
        "services/scar_ps/core/checkpoint_round.py",
        "        self._drop_copy()\n        while self.install_piece",
        "        while self.install_piece",
        f"{SNAPSHOT}::test_a_copy_that_is_given_up_costs_no_later_push_anything",
    ),
    Break(
        "ps-copy-on-write",
        "services/scar_ps/core/update_rules.py",
        "            observer.preserve_rows(run)\n",
        "            pass\n",
        f"{SNAPSHOT}::test_a_copy_is_of_the_moment_at_which_it_was_begun_whatever_is_pushed_between_its_pieces",
    ),
    Break(
        "ps-copied-twice",
        "services/scar_ps/core/block_snapshot.py",
        "        missing = ~self._copied[packed]\n",
        "        missing = np.ones(len(packed), np.bool_)\n",
        f"{SNAPSHOT}::test_a_copy_is_of_the_moment_at_which_it_was_begun_whatever_is_pushed_between_its_pieces",
    ),
    Break(
        "ps-half-copied",
        "services/scar_ps/core/checkpoint_round.py",
        "        if self.stage is not ShardRoundStage.COPIED or copied",
        "        if copied",
        f"{SNAPSHOT}::test_nothing_is_durable_before_all_of_it_is_copied",
    ),
    Break(
        "ps-committed",
        "services/scar_ps/core/checkpoint_round.py",
        "        if part.store is store:\n",
        "        if False:\n",
        f"{SNAPSHOT}::test_what_is_committed_counts_as_saved_before_all_of_it_is_in_its_place",
    ),
    Break(
        "ps-forget-committed",
        "services/scar_ps/core/epochs.py",
        "            state.round.forget_committed()\n",
        "",
        f"{SNAPSHOT}::test_what_a_damaged_manifest_held_does_not_come_back_as_saved",
    ),
    Break(
        "ps-origin",
        "services/scar_ps/core/block_snapshot.py",
        "BlockSnapshot(store, positions[origins == origin], allocate)",
        "BlockSnapshot(store, positions, allocate)",
        f"{ROUND}"
        "::test_restored_blocks_are_saved_under_a_watermark_of_their_own_until_the_shards_overtakes_it",
    ),
    Break(
        "ps-saved-key",
        "services/scar_ps/round_runner.py",
        "repeated = (epoch, number) <= self._last",
        "repeated = False",
        f"{PS_SERVICE}::test_a_saved_block_comes_back_with_its_optimizer_state_on_another_shard",
    ),
    Break(
        "ps-saved-again",
        "services/scar_ps/round_runner.py",
        "            self._replies = {key: reply}\n",
        "            pass\n",
        f"{PS_SERVICE}::test_a_repeated_save_is_answered_again_and_a_repeated_round_gets_another_key",
    ),
    Break(
        "ps-l2",
        "services/scar_ps/core/distances.py",
        "        np.sqrt(sums, out=sums)\n",
        "        pass\n",
        f"{ROUND}::test_a_committed_round_brings_the_distances_to_zero",
    ),
    Break(
        "ps-momentum",
        "services/scar_ps/core/update_rules.py",
        "    velocity += pushed\n",
        "    velocity += values\n",
        f"{PS_UPDATE_RULES}::test_every_rule_equals_a_reference_block_by_block",
    ),
    Break(
        "ps-bias",
        "services/scar_ps/core/update_rules.py",
        "_unbiased(beta2, counts, values)",
        "_unbiased(beta1, counts, values)",
        f"{PS_UPDATE_RULES}::test_every_rule_equals_a_reference_block_by_block",
    ),
    Break(
        "ps-decay",
        "services/scar_ps/core/update_rules.py",
        'if rule.kind != "adamw" and (decay :=',
        "if (decay :=",
        f"{PS_UPDATE_RULES}::test_every_rule_equals_a_reference_block_by_block",
    ),
    Break(
        "ps-nesterov",
        "services/scar_ps/core/update_rules.py",
        "        move += pushed\n",
        "        move += velocity\n",
        f"{TORCH_RULES}::test_a_rule_is_torchs_optimizer",
    ),
    Break(
        "ps-woken",
        "services/scar_ps/core/shard.py",
        "        if self._parked and isinstance(answer, AnswerRequest)",
        "        if len(self._parked) == 1 and isinstance(answer, AnswerRequest)",
        f"{PS_APPLY_THREAD}::test_a_change_that_was_parked_wakes_others",
    ),
    Break(
        "ps-lease-twice",
        "services/scar_ps/apply_thread.py",
        "result = self._wait_for(_Call(request, observe), timeout)\n        self.check_lease()\n",
        "result = self._wait_for(_Call(request, observe), timeout)\n",
        f"{PS_APPLY_THREAD}::test_a_lease_that_runs_out_while_applying_is_not_acknowledged",
    ),
    Break(
        "ps-stopping",
        "services/scar_ps/apply_thread.py",
        "        self._closed.set()\n        self._refuse_all()\n",
        "        self._closed.set()\n",
        f"{PS_APPLY_THREAD}::test_calls_end_when_the_thread_ends",
    ),
    Break(
        "ps-staged",
        "services/scar_ps/wire/push_decoder.py",
        "self._arriving -= decoder.reserved",
        "pass",
        f"{PS_PUSH_DECODER}::test_payloads_arrive_in_any_pieces_and_in_the_tables_dtype",
    ),
    Break(
        "ps-carry",
        "services/scar_ps/wire/push_decoder.py",
        "data, self._carry = bytes(self._carry[:whole]), self._carry[whole:]",
        "data, self._carry = bytes(self._carry[:whole]), bytearray()",
        f"{PS_PUSH_DECODER}::test_pieces_that_end_in_the_middle_of_a_number_are_put_together",
    ),
    Break(
        "ps-cut-short",
        "sdk/scar/wire/tensor_reader.py",
        "        if self._sink is not None and self.remaining:",
        "        if False:",
        f"{PS_PUSH_DECODER}::test_a_bad_push_is_refused_with_the_reason",
    ),
    Break(
        "ps-missed-epochs",
        "services/scar_ps/epoch_sync.py",
        "range(missing.last, missing.first - 1, -1)",
        "range(missing.last, missing.first, -1)",
        f"{PS_SERVICE}::test_missed_epochs_are_read_from_the_store",
    ),
    Break(
        "ps-payload-kept",
        "services/scar_ps/wire/push_decoder.py",
        "            decoder.close()\n",
        "",
        "tests/unit/test_ps_push_decoder.py::test_a_push_that_is_over_leaves_its_memory_at_once",
    ),
    Break(
        "ps-loaded-late",
        "services/scar_ps/core/loads.py",
        "self._state.chain.urgent = True",
        "",
        "tests/unit/test_ps_replication.py::test_a_block_that_is_loaded_after_it_was_settled_goes_at_once",
    ),
    Break(
        "ps-replica-overtaken",
        "services/scar_ps/core/replica_store.py",
        "if overtaken or (batch.since and batch.since != have):",
        "if batch.since and batch.since != have:",
        "tests/unit/test_ps_replica_store.py::test_a_whole_batch_that_was_overtaken_is_refused",
    ),
    Break(
        "ps-late-clock",
        "services/scar_ps/core/status.py",
        "adopted=dict(state.adopted)",
        "adopted={state.number: state.clock}",
        "tests/unit/test_ps_shard.py::test_a_shard_says_later_which_clock_was_open_when_an_epoch_came",
    ),
    Break(
        "ps-base-room",  # the list of base watermarks kept the length that it once had
        "services/scar_ps/core/ownership.py",
        "while len(self._base_watermarks) > 1 and",
        "while False and",
        f"{PS_OWNERSHIP}::test_a_base_watermark_stays_until_the_pushes_of_every_worker_have_overtaken_it",
    ),
)
