"""Slips in the judge of chaos runs: an oracle that lets a violation pass."""

from __future__ import annotations

from scripts.breaks.kind import Break

CHAOS = "services/scar_chaos/"
CHAOS_CHECKERS = "tests/unit/test_chaos_checkers.py"
CHAOS_LEDGER_AUDIT = "tests/unit/test_chaos_ledger_audit.py"
CHAOS_STORE_DISK = "tests/unit/test_chaos_store_disk.py"

BREAKS = (
    Break(
        "chaos-removed",  # an object that somebody removed, and that every manifest named, ended the run
        "services/scar_chaos/restore.py",
        "if not set(running.unreadable) <= set(damaged):",
        "if running.unreadable:",
        f"{CHAOS_STORE_DISK}::test_an_object_that_was_removed_is_done_without_when_every_manifest_names_it",
    ),
    Break(
        "chaos-far-behind",  # a worker that was away for minutes was given 90 s to come up to the others
        "services/scar_chaos/chaos_run.py",
        "while (reached := self.status().clock) < clock:",
        "while (reached := clock) < clock:",
        "tests/simulation/test_kept.py::test_it_holds_now",
    ),
    Break(
        "ch-torn",
        CHAOS + "core/counting_job.py",
        "np.minimum.reduceat(flat, starts) != np.maximum",
        "np.minimum.reduceat(flat, starts) > np.maximum",
        f"{CHAOS_CHECKERS}::test_torn_blocks_are_seen",
    ),
    Break(
        "ch-range",
        CHAOS + "oracles/exactly_once.py",
        "(push.number <= one.upto)",
        "(push.number < one.upto)",
        f"{CHAOS_CHECKERS}::test_books_must_agree_with_the_values",
    ),
    Break(
        "ch-moved-repeat",
        CHAOS + "oracles/exactly_once.py",
        "stretch = -push.number if block in single else int(count[block])",
        "stretch = int(count[block])",
        f"{CHAOS_CHECKERS}::test_a_block_that_moves_may_leave_out_a_repeated_clock_between_two_others",
    ),
    Break(
        "ch-silent-move",
        CHAOS + "oracles/checkers.py",
        "np.concatenate([listed, orphaned])",
        "changed",
        f"{CHAOS_CHECKERS}::test_epochs_that_are_wrong",
    ),
    Break(
        "ch-back",
        CHAOS + "oracles/checkers.py",
        "between = range(old.before + 1, new.after + 1)",
        "between = range(old.before, new.after + 1)",
        f"{CHAOS_CHECKERS}::test_an_epoch_that_a_worker_had_seen_before_excuses_nothing",
    ),
    Break(
        "ch-ahead",
        CHAOS + "oracles/checkers.py",
        "saved[table] > values[table]",
        "saved[table] < values[table]",
        "tests/unit/test_chaos_cost.py::test_a_right_run_is_found_right",
    ),
    Break(
        "ch-repeats",
        CHAOS + "oracles/history.py",
        "return push.clock <= max(",
        "return push.clock < max(",
        f"{CHAOS_CHECKERS}::test_a_successor_s_repeated_clock_may_be_left_out_where_pushes_are_queued",
    ),
    Break(
        "ch-whole",
        CHAOS + "oracles/strategy_promises.py",
        "require(restored == job.blocks,",
        "require(restored >= 0,",
        "tests/unit/test_chaos_strategy_promises.py::test_a_rollback_takes_every_block",
    ),
    Break(
        "ch-gap",
        CHAOS + "oracles/strategy_promises.py",
        "max(_distance(clock - first, waited) for clock in clocks) >= CALM",
        "max(abs(clock - first) for clock in clocks) < 0",
        "tests/unit/test_chaos_strategy_promises.py"
        "::test_what_was_pushed_to_blocks_just_gained_may_be_lost_however_late_that_is_noticed",
    ),
    Break(
        "ch-twice",
        CHAOS + "recorder.py",
        "if number > self._written.get(worker, 0) and",
        "if",
        "tests/component/test_chaos_recorder.py::test_a_write_whose_answer_was_lost_is_written_once",
    ),
    Break(
        "ch-books",
        CHAOS + "oracles/ledger_audit.py",
        "record.lost_blocks == owned, text",
        "record.lost_blocks >= owned, text",
        f"{CHAOS_LEDGER_AUDIT}::test_what_is_false_is_found",
    ),
    Break(
        "ch-clock",
        CHAOS + "oracles/ledger_audit.py",
        "for shard in newest.shards if shard.key in repaired and",
        "for shard in by_number[record.epoch].shards if",
        f"{CHAOS_LEDGER_AUDIT}::test_survivors_that_were_dead_themselves_cannot_tell_the_clock",
    ),
    Break(
        "ch-clock",
        CHAOS + "oracles/ledger_audit.py",
        " and any({pull.before, pull.after} <= numbers for numbers in owning)",
        "",
        f"{CHAOS_LEDGER_AUDIT}::test_what_only_the_dead_had_served_is_no_survivors_clock",
    ),
    Break(
        "ch-clock",
        CHAOS + "oracles/ledger_audit.py",
        "require(record.clock >= saved, text)",
        "require(True, text)",
        f"{CHAOS_LEDGER_AUDIT}::test_where_nobody_could_tell_the_clock_is_that_of_what_came_back",
    ),
    Break(
        "ch-delta",
        CHAOS + "oracles/ledger_audit.py",
        "far * far * pushed_elements(table)[ids]",
        "far * far",
        f"{CHAOS_LEDGER_AUDIT}::test_what_is_true_is_accepted",
    ),
    Break(
        "ch-dated",
        CHAOS + "oracles/ledger_audit.py",
        "require(record.clock >= served, text)",
        "require(True, text)",
        f"{CHAOS_LEDGER_AUDIT}::test_what_is_false_is_found",
    ),
    Break(
        "ch-found-later",
        CHAOS + "oracles/ledger_audit.py",
        "for number, epoch in by_number.items() if epoch.cause != END)",
        "for number in by_number)",
        f"{CHAOS_LEDGER_AUDIT}::test_one_that_survived_could_tell_the_clock_whatever_came_later",
    ),
    Break(
        "ch-damaged",
        CHAOS + "restore.py",
        "if header.baselines.isdisjoint(damaged) and ref.key not in damaged:",
        "if False:",
        f"{CHAOS_STORE_DISK}::test_damage_is_found_by_its_checksum_and_known",
    ),
    Break(
        "ch-garbled",
        CHAOS + "targets/store_disk.py",
        "if path.read_bytes() == NONSENSE:",
        "if True:",
        f"{CHAOS_STORE_DISK}::test_what_was_written_over_garbage_stays",
    ),
    Break(
        "ch-seed",
        CHAOS + "core/schedule.py",
        "self._random = random.Random(seed)",
        "self._random = random.Random()",
        "tests/unit/test_chaos_seeds.py::test_a_seed_is_the_schedule_that_it_always_was",
    ),
)
