"""What spares copies and passes over memory: arrays that lie in shared memory, rules in C."""

from __future__ import annotations

from scripts.breaks.kind import Break

WANTED_SHARDS = "tests/unit/test_wanted_shards.py::test_what_fails_is_told_and_tried_again_and_done_once"

BREAKS = (
    Break(
        "wanted-shards",  # what failed once is never tried again
        "services/scar_local/wanted_shards.py",
        "            self._scale(wanted.count)\n            self._done = wanted.request\n",
        "            self._done = wanted.request\n            self._scale(wanted.count)\n",
        WANTED_SHARDS,
    ),
    Break(
        "wanted-shards",  # what a former cluster was asked for resizes the next one
        "services/scar_local/wanted_shards.py",
        "        self._file.clear()\n",
        "",
        WANTED_SHARDS,
    ),
    Break(
        "wanted-shards",  # a shard that was sent away is known for ever
        "services/scar_local/processes.py",
        "            child.retired = True\n",
        "",
        "tests/system/test_resize.py::test_scar_scale_resizes_a_cluster_that_trains",
    ),
    Break(
        "sdk-fork-shares",
        "sdk/scar/wire/shared_memory.py",
        "            self._borrowed.clear()\n",
        "            pass\n",
        "tests/unit/test_shared_memory_pool.py"
        "::test_memory_that_a_forked_process_shows_too_is_not_used_again",
    ),
    Break(
        "sdk-pulled-reused",
        "sdk/scar/wire/shared_memory.py",
        "weakref.finalize(memory, self._given_back.append, key).atexit = False",
        "self._given_back.append(key)",
        "tests/component/test_shared_memory.py"
        "::test_what_was_pulled_stays_as_it_is_while_it_is_held_and_is_no_copy_but_the_first_time",
    ),
    Break(
        "ps-kept-in-callers-memory",
        "services/scar_ps/servicer.py",
        "copied=self._state.is_bsp",
        "copied=False",
        "tests/component/test_shared_memory.py::test_what_waits_for_its_clock_is_the_shards_own",
    ),
    Break(
        "row-copies-bounds",  # rows from anywhere in memory
        "sdk/scar/row_copies.py",
        "-int(partly), len(flat) // width, parts",
        "-int(partly), 1 << 40, parts",
        "tests/unit/test_row_copies.py::test_a_row_that_is_not_there_changes_nothing",
    ),
    Break(
        "row-copies-partly",  # in place of nothing the last row
        "sdk/scar/row_copies.py",
        "    if parts < 2 and partly:\n",
        "    if parts < 0 and partly:\n",
        "tests/unit/test_row_copies.py::test_places_without_a_row_stay_as_they_are",
    ),
    Break(
        "push-look",  # NaN is copied, and nobody has looked
        "sdk/scar/_client/core/push_shares.py",
        "look = table.finite_only and not packed.short",
        "look = False",
        "tests/unit/test_nonfinite_pushes.py::test_one_is_found_anywhere",
    ),
    Break(
        "push-look-anywhere",  # who sends NaN in a message, and says that it is none, is believed
        "services/scar_ps/wire/push_decoder.py",
        "looked = self._finite and self._shared",
        "looked = self._finite",
        "tests/unit/test_ps_push_decoder.py"
        "::test_who_has_looked_is_believed_of_what_it_could_change_afterwards",
    ),
    Break(
        "push-look-sums",  # nobody looks at a sum of several pushes
        "sdk/scar/_client/push_stream.py",
        "finite=spec.finite_only and push.merged == 1",
        "finite=spec.finite_only",
        "tests/unit/test_cut_streams.py::test_a_push_says_where_a_look_was_taken_as_it_was_copied",
    ),
    Break(
        "copy-look",  # C copies without a look
        "sdk/scar/row_copies.py",
        "counts = sizes(len(target), target.itemsize, kind, parts)",
        "counts = sizes(len(target), target.itemsize, 0, parts)",
        "tests/unit/test_row_copies.py::test_what_is_copied_is_looked_at_as_it_is_copied",
    ),
    Break(
        "joined-pointers",  # of two segments
        "sdk/scar/wire/shared_memory.py",
        "or before.key != shared.key",
        "",
        "tests/unit/test_shared_memory_pool.py::test_what_lies_side_by_side_is_one_chunk",
    ),
    Break(
        "ps-kernel-decay",
        "services/scar_ps/core/rule_kernels.py",
        'rule.program is not None or rule.parameters.get("weight_decay")',
        "rule.program is not None",
        "tests/unit/test_rule_kernels.py::test_c_and_numpy_agree_to_the_last_bit",
    ),
    Break(
        "ps-kernel-bounds",
        "services/scar_ps/core/rule_kernels.py",
        "limit = len(self.values) // self.width - first",
        "limit = len(self.values) // self.width",
        "tests/unit/test_rule_kernels.py::test_a_row_outside_of_the_store_changes_nothing",
    ),
)
