"""Breaks of live migration in BSP: nothing comes a clock late, and nothing twice."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_MIGRATION = "tests/unit/test_ps_migration.py"

BREAKS = (
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
)
