"""Breaks of what is saved of a block of which some rows have changed (docs/adr/029)."""

from __future__ import annotations

from scripts.breaks.kind import Break

CHANGES = "services/scar_ps/core/row_changes.py"
READER = "services/scar_runtime/checkpoint/object_reader.py"
RUNNING = "services/scar_runtime/checkpoint/running_checkpoint.py"
TESTS = "tests/unit/test_row_changes.py"
LISTED = "tests/unit/test_checkpoint_baselines.py"

BREAKS = (
    Break(
        "rows-unmarked",
        CHANGES,
        "        self.changed[self._blocks.find_in_memory(rows)] = True\n",
        "        self.changed[rows] = True\n",
        f"{TESTS}::test_blocks_come_back_as_they_were_copied_whatever_happens_between",
    ),
    Break(
        "rows-whole-push",
        CHANGES,
        '        """These blocks are about to change as a whole."""\n'
        "        self.baselines[positions] = UNKNOWN\n",
        '        """These blocks are about to change as a whole."""\n',
        f"{TESTS}::test_blocks_come_back_as_they_were_copied_whatever_happens_between",
    ),
    Break(
        "rows-flags-stay",
        CHANGES,
        "        self._blocks.scatter(self.changed, layout, positions, nothing)\n",
        "",
        f"{TESTS}::test_rows_that_changed_are_saved_alone_until_that_takes_as_much_as_their_block",
    ),
    Break(
        "rows-flags-left-behind",
        CHANGES,
        "            self._blocks.scatter(self.changed, self._blocks.row_counts, target, flags)\n",
        "",
        f"{TESTS}::test_blocks_come_back_as_they_were_copied_whatever_happens_between",
    ),
    Break(
        "rows-any-baseline",
        "services/scar_ps/core/checkpoint_round.py",
        "self._baselines.items() if ref.key in listed}",
        "self._baselines.items()}",
        f"{TESTS}::test_what_is_listed_no_more_is_no_baseline",
    ),
    Break(
        "rows-never-whole",
        CHANGES,
        "        alone = spent < rows.sizes[some]\n",
        "        alone = spent < (1 << 60)\n",
        f"{TESTS}::test_rows_that_changed_are_saved_alone_until_that_takes_as_much_as_their_block",
    ),
    Break(
        "rows-restored-known",
        "services/scar_ps/core/block_store.py",
        "        self.note_change(positions)\n        self._forget_baselines(positions)\n",
        "        self.note_change(positions)\n",
        f"{TESTS}::test_what_is_put_in_its_place_has_no_baseline",
    ),
    Break(
        "rows-baseline-dropped",
        RUNNING,
        "        keep = np.flatnonzero((self.live() > 0) | needed)\n",
        "        keep = np.flatnonzero(self.live() > 0)\n",
        f"{TESTS}::test_a_baseline_stays_listed_while_a_block_needs_it_and_no_longer",
    ),
    Break(
        "rows-baseline-rewritten",
        RUNNING,
        "one[0].key in base and one[0].key not in old - needed),\n",
        "one[0].key in base and one[0].key not in old),\n",
        f"{TESTS}::test_a_compaction_leaves_what_a_newer_round_needs",
    ),
    Break(
        "rows-baseline-unread",
        READER,
        "            damaged[to] |= _is_baseline_damaged(store, job, header, section, ids[to])\n",
        "            pass\n",
        f"{TESTS}::test_a_block_whose_baseline_is_damaged_is_damaged",
    ),
    Break(
        "rows-out-of-block",
        READER,
        "        if (rows >= np.repeat(self._rows.sizes[to], counts)).any():\n",
        "        if False:\n",
        f"{TESTS}::test_a_row_that_its_block_has_not_is_refused",
    ),
    Break(
        "rows-unlisted-baseline",
        "services/scar_checkpoint/core/rounds.py",
        "            if found is not None and not running.lists_all(found[1].baselines):\n",
        "            if found is None:\n",
        f"{LISTED}::test_a_shard_that_has_the_changes_of_what_is_not_listed_misses_the_round",
    ),
    Break(
        "rows-rewrite-goes-first",
        "services/scar_checkpoint/core/manifest_chain.py",
        "            if rewritten is not None and rewritten.lists_all(needed):\n",
        "            if rewritten is not None:\n",
        f"{LISTED}::test_a_compaction_does_not_drop_what_the_round_builds_on",
    ),
    Break(
        "rows-unreadable-baseline",
        RUNNING,
        "        if header is None or not header.baselines.isdisjoint(running.unreadable):\n",
        "        if header is None:\n",
        f"{TESTS}::test_changes_of_what_has_a_damaged_header_hold_nothing",
    ),
)
