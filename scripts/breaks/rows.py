"""Breaks of rows within blocks, of what blocks that moved have proven, and of shards that join."""

from __future__ import annotations

from scripts.breaks.kind import Break

ROWS = "tests/unit/test_rows.py"
PUSHES = "sdk/scar/_client/core/pushes.py"
BLOCK_STORE = "services/scar_ps/core/block_store.py"

BREAKS = (
    Break(
        "rows-misplaced",  # a block does not begin where its rows do
        BLOCK_STORE,
        "return rows + (found - blocks.astype(np.int64)) * each",
        "return rows.astype(np.int64) - blocks.astype(np.int64) * each",
        f"{ROWS}::test_rows_take_the_steps_that_blocks_of_one_row_take",
    ),
    Break(
        "rows-beyond",  # the last block is shorter than the others
        BLOCK_STORE,
        "int(rows[-1]) >= self.table.shape[0]",
        "int(rows[-1]) >= self.table.blocks * self.table.cut.rows",
        f"{ROWS}::test_a_pull_of_rows_that_are_not_there_is_refused",
    ),
    Break(
        "rows-all-again",  # every block that is sent again brings the rows of all
        PUSHES,
        "at = np.flatnonzero(positions_of(ids, spec.find_blocks(push.rows)) >= 0)",
        "at = np.arange(len(push.rows))",
        f"{ROWS}::test_what_is_pushed_by_rows_is_split_merged_and_cut_without_loss",
    ),
    Break(
        "rows-left-behind",  # a block moves with all rows of a push, or none
        "services/scar_ps/core/block_data.py",
        "np.flatnonzero(np.isin(table.find_blocks(self.rows), self.ids[at]))",
        "np.arange(len(self.rows))",
        f"{ROWS}::test_pushes_of_rows_go_with_blocks_that_move",
    ),
    Break(
        "rows-of-adam",  # a step of some rows counts for the whole block
        "services/scar_ps/wire/push_decoder.py",
        "if table.rule.counts_steps and not table.has_row_blocks:",
        "if False:",
        f"{ROWS}::test_a_rule_that_counts_steps_of_blocks_takes_no_rows_of_them",
    ),
    Break(
        "rows-drawn-elsewhere",
        "sdk/scar/initial_values.py",
        "divmod(start, PHILOX_NUMBERS)",
        "divmod(start + 1, PHILOX_NUMBERS)",
        "tests/unit/test_tables.py::test_large_blocks_drawn_alone_are_what_their_whole_page_has",
    ),
    Break(
        "clocks-proven",  # the successor does a clock again that a replica contains
        "services/scar_ps/core/clocks.py",
        "max(state.barrier.finished_clocks(worker), state.proven_clock)",
        "state.barrier.finished_clocks(worker)",
        "tests/unit/test_ps_finished_clocks.py::"
        "test_blocks_that_moved_tell_of_a_clock_of_which_only_a_dead_shard_had_the_mark",
    ),
    Break(
        "clocks-of-old-answers",  # what a shard said before blocks moved to it is not all that it knows
        "sdk/scar/_client/core/push_state.py",
        "stream.record and stream.settled >= epoch.number for",
        "bool(stream.record) for",
        "tests/unit/test_client_story.py::test_a_worker_begins_with_what_shards_say_in_the_newest_epoch",
    ),
    Break(
        "sh-ahead",  # a freeze says nothing of what restored blocks contain
        "services/scar_ps/core/migrations.py",
        "for origin in np.unique(part.origins[part.origins > 0]).tolist():",
        "for origin in []:",
        "tests/unit/test_ps_ownership.py::test_a_restored_block_that_moves_on_contains_what_it_was_restored_with",
    ),
    Break(
        "sh-fenced-join",  # it announces itself for ever
        "services/scar_ps/core/membership.py",
        "if event.fenced and not self._state.number:",
        "if False:",
        "tests/unit/test_ps_membership.py::test_a_shard_that_was_declared_dead_before_its_first_epoch_ends",
    ),
)
