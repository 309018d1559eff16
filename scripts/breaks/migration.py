"""Breaks of live migration in BSP: nothing comes a clock late, and nothing twice."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_MIGRATION = "tests/unit/test_ps_migration.py"

BREAKS = (
    Break(
        "move-after-outage",  # of the store, for as long as that was
        "services/scar_recovery/core/live_moves.py",
        "min(REST_MOST, REST * moved_for)",
        "REST * moved_for",
        "tests/unit/test_recovery_moves.py"
        "::test_a_slice_that_waited_long_for_the_store_does_not_put_off_the_next_as_long",
    ),
    Break(
        "moves",
        "services/scar_ps/core/epochs.py",
        "state.bsp_buffer.adopt_epoch(relocations, state.clock if state.is_stalled else 0)",
        "state.bsp_buffer.adopt_epoch(relocations, state.clock)",
        f"{PS_MIGRATION}::test_what_came_along_for_a_clock_that_is_closed_here_counts_at_once",
    ),
    Break(
        "moves",
        "services/scar_ps/core/bsp_buffer.py",
        "            push.parts = push.without_blocks(self._applied[push.identity])\n",
        "",
        f"{PS_MIGRATION}::test_what_was_applied_at_once_and_is_sent_again_counts_once",
    ),
    Break(
        "moves",
        "services/scar_ps/core/epochs.py",
        "state.clock if state.is_stalled else 0",
        "0",
        f"{PS_MIGRATION}::test_a_state_on_which_training_waits_is_not_changed_by_what_comes_along",
    ),
    Break(
        "flush-parts",  # everything that is left in one part, which counts only when it is whole
        "services/scar_recovery/shard_flush.py",
        "self._size_part(PART_SHARE * elapsed if alone else 0.0)",
        "self._fraction = 1.0 if self._last is not None else self._fraction",
        "tests/system/test_spot_notice.py::test_too_little_time_what_costs_least_is_lost",
    ),
    Break(
        "flush-parts",  # long ones while blocks move: each epoch voids the part under way
        "services/scar_recovery/shard_flush.py",
        "PART_SHARE * elapsed if alone else 0.0",
        "PART_SHARE * elapsed",
        "tests/unit/test_shard_flush.py"
        "::test_blocks_move_after_a_while_and_what_is_left_is_saved_beside_in_short_parts",
    ),
    Break(
        "flush-fails",  # a store that is away keeps a shard from handing over
        "services/scar_recovery/shard_flush.py",
        "(elapsed >= seconds or self._failures)",
        "elapsed >= seconds",
        "tests/unit/test_shard_flush.py::test_saving_that_never_works_ends_and_holds_up_nothing",
    ),
    Break(
        "flush-unchanged",
        "services/scar_checkpoint/core/rounds.py",
        "unchanged=unchanged and self.settled > 0,",
        "unchanged=False,",
        "tests/unit/test_checkpoint_coordinator.py::test_a_round_without_any_change_commits_nothing",
    ),
)
