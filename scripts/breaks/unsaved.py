"""Breaks of what a round by distance looks at, of rows that come with the parameters, and of sums of rows."""

from __future__ import annotations

from scripts.breaks.kind import Break

UNSAVED = "tests/unit/test_ps_unsaved_blocks.py"
ROUND = "services/scar_ps/core/checkpoint_round.py"
NEVER_LEFT_OUT = f"{UNSAVED}::test_no_block_whose_values_are_not_saved_is_ever_left_out"

BREAKS = (
    Break(
        "unsaved-after-a-lost-copy",  # what was copied and not committed counts as saved
        ROUND,
        "            part.store.unsaved[part.store_positions] = True\n",
        "            pass\n",
        NEVER_LEFT_OUT,
    ),
    Break(
        "unsaved-of-the-former-store",  # an epoch ends a copy, and its blocks are in another store by then
        ROUND,
        "        self._saving = _follow_blocks(self._saving, relocations)\n",
        "",
        NEVER_LEFT_OUT,
    ),
    Break(
        "unsaved-stays-behind",  # a new store takes its blocks for saved
        "services/scar_ps/core/block_store.py",
        '"origin", "unsaved", "changed"):',
        '"origin", "changed"):',
        NEVER_LEFT_OUT,
    ),
    Break(
        "unsaved-choice",  # a full round of what has changed alone
        "services/scar_ps/round_runner.py",
        "request.selection not in BY_DISTANCE and",
        "not request.selection and",
        "tests/component/test_ps_changed_blocks.py::test_what_is_chosen_from_changed_blocks_is_chosen_by_distance",
    ),
    Break(
        "batch-written-to",  # ids that were changed in place are taken for those of before
        "sdk/scar/torch/batch_ids.py",
        "return ids is self._ids and ids._version == self._version",
        "return ids is self._ids",
        "tests/unit/test_torch_embeddings.py"
        "::test_parameters_come_in_one_pull_with_the_rows_of_inputs_that_were_ids_in_the_call_before",
    ),
    Break(
        "sum-forgets",  # what comes again takes the place of what was there
        "services/scar_ps/core/bsp_buffer.py",
        "before + layout.take(at).gather(values, again)",
        "layout.take(at).gather(values, again)",
        "tests/unit/test_ps_sums.py::test_a_sum_is_made_in_the_order_of_pushes",
    ),
)
