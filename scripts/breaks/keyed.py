"""Breaks of tables whose rows are given to keys: who gets a row, who loses it, and what comes back."""

from __future__ import annotations

from scripts.breaks.kind import Break

STORE = "services/scar_ps/core/keyed_store.py"
KEPT = "tests/unit/test_keyed_store.py"
TABLES = "tests/unit/test_keyed_tables.py"
GIVEN = "tests/unit/test_given_rows.py"

BREAKS = (
    Break(
        "keys-unmatched",  # an entry of the index is believed though its row was given to another key
        "services/scar_ps/core/key_index.py",
        "(held[at] == images) & (keys[found] == images) & (used[found] > 0)",
        "held[at] == images",
        f"{KEPT}::test_a_full_block_gives_a_new_key_the_row_that_was_unused_for_longest",
    ),
    Break(
        "keys-same-clock",  # a key takes the row of one that was pushed in the same clock
        STORE,
        "may_go = used < clock + 1 if",
        "may_go = used < clock + 2 if",
        f"{KEPT}::test_nobody_takes_the_row_of_a_key_that_was_pushed_in_the_same_clock",
    ),
    Break(
        "keys-old-slots",  # a new key goes on with the velocity of the one that had the row
        STORE,
        "self.slots[name].reshape(-1, self.table.slot_width(name))[at] = 0",
        "self.slots[name].reshape(-1, self.table.slot_width(name))",
        f"{KEPT}::test_a_key_that_takes_a_row_over_begins_without_its_velocity",
    ),
    Break(
        "keys-not-indexed",  # blocks arrive, and nobody finds their keys
        STORE,
        "        if KEY_SLOT in contents.slots:\n",
        "        if False:\n",
        f"{KEPT}::test_what_a_block_keeps_comes_back_with_it",
    ),
    Break(
        "keys-read-create",  # a reader is told x(0) of keys that have no row
        "services/scar_ps/core/pushes.py",
        "replace(part, unknown_zero=True)",
        "replace(part, unknown_zero=False)",
        f"{KEPT}::test_rows_of_keys_take_the_steps_that_rows_in_a_dict_take",
    ),
    Break(
        "keys-aged",  # rows that come back are thrown away for the time in which they were lost
        "services/scar_ps/core/loads.py",
        "contents = renew_rows(table, contents, self._state.clock)",
        "contents = renew_rows(table, contents, 0)",
        f"{KEPT}::test_a_row_that_comes_back_is_not_old_for_the_time_since_it_was_saved",
    ),
    Break(
        "keys-by-number",  # what names rows by numbers is taken for images of keys
        "sdk/scar/wire/row_names.py",
        "bool(message.keys) != (table.keys is not None)",
        "False",
        f"{TABLES}::test_rows_are_named_as_the_table_names_them",
    ),
    Break(
        "keys-healed-by-workers",
        "sdk/scar/tables.py",
        "if keyed and self.strategy.asks_workers:",
        "if False:",
        f"{TABLES}::test_workers_cannot_give_rows_of_keys_back",
    ),
    Break(
        "keys-never-halved",
        "services/scar_ps/core/key_sightings.py",
        "counters[full] >>= 1",
        "counters[full] >>= 0",
        f"{KEPT}::test_counters_of_rare_keys_are_halved_before_all_keys_are_known",
    ),
    Break(
        "keyed-row-names",  # rows of a store are taken for keys while a round copies it
        "services/scar_ps/core/block_snapshot.py",
        "self.store.row_counts.find_blocks(rows)",
        "self.store.find_row_blocks(rows)",
        "tests/unit/test_keyed_snapshot.py::test_a_copy_is_of_the_moment_at_which_it_was_begun",
    ),
    Break(
        "keyed-torn",  # a row changes hands while a round copies its block
        "services/scar_ps/core/keyed_store.py",
        "        self._announce_rows(at)\n",
        "",
        "tests/unit/test_keyed_snapshot.py::test_a_copy_is_of_the_moment_at_which_it_was_begun",
    ),
    Break(
        "given-unused",  # given rows look as if no key had them
        "sdk/scar/given_rows.py",
        "used[at] = FIRST_USED",
        "used[at] = 0",
        f"{GIVEN}::test_a_store_has_the_rows_and_other_keys_begin_as_declared",
    ),
    Break(
        "given-at-resume",  # a job that began from a file cannot be resumed by its own declaration
        "services/scar_recovery/job_settings.py",
        "table.init.CopyFrom(given[table.name])",
        "pass",
        f"{GIVEN}::test_the_description_names_the_rows_and_what_others_begin_with",
    ),
    Break(
        "given-unsorted",  # the store's keys are believed to be in order
        "sdk/scar/given_rows.py",
        "if (images[1:] <= images[:-1]).any():",
        "if False:",
        f"{GIVEN}::test_the_description_names_the_rows_and_what_others_begin_with",
    ),
    Break(
        "rows-as-tables",  # keys and values of an embedding's rows become parameters of the job
        "sdk/scar/torch/model_tables.py",
        "or id(tensor) in seen or name in rows",
        "or id(tensor) in seen",
        "tests/unit/test_torch_keyed_rows.py::test_rows_come_back_and_a_job_begins_with_them",
    ),
    Break(
        "rows-of-the-start-age",  # what comes back as it began is as old as the job
        "services/scar_ps/core/loads.py",
        "in (BlockSource.OBJECT, BlockSource.INITIAL)",
        "is BlockSource.OBJECT",
        f"{KEPT}::test_a_row_that_comes_back_is_not_old_for_the_time_since_it_was_saved",
    ),
)
