"""Breaks of workers as sources: a block that comes back from one is what it would have been, bit by bit."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_REPLAY = "tests/unit/test_ps_replay.py"
KEYED_REPLAY = (
    "tests/unit/test_keyed_replay.py::test_rows_that_a_replica_gives_back_are_what_they_would_have_been"
)
HELD = "tests/unit/test_held_copies.py"
HELD_COPIES = "sdk/scar/_client/core/held_copies.py"
LOADS = "services/scar_ps/core/loads.py"

MISSING_TESTS = "tests/unit/test_missing_copies.py"
EXACTLY = f"{MISSING_TESTS}::test_each_block_can_be_put_back_exactly_at_any_moment"
PULL_MARKS = "services/scar_ps/core/pull_marks.py"
CHAIN = "services/scar_ps/core/replication_chain.py"

BREAKS = (
    Break(
        "after-answer",  # a push is given up that only a copy has of which recovery does not know
        HELD_COPIES,
        "        known = complete and not self._has_answered\n",
        "        known = complete\n",
        f"{HELD}::test_what_came_after_the_answer_is_no_source_before_the_next_epoch",
    ),
    Break(
        "own-history",  # what one shard had sent later voids blocks that another had sent
        HELD_COPIES,
        "            if later and self._by_clock:  # then all parts are of one clock\n",
        "            if later:\n",
        "tests/unit/test_copies_without_clocks.py"
        "::test_what_was_put_back_voids_nothing_that_another_shard_had_sent_later",
    ),
    Break(
        "older-copies",  # only the last two copies are kept, whatever they lack
        HELD_COPIES,
        "            if offered or (len(kept) < COPIES and (sources & ~covered).any()):\n",
        "            if len(kept) < 2:\n",
        f"{HELD}::test_each_block_has_a_copy_though_two_epochs_put_blocks_back_while_tables_were_pulled",
    ),
    Break(
        "rounded-copy",  # blocks come back rounded, though the ledger says that nothing was lost
        "sdk/scar/_client/core/held_copies.py",
        "return whole and not pulled.short and",
        "return whole and",
        "tests/unit/test_held_copies.py::test_what_came_rounded_is_no_copy",
    ),
    Break(
        "missing-marks",  # a pull counts that came rounded
        "sdk/scar/_client/worker_pulls.py",
        "if wanted.short or self.held.can_hold(wanted):",
        "if self.held.can_hold(wanted):",
        f"{HELD}::test_shards_are_told_of_a_rounded_pull_that_it_is_not_held",
    ),
    Break(
        "missing-marks",  # a pull counts though its worker did not keep it
        "services/scar_ps/core/clocks.py",
        "        if event.holds:\n",
        "        if True:\n",
        EXACTLY,
    ),
    Break(
        "missing-marks",  # what was pulled counts as the block though a push has changed it
        PULL_MARKS,
        "        self.pulled[positions] = NEVER\n",
        "        pass\n",
        EXACTLY,
    ),
    Break(
        "missing-marks",  # a pull counts for longer than its worker keeps it
        PULL_MARKS,
        "clock - PULLS_COUNTED",
        "clock - 9",
        f"{MISSING_TESTS}::test_what_nobody_pulls_again_is_copied_before_its_worker_lets_it_go",
    ),
    Break(
        "missing-marks",  # what a worker held counts after it has left
        "services/scar_ps/core/epochs.py",
        "                    store.marks.note_change(slice(None))\n",
        "                    pass\n",
        f"{MISSING_TESTS}::test_what_a_worker_held_that_leaves_is_copied_with_the_next_clock",
    ),
    Break(
        "missing-held",  # a worker lets go what its shards still count on
        HELD_COPIES,
        "_clock_of(copy) > told - PULLS_HELD",
        "_clock_of(copy) >= told",
        EXACTLY,
    ),
    Break(
        "missing-kept",  # a push is released before its block is copied
        "sdk/scar/strategies.py",
        "return int(self.asks_workers) + self.lag",
        "return int(self.asks_workers) - self.lag",
        EXACTLY,
    ),
    Break(
        "missing-lag",  # clocks are told while their replica is far behind
        CHAIN,
        "most + self._strategy.lag",
        "most + 9",
        EXACTLY,
    ),
    Break(
        "missing-stale",  # a copy that is out of date passes for one of the newest clock
        "services/scar_ps/core/replica_store.py",
        "            self._empty_blocks(table, ids)\n",
        "            pass\n",
        EXACTLY,
    ),
    Break(
        "missing-stale",  # the same when the batch that said so is lost
        CHAIN,
        "                marks.copied[at[at >= 0]] = True\n",
        "                marks.copied[at[at >= 0]] = False\n",
        EXACTLY,
    ),
    Break(
        "missing-replay",  # a copy of a clock is seen before what workers owe it is done again
        "services/scar_ps/core/ownership.py",
        "restored = group.source is not BlockSource.DONOR",
        "restored = group.source not in (BlockSource.DONOR, BlockSource.REPLICA)",
        f"{MISSING_TESTS}::test_a_copy_of_a_clock_waits_for_what_workers_owe_it",
    ),
    Break(
        "keyed-replay",  # rows of keys are seen before what workers owe them is done again
        "services/scar_ps/core/ownership.py",
        'if job.consistency == "bsp" and restored and pushed:',
        'if job.consistency == "bsp" and change.table.keys is None and restored and pushed:',
        KEYED_REPLAY,
    ),
    Break(
        "keyed-replay",  # rows stay that were too old in a clock that is done again
        "services/scar_ps/core/clocks.py",
        "            self._expire_replayed(clock)\n",
        "",
        KEYED_REPLAY,
    ),
    Break(
        "keyed-replay",  # the same for the last one, when nothing is owed
        "services/scar_ps/core/clocks.py",
        "        self._expire_replayed(state.clock - 1)\n",
        "",
        KEYED_REPLAY,
    ),
    Break(
        "missing-question",  # what workers hold is not asked where there are replicas
        "services/scar_recovery/core/epoch_preparation.py",
        "        question = _offer_question(commit.intent)\n",
        "        question = None\n",
        "tests/unit/test_epoch_preparation.py"
        "::test_workers_are_asked_after_shards_where_replicas_have_what_they_lack",
    ),
    Break(
        "heal-torn",  # a copy of a shard that was a clock ahead
        HELD_COPIES,
        " if part.clock == clock]",
        "]",
        f"{HELD}::test_a_part_of_another_clock_or_epoch_is_no_source",
    ),
    Break(
        "heal-torn",  # values of before a restore, though it came while they were pulled
        HELD_COPIES,
        "restored[part.ids] <= part.epoch",
        "restored[part.ids] >= 0",
        f"{HELD}::test_a_part_of_another_clock_or_epoch_is_no_source",
    ),
    Break(
        "heal-torn",  # a shard may close the clock by a predecessor's mark while it is pulled
        "sdk/scar/_client/worker_pulls.py",
        " and not ahead",
        "",
        f"{HELD}::test_a_pull_counts_only_while_no_shard_can_close_its_clock",
    ),
    Break(
        "heal-history",  # a copy brings back pushes that the ledger has given up
        HELD_COPIES,
        "                self._cut_history(group)\n",
        "",
        f"{HELD}::test_a_restore_cuts_the_history_of_its_blocks_and_of_no_others",
    ),
    Break(
        "heal-history",  # after a restore all copies are void: a second failure in the same clock costs
        HELD_COPIES,
        "            return part.clock > group.clock\n",
        "            return True\n",
        f"{HELD}::test_a_restore_cuts_the_history_of_its_blocks_and_of_no_others",
    ),
    Break(
        "heal-history",  # the ledger calls exact what a worker that has left may have changed
        HELD_COPIES,
        "                    copy.all_present = False\n",
        "                    copy.all_present = True\n",
        f"{HELD}::test_a_comparison_is_exact_only_with_the_same_clock_and_nobody_gone",
    ),
    Break(
        "heal-history",  # the same of one that left just before the pull, its push waiting for its clock
        HELD_COPIES,
        "pulled.all_present = clock > self._left_clock + 1",
        "pulled.all_present = True",
        f"{HELD}::test_who_has_left_may_have_pushed_for_the_clock_that_is_open",
    ),
    Break(
        "heal-ledger",  # exact, though pushes are gone that were made after the copy
        "services/scar_runtime/failure_records.py",
        "unknown = bool(lost and self.replayed)",
        "unknown = False",
        "tests/unit/test_recovery_ledger.py::test_delta_of_what_memory_gave_back_is_unknown_when_pushes_are_lost",
    ),
    Break(
        "heal-ledger",  # the same where replicas have given back everything
        "services/scar_recovery/core/ledger.py",
        "frozenset({BlockSource.WORKER, BlockSource.REPLICA})",
        "frozenset({BlockSource.WORKER})",
        "tests/unit/test_recovery_ledger.py::test_delta_of_what_memory_gave_back_is_unknown_when_pushes_are_lost",
    ),
    Break(
        "heal-kept",  # the copy is a clock old, and what was pushed in it is gone
        "sdk/scar/_client/core/resend_buffer.py",
        "oldest = self.clock - self._closed_kept",
        "oldest = self.clock",
        "tests/unit/test_resend_buffer.py::test_one_more_clock_is_kept_where_the_state_before_it_may_come_back",
    ),
    Break(
        "heal-kept",  # what a restored value contains is kept and counted as lost at once
        "sdk/scar/_client/core/rerouting.py",
        "np.minimum(before, newest)",
        "before",
        "tests/unit/test_acked_pushes.py::test_what_an_older_copy_lacks_and_is_kept_is_no_loss",
    ),
    Break(
        "heal-replay",  # what is owed joins the open clock
        "services/scar_ps/core/bsp_buffer.py",
        "joined = np.maximum(part.store.replay_clocks(part.positions), owed.clock)",
        "joined = np.maximum(part.store.replay_clocks(part.positions), owed.clock + 9)",
        f"{PS_REPLAY}::test_a_block_that_comes_back_is_what_it_would_have_been",
    ),
    Break(
        "heal-replay",  # all clocks that are owed are one step
        "services/scar_ps/core/clocks.py",
        "closed = sorted({push.joined for push in owed if push.joined < state.clock})",
        "closed = sorted({push.joined for push in owed if push.joined < state.clock})[:1]",
        f"{PS_REPLAY}::test_a_block_that_comes_back_is_what_it_would_have_been",
    ),
    Break(
        "heal-replay",  # in the order of arrival
        "services/scar_ps/core/clocks.py",
        "self._apply_pushes(clock, rank_order(mine, self._ranks))",
        "self._apply_pushes(clock, mine)",
        f"{PS_REPLAY}::test_a_block_that_comes_back_is_what_it_would_have_been",
    ),
    Break(
        "heal-replay",  # somebody sees what is not done again yet
        "services/scar_ps/core/pushes.py",
        "            self._admission.require_replayed(parts)\n",
        "            pass\n",
        f"{PS_REPLAY}::test_a_block_that_comes_back_is_what_it_would_have_been",
    ),
    Break(
        "heal-replay",  # the worker that compares waits for itself
        "services/scar_ps/core/pushes.py",
        "        if not event.unsettled:\n",
        "        if event:\n",
        f"{PS_REPLAY}::test_what_was_put_back_is_compared_before_it_is_settled",
    ),
    Break(
        "heal-replay",  # another sum of the same pushes
        "services/scar_ps/core/bsp_buffer.py",
        "np.full(layout.elements, -0.0, store.values.dtype)",
        "np.zeros(layout.elements, store.values.dtype)",
        f"{PS_REPLAY}::test_a_sum_has_the_bits_of_its_parts",
    ),
    Break(
        "heal-contents",  # what a block contains beyond its owner's clock is forgotten when it moves
        "services/scar_ps/core/migrations.py",
        "            if part.origins.any():\n",
        "            if False:\n",
        f"{PS_REPLAY}::test_a_block_ahead_of_its_owner_moves_on_only_when_that_has_caught_up",
    ),
    Break(
        "heal-contents",  # a pull claims what is still on its way
        "services/scar_ps/core/pushes.py",
        "if state.ownership.any_unsettled or state.epoch is None:",
        "if state.epoch is None:",
        f"{PS_REPLAY}::test_a_pull_says_what_it_contains_only_when_all_is_settled",
    ),
    Break(
        "heal-sources",  # values of another clock are believed
        LOADS,
        "        if event.clock != load.clock:\n",
        "        if event.clock < 0:\n",
        f"{PS_REPLAY}::test_what_is_not_what_the_epoch_said_counts_as_damaged",
    ),
    Break(
        "heal-sources",  # a source that stays silent is waited for without end
        LOADS,
        "attempt.since + SENDER_SECONDS",
        "attempt.since + 1e9",
        f"{PS_REPLAY}::test_a_source_that_stays_silent_or_leaves_counts_as_damaged",
    ),
    Break(
        "heal-sources",  # bits that changed on their way are believed
        "services/scar_ps/wire/copy_stream.py",
        "if sums == self._checksums else",
        "if True else",
        "tests/unit/test_copy_stream.py::test_a_wrong_checksum_is_told_with_the_blocks",
    ),
    Break(
        "pull-slots",  # values come back without their slots, which begin at 0 again
        "services/scar_ps/wire/copy_stream.py",
        "        if self._awaited:\n",
        "        if False:\n",
        "tests/unit/test_copy_stream.py::test_values_without_their_slots_are_flawed",
    ),
    Break(
        "pull-slots",  # a worker that pulled no slots offers the values
        HELD_COPIES,
        "if copy.slots is None and self._beside[table]:",
        "if False:",
        f"{HELD}::test_slots_come_from_the_workers_that_pull_them",
    ),
    Break(
        "pull-slots",  # all workers pull them
        HELD_COPIES,
        "[: self._slot_workers]",
        "",
        f"{HELD}::test_slots_come_from_the_workers_that_pull_them",
    ),
    Break(
        "pull-slots",  # a shard answers with its values
        "services/scar_ps/wire/shown_parts.py",
        "shown.values = store.steps if part == STEPS else store.slots[part.removeprefix(SLOT)]",
        "pass",
        "tests/component/test_pulled_slots.py::test_slots_and_steps_are_pulled_as_values_are",
    ),
    Break(
        "heal-sources",  # an answer to another question counts
        "services/scar_recovery/offer_board.py",
        "worker is None or request.question != self._question",
        "worker is None",
        "tests/unit/test_offer_board.py::test_a_silent_worker_is_no_source",
    ),
)
