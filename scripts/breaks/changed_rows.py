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
        "        self.marks[self._blocks.find_in_memory(rows)] = ",
        "        self.marks[rows] = ",
        f"{TESTS}::test_blocks_come_back_as_they_were_copied_whatever_happens_between",
    ),
    Break(
        "rows-whole-push",
        CHANGES,
        '        """These blocks change as a whole."""\n        self.baselines[positions] = UNKNOWN\n',
        '        """These blocks change as a whole."""\n',
        f"{TESTS}::test_blocks_come_back_as_they_were_copied_whatever_happens_between",
    ),
    Break(
        "rows-marks-stay",
        CHANGES,
        "        self._generations[positions] = self._generations[positions] % GENERATIONS + 1\n",
        "",
        f"{TESTS}::test_rows_that_changed_are_saved_alone_until_that_takes_as_much_as_their_block",
    ),
    Break(
        "rows-marks-left-behind",
        CHANGES,
        "            self._blocks.scatter(self.marks, self._blocks.row_counts, target, marks)\n",
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
        "list(objects)) & (spent < sizes)\n",
        "list(objects))\n",
        f"{TESTS}::test_rows_that_changed_are_saved_alone_until_that_takes_as_much_as_their_block",
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
        "        elif header.baselines.isdisjoint(running.unreadable):",
        "        else:",
        f"{TESTS}::test_changes_of_what_has_a_damaged_header_hold_nothing",
    ),
    Break(
        "rows-expanded",
        RUNNING,
        "        dead = (used > 0) & (times * used < size)\n",
        "        dead = used > 0\n",
        f"{LISTED}::test_changes_are_not_rewritten_whole_where_that_takes_more_than_it_gives_back",
    ),
    Break(
        "rows-pinned-rewritten",
        RUNNING,
        "if self.objects[index].key not in kept]\n",
        "]\n",
        f"{LISTED}::test_an_object_of_which_others_stay_that_have_its_changes_is_not_rewritten",
    ),
    Break(
        "rows-never-unpinned",
        RUNNING,
        "        dead[[index for key, index, _ in pins if dead[at[key]]]] = True\n",
        "",
        f"{LISTED}::test_what_has_changes_of_a_mostly_dead_object_is_rewritten_and_then_that_goes",
    ),
    Break(
        "rows-old-baseline",
        CHANGES,
        " + counts + np.where(known == INITIAL, 0.0, sizes / MOST_ROUNDS)\n",
        " + counts\n",
        f"{TESTS}::test_however_few_rows_change_a_block_is_saved_whole_now_and_then",
    ),
)
