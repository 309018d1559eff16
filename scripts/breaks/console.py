"""Breaks of the live page: who sees it, what it shows of a long run, and what it breaks."""

from __future__ import annotations

from scripts.breaks.kind import Break

CS = "services/scar_console/"
SERVER = "tests/component/test_console.py"
CURVE = "tests/unit/test_console_curve.py"
PAGE = "tests/unit/test_console_page.py"
FAULTS = "tests/unit/test_kube_faults.py"
POD_CUT = "tests/unit/test_pod_cut.py"
HISTORY = "tests/unit/test_console_history.py"
BLOCKS = "tests/unit/test_console_blocks.py"
SAVED = "tests/unit/test_console_map_reader.py"

BREAKS = (
    Break(
        "console-token",
        CS + "access.py",
        "if not hmac.compare_digest(given.encode(), self._token.encode()):",
        "if False:",
        f"{SERVER}::test_without_the_token_nothing_of_the_run_is_shown",
    ),
    Break(
        "console-host",
        CS + "access.py",
        'host.rpartition(":")[0] not in NAMES',
        "not host",
        f"{SERVER}::test_another_name_that_leads_here_is_refused",
    ),
    Break(
        "console-origin",
        CS + "access.py",
        'if request.headers.get("origin", f"http://{host}") != f"http://{host}":',
        "if False:",
        f"{SERVER}::test_another_site_cannot_ask_even_with_the_token",
    ),
    Break(
        "console-header",
        CS + "access.py",
        'if request.method == "GET"\n            else request.headers.get(TOKEN_HEADER, "")',
        'if True\n            else request.headers.get(TOKEN_HEADER, "")',
        f"{SERVER}::test_a_kill_needs_the_token_in_its_header",
    ),
    Break(
        "console-looks-only",
        CS + "server.py",
        "for how in cluster.can_break}",
        'for how in ("kill",)}',
        f"{SERVER}::test_what_is_not_on_this_machine_is_only_looked_at",
    ),
    Break(
        "console-m4",
        "services/scar_runtime/loss_curve.py",
        "sorted({ordered[0], ordered[-1], lowest, highest})",
        "sorted({ordered[0], ordered[-1]})",
        f"{CURVE}::test_a_long_run_stays_bounded_and_keeps_its_ends_its_peak_and_its_dip",
    ),
    Break(
        "console-widened",
        "services/scar_runtime/loss_curve.py",
        "        if widened:\n            return 0\n",
        "",
        f"{CURVE}::test_when_intervals_grow_all_points_are_sent_again",
    ),
    Break(
        "console-unwell-first",
        CS + "page_model.py",
        'key=lambda row: (row["health"] in WELL, _natural_order(row))',
        "key=_natural_order",
        f"{PAGE}::test_of_a_thousand_shards_the_unwell_are_shown",
    ),
    Break(
        "console-another-run",
        CS + "run_history.py",
        "and not 0 < status.number < self.epoch",
        "",
        f"{PAGE}::test_another_job_or_the_same_one_begun_anew_has_a_curve_of_its_own",
    ),
    Break(
        "console-kills-who",
        "services/scar_cli/member_faults.py",
        "known[name].component not in BREAKABLE",
        "False",
        f"{PAGE}::test_only_shards_and_workers_that_run_are_broken_from_the_page",
    ),
    Break(
        "console-absent-button",
        CS + "run_view.py",
        '"cannot_break": self._cluster.cannot_break',
        '"cannot_break": ()',
        f"{PAGE}::test_a_button_that_is_absent_is_accounted_for",
    ),
    Break(
        "cut-owner",
        "services/scar_kube/nftables.py",
        "NFT_TABLE_F_OWNER = 2",
        "NFT_TABLE_F_OWNER = 0",
        "tests/unit/test_nftables.py::test_one_transaction_makes_an_owned_table_and_two_chains_that_drop",
    ),
    Break(
        "cut-was-none",
        "services/scar_kube/pod_cut.py",
        "0 < ended.exit_code < SIGNALLED",
        "ended.exit_code >= SIGNALLED",
        f"{POD_CUT}::test_a_cut_that_was_none_says_why",
    ),
    Break(
        "cut-refused",
        "services/scar_kube/pod_cut.py",
        '_join_pod(api, namespace, pod, _cutting_container(f"{CUT}try", image, 1.0), dry_run="All")',
        "pass",
        f"{POD_CUT}::test_whether_it_can_be_done_is_known_before",
    ),
    Break(
        "console-breaks-release",
        "services/scar_kube/release.py",
        'annotations.get(CHAOS) == "allowed"',
        "CHAOS in annotations",
        f"{FAULTS}::test_the_page_of_a_release_breaks_only_what_its_chart_allows",
    ),
    Break(
        "cost-predicted",
        "services/scar_admin/predicted_costs.py",
        "rate = -float(",
        "rate = -0.4 * float(",
        "tests/unit/test_iteration_costs.py::test_three_of_four_costs_are_predicted_within_a_factor_of_two",
    ),
    Break(
        "cost-limit",
        "services/scar_admin/predicted_costs.py",
        "limit = _estimate_limit(before)",
        "limit = 0.0",
        "tests/unit/test_iteration_costs.py::test_three_of_four_costs_are_predicted_within_a_factor_of_two",
    ),
    Break(
        "console-lowest-loss",
        CS + "whole_losses.py",
        "self._lowest = min(lowest, self._lowest or lowest)",
        "pass",
        "tests/unit/test_whole_losses.py::test_of_a_long_run_the_cost_of_a_failure_is_that_of_all_losses",
    ),
    Break(
        "console-parts-cost",
        CS + "run_history.py",
        " if at not in status.fractions",
        "",
        f"{HISTORY}::test_the_costs_of_failures_are_those_of_all_losses",
    ),
    Break(
        "console-clock-back",
        CS + "run_history.py",
        "status.clock >= (samples[-1].clock if samples else 0)",
        "True",
        f"{HISTORY}::test_a_look_that_sees_less_than_another_did_tells_no_time",
    ),
    Break(
        "store-health-recovers",
        "services/scar_recovery/store_health.py",
        '        self._problem = ""\n\n    def read',
        "\n    def read",
        "tests/unit/test_progress_history.py::test_it_says_how_the_store_answers",
    ),
    Break(
        "console-never-saved",
        CS + "block_map.py",
        "np.full(table.blocks, NEVER, np.int64)",
        "np.full(table.blocks, 0, np.int64)",
        f"{BLOCKS}::test_each_block_is_as_old_as_the_copy_that_a_restore_reads",
    ),
    Break(
        "console-cell-oldest",
        CS + "block_map.py",
        "np.minimum.reduceat",
        "np.maximum.reduceat",
        f"{BLOCKS}::test_a_cell_and_a_shard_are_as_old_as_their_oldest_block",
    ),
    Break(
        "console-map-once",
        CS + "map_reader.py",
        "fresh == self._known",
        "False",
        f"{SAVED}::test_each_manifest_is_read_once",
    ),
    Break(
        "console-map-epoch",
        CS + "map_reader.py",
        "fresh = (saved.manifest, status.number)",
        "fresh = (saved.manifest, 0)",
        f"{SAVED}::test_a_new_epoch_deals_the_same_blocks_to_other_shards",
    ),
    Break(
        "console-map-job",
        CS + "map_reader.py",
        "job != self._job",
        "job.name != self._job.name",
        f"{SAVED}::test_a_job_that_is_declared_anew_is_not_taken_for_the_old_one",
    ),
    Break(
        "console-rate-life",
        CS + "push_rates.py",
        "if one[1] == life",
        "if True",
        "tests/unit/test_console_rates.py::test_who_was_restarted_begins_anew",
    ),
    Break(
        "console-step",
        CS + "run_view.py",
        "if name not in before or before[name] != value",
        "if True",
        f"{PAGE}::test_a_step_has_what_is_new_and_a_whole_look_has_all",
    ),
    Break(
        "console-members-bounded",
        CS + "page_model.py",
        "for key in record.members[:MAX_WORDS]]",
        "for key in record.members]",
        "tests/unit/test_console_bounds.py::test_a_thousand_shards_and_a_million_clocks_fit_into_half_a_megabyte",
    ),
    Break(
        "returned-early",  # who has joined, and waits for its blocks, is called back
        "services/scar_recovery/core/ledger.py",
        "if shard.name in names and _owns_blocks(epoch, shard)",
        "if shard.name in names",
        "tests/unit/test_recovery_ledger.py::test_who_died_is_back_when_its_successor_serves_blocks",
    ),
    Break(
        "returned-unserved",  # blocks of an epoch that is not loaded yet are called served
        "services/scar_recovery/core/ledger.py",
        "if self._epoch is not None and self._epoch.number == epoch:",
        "if self._epoch is not None:",
        "tests/unit/test_recovery_ledger.py::test_who_died_is_back_when_its_successor_serves_blocks",
    ),
    Break(
        "settled-by-one",  # the first report is taken for that of all
        "services/scar_recovery/core/ledger.py",
        "seconds = 0.0 if waiting else self._seconds_since(record.number, now)",
        "seconds = self._seconds_since(record.number, now)",
        "tests/unit/test_recovery_ledger.py::test_workers_have_settled_when_the_last_one_has_reported",
    ),
    Break(
        "suspected-for-ever",  # one that a sign of life has ended counts for a later death
        "services/scar_detector/core/member_state.py",
        "        self.misses = 0\n        self.suspected_at = math.nan\n",
        "        self.misses = 0\n",
        "tests/unit/test_detector.py::test_a_sign_of_life_ends_a_suspicion",
    ),
    Break(
        "metrics-forgotten",  # a run that has ended is kept without its metrics
        "services/scar_recovery/history_recorder.py",
        "            self._changed |= bool(history.metrics.add_metrics(one.metrics))\n",
        "",
        "tests/unit/test_progress_history.py::"
        "test_it_writes_what_shards_say_and_asks_a_few_of_them_for_what_is_new",
    ),
    Break(
        "console-later-failure",  # told after the loss was seen to be back
        CS + "run_history.py",
        "return cost.until == next_failure(record, failures)",
        "return True",
        f"{HISTORY}::test_a_cost_that_was_measured_gives_way_to_a_failure_that_is_told_later",
    ),
    Break(
        "console-later-loss",  # a shard that knew it had not answered when the cost was measured
        CS + "run_history.py",
        " or new <= cost.decided_at",
        "",
        f"{HISTORY}::test_a_loss_that_a_look_lacked_changes_a_cost_that_was_measured_without_it",
    ),
    Break(
        "console-silent-shard",  # what it alone knows is asked for again
        CS + "run_history.py",
        "if not status.silent_shards:",
        "if True:",
        f"{PAGE}::test_a_look_asks_again_for_what_a_silent_shard_may_know",
    ),
)
