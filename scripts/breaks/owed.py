"""Breaks of what is owed to lost blocks, of clocks that their new owner has closed (protocol §3, §5)."""

from __future__ import annotations

from scripts.breaks.kind import Break

OWED_PUSHES = "tests/unit/test_owed_pushes.py"
PS_OWNERSHIP = "tests/unit/test_ps_ownership.py"

BREAKS = (
    Break(
        "owed-replays",  # it joins the open clock, which workers have to finish although they are done
        "services/scar_ps/core/ownership.py",
        'if job.consistency == "bsp" and restored and pushed:',
        "if job.heals_by_clock and restored and pushed:",
        f"{PS_OWNERSHIP}::test_what_is_owed_to_lost_blocks_is_applied_as_they_settle_with_its_own_clock",
    ),
    Break(
        "owed-told",  # nobody is told, and workers finish a clock more all the same
        "services/scar_ps/core/bsp_buffer.py",
        "        return push.clock < clock and not push.parts\n",
        "        return False\n",
        f"{PS_OWNERSHIP}::test_what_is_owed_to_lost_blocks_is_applied_as_they_settle_with_its_own_clock",
    ),
    Break(
        "owed-duplicate",  # nor when the answer was lost
        "services/scar_ps/core/pushes.py",
        "return True, push.clock < state.clock",
        "return True, False",
        f"{PS_OWNERSHIP}::test_what_is_owed_to_lost_blocks_is_applied_as_they_settle_with_its_own_clock",
    ),
    Break(
        "owed-replicas",  # a worker ends, and what it has pushed dies with the shard
        "services/scar_ps/core/clocks.py",
        " or state.chain.lacks_settled",
        "",
        f"{PS_OWNERSHIP}::test_settled_is_what_the_next_replica_has_too",
    ),
    Break(
        "owed-forgotten",  # a worker ends before all have sent what they owe
        "sdk/scar/_client/core/push_state.py",
        "            if event.settled:\n",
        "            if True:\n",
        f"{OWED_PUSHES}::test_who_ends_waits_until_what_is_owed_is_applied",
    ),
    Break(
        "owed-clock",
        "sdk/scar/_client/core/pushes.py",
        "self.clock if self.owed else max(self.clock, self.applied_clock)",
        "max(self.clock, self.applied_clock)",
        f"{OWED_PUSHES}::test_no_clock_is_finished_for_what_is_owed",
    ),
)
