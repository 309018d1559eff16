"""Breaks of workers as sources under SSP and ASP: nothing acknowledged is lost, and nothing counts twice."""

from __future__ import annotations

from scripts.breaks.kind import Break

HELD_COPIES = "sdk/scar/_client/core/held_copies.py"
FREE = "tests/unit/test_copies_without_clocks.py"
LACKING = "tests/unit/test_missing_without_clocks.py"
ANY_MOMENT = f"{LACKING}::test_nothing_acknowledged_is_lost_with_its_owner_at_any_moment"
HOLDERS = "services/scar_ps/core/pull_holders.py"

BREAKS = (
    Break(
        "without-clocks",  # one of those who push holds the table, and the others keep nothing
        HOLDERS,
        "bool(held) and self._pushing.get(table, set()) <= held.keys()",
        "bool(held)",
        ANY_MOMENT,
    ),
    Break(
        "without-clocks",  # a table counts as held that its worker has not pulled for long
        HOLDERS,
        "clock - HOLDERS_COUNTED:",
        "clock - 99:",
        f"{LACKING}::test_a_table_that_is_not_pulled_any_more_is_copied_before_its_pushes_are_let_go",
    ),
    Break(
        "without-clocks",  # what was pulled counts as held before its worker has said so
        "services/scar_ps/core/clocks.py",
        "        if event.holds:\n",
        "        if True:\n",
        ANY_MOMENT,
    ),
    Break(
        "without-clocks",  # what only a worker held that has left counts as held
        "services/scar_ps/core/epochs.py",
        "            state.forget_holders()\n",
        "            pass\n",
        f"{LACKING}::test_what_a_worker_pushed_that_leaves_is_copied",
    ),
    Break(
        "without-clocks",  # a pull of some blocks counts as one of all
        "services/scar_ps/core/core_state.py",
        "elif len(pull.ids) == len(store):",
        "else:",
        f"{LACKING}::test_a_table_is_held_whole_or_not_at_all",
    ),
    Break(
        "without-clocks",  # who holds everything waits for a replica that needs nothing
        "services/scar_ps/core/pushes.py",
        "        state.chain.pass_update(state.ownership.tables.values())\n",
        "",
        f"{LACKING}::test_what_everybody_holds_is_not_copied_and_nobody_waits",
    ),
    Break(
        "without-clocks",  # a push goes that was acknowledged after the shard had answered the pull
        "sdk/scar/_client/core/pulled_tables.py",
        "NO_COPY) > push.pulls",
        "NO_COPY) >= push.pulls",
        f"{FREE}::test_a_push_is_kept_until_a_later_pull_of_its_tables_is_there",
    ),
    Break(
        "without-clocks",  # memory grows with every push to what nobody pulls again
        "sdk/scar/_client/core/resend_buffer.py",
        "if push.clock < oldest or pulled.contain(push)",
        "if pulled.contain(push)",
        f"{FREE}::test_what_is_not_pulled_again_is_kept_for_some_clocks",
    ),
    Break(
        "without-clocks",  # a worker gives back pushes that the ledger has given up
        HELD_COPIES,
        "        return any(push > group.watermark.get(key, 0) for key, push in part.watermark.items())\n",
        "        return False\n",
        f"{FREE}::test_what_was_put_back_voids_copies_that_contain_more",
    ),
    Break(
        "without-clocks",  # an older pull that was answered late takes the place of a newer one
        HELD_COPIES,
        "any(copy.number > pulled.number for",
        "any(False for",
        f"{FREE}::test_the_pull_that_began_last_is_the_copy",
    ),
    Break(
        "without-clocks",  # values get pushes that their watermark does not name, and get them again
        "services/scar_ps/core/pushes.py",
        "part.store = part.store.freeze()",
        "pass",
        f"{FREE}::test_what_a_shard_says_of_its_values_stays_true_while_they_are_sent",
    ),
    Break(
        "without-clocks",  # a loss that a silent worker makes has no reason in the ledger
        "services/scar_recovery/core/epoch_preparation.py",
        "damage=(*intent.damage, *silent)",
        "damage=intent.damage",
        f"{FREE}::test_who_did_not_answer_is_named_in_the_ledger",
    ),
)
