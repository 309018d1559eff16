"""Slips that a tired engineer might make in the recovery coordinator.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

RC = "services/scar_recovery/"
RECOVERY_BLOCK_SOURCES = "tests/unit/test_recovery_block_sources.py"
RECOVERY_LEDGER = "tests/unit/test_recovery_ledger.py"
RECOVERY_MEMBERSHIP = "tests/unit/test_recovery_membership.py"
RECOVERY_MOVES = "tests/unit/test_recovery_moves.py"
RECOVERY_PLANNER = "tests/unit/test_recovery_planner.py"
RECOVERY_POD_EVIDENCE = "tests/unit/test_recovery_pod_evidence.py"
RECOVERY_SERVICE = "tests/component/test_recovery_service.py"
RECOVERY_STORE = "tests/unit/test_recovery_store.py"

BREAKS = (
    # --- the recovery coordinator
    # ----------------------------------------------------------------------------------------
    Break(
        "rc-who-served",
        "services/scar_recovery/core/epoch_draft.py",
        "previous.shard_index(member.key) in serving",
        "previous.shard_index(member.key) >= 0",
        "tests/unit/test_recovery_membership.py::"
        "test_where_all_who_served_are_dead_the_clock_is_that_of_the_checkpoint",
    ),
    Break(
        "rc-moved-dead",
        "services/scar_recovery/core/next_epoch.py",
        "moved = () if dead or pending.rollback else pending.moved or ()",
        "moved = () if pending.rollback else pending.moved or ()",
        f"{RECOVERY_MEMBERSHIP}::test_a_death_voids_a_move_that_had_just_ended",
    ),
    Break(
        "rc-admission",
        "services/scar_recovery/core/admission.py",
        "if survivors or len(shards) >= job.shards else",
        "if survivors else",
        f"{RECOVERY_PLANNER}::test_orphans_are_known_to_a_later_leader",
    ),
    Break(
        "rc-suspects",
        "services/scar_recovery/core/planner.py",
        "for f in self.members.suspects() if f.allowed <= now)",
        "for f in self.members.suspects())",
        f"{RECOVERY_PLANNER}::test_suspect_is_declared_dead_only_after_its_lease_and_one_more_question",
    ),
    Break(
        "rc-last-fence",
        "services/scar_recovery/core/next_epoch.py",
        "fenced = (*epoch.fenced, *(member.incarnation for member in epoch.shards))",
        "fenced = epoch.fenced",
        f"{RECOVERY_PLANNER}::test_the_last_epoch_of_a_job_sends_everybody_away",
    ),
    Break(
        "rc-worker-fence",
        "services/scar_recovery/core/next_epoch.py",
        "fenced=(*epoch.fenced, *(failure.report",
        "fenced=(*(), *(failure.report",
        f"{RECOVERY_PLANNER}::test_who_was_declared_dead_stays_fenced",
    ),
    Break(
        "rc-orphans",
        "services/scar_recovery/core/planner.py",
        "            self._orphans |= fresh\n",
        "            self._orphans = fresh\n",
        f"{RECOVERY_PLANNER}::test_orphans_are_known_to_a_later_leader",
    ),
    Break(
        "rc-emptied",
        "services/scar_recovery/core/next_epoch.py",
        "owned_count(pending.epoch, key) == given",
        "owned_count(pending.epoch, key) >= given",
        f"{RECOVERY_MOVES}::test_a_leaving_shard_that_still_owns_blocks_is_in_every_epoch",
    ),
    Break(
        "rc-lease",
        "services/scar_recovery/core/membership.py",
        "last = max(now - report.silence, heard, self._leading_since)",
        "last = now - report.silence",
        f"{RECOVERY_PLANNER}::test_suspect_that_is_heard_again_is_not_declared_dead",
    ),
    Break(
        "rc-proof-stays",
        "services/scar_recovery/core/membership.py",
        "if failure is not None and not failure.report.proved:\n            del",
        "if failure is not None:\n            del",
        f"{RECOVERY_MEMBERSHIP}::test_a_heartbeat_does_not_bring_the_proved_dead_back",
    ),
    Break(
        "rc-supersede",
        "services/scar_recovery/core/membership.py",
        "and old.key != member.key:",
        "and old.key == member.key:",
        f"{RECOVERY_PLANNER}::test_workers_share_an_epoch_and_keep_their_ranks",
    ),
    Break(
        "rc-fresh",
        "services/scar_recovery/core/block_sources.py",
        "return pushes, group.clock, in_memory",
        "return group.clock, pushes, in_memory",
        f"{RECOVERY_BLOCK_SOURCES}::test_more_pushes_count_more_than_a_later_clock",
    ),
    Break(
        "rc-clock",
        "services/scar_recovery/core/epoch_draft.py",
        "if saved is not None and (intent.rollback or not survivors):",
        "if saved is not None:",
        f"{RECOVERY_MEMBERSHIP}::test_survivors_open_clock_is_nobodys_business_but_theirs",
    ),
    Break(
        "rc-level",
        "services/scar_recovery/core/rebalance.py",
        "goal[richest[:rest]] += 1",
        "goal[:rest] += 1",
        "tests/unit/test_recovery_rebalance.py::test_the_odd_blocks_stay_with_those_who_have_most",
    ),
    Break(
        "rc-winner",
        RC + "core/planner.py",
        "if epoch.author != self.author:",
        "if False:",
        "tests/unit/test_recovery_leader_killed.py::test_successor_finishes_whatever_was_begun",
    ),
    Break(
        "rc-rewrite",
        RC + "ledger_writer.py",
        "                            self._ledger.mark_unwritten(left.number)\n",
        "                            pass\n",
        "tests/unit/test_recovery_ledger_writer.py::"
        "test_a_record_that_the_store_did_not_take_is_written_with_the_next",
    ),
    Break(
        "rc-silent-copy",
        RC + "core/epoch_preparation.py",
        "if event.silent and not self._timed_out(",
        "if event.silent and self._timed_out(",
        f"{RECOVERY_BLOCK_SOURCES}::test_a_survivor_that_does_not_answer_is_waited_for",
    ),
    Break(
        "rc-history",
        "services/scar_recovery/recovery_store.py",
        "if len(found) >= HISTORY and found[-1].shards:",
        "if len(found) >= HISTORY or found[-1].shards:",
        f"{RECOVERY_STORE}::test_old_epochs_are_collected",
    ),
    Break(
        "rc-undetected",
        RC + "core/events.py",
        "detect_seconds: float = UNKNOWN_SECONDS",
        "detect_seconds: float = 0.0",
        "tests/unit/test_recovery_worker_deaths.py::test_one_that_dies_twice_has_two",
    ),
    Break(
        "rc-reported",
        "services/scar_recovery/core/ledger.py",
        "self._without_waiting(record, {report.worker}, now).with_reports([cost])",
        "record.with_reports([cost])",
        f"{RECOVERY_LEDGER}::test_lost_pushes_are_counted_once_per_worker",
    ),
    Break(
        "rc-first-clock",
        "services/scar_recovery/core/ledger.py",
        "for number in adopted if number >= record.epoch",
        "for number in adopted if number == record.epoch",
        f"{RECOVERY_LEDGER}::test_the_clock_is_the_highest_that_a_shard_told_first_after_the_failure",
    ),
    Break(
        "rc-unmeasured",  # the time since this leader leads is shown as the time that loading took
        "services/scar_recovery/core/ledger.py",
        "UNKNOWN_SECONDS if since is None or now is None else max(now - since, AT_ONCE)",
        "max((now or 0.0) - (since or 0.0), AT_ONCE)",
        f"{RECOVERY_LEDGER}::test_later_leader_goes_on",
    ),
    Break(
        "rc-rebuilt",
        "services/scar_recovery/core/ledger.py",
        "            commit_seconds=UNKNOWN_SECONDS,\n",
        "",
        "tests/unit/test_worker_strategies.py::test_a_later_leader_finds_the_rollback_in_its_epoch",
    ),
    Break(
        "rc-joined-clock",
        "services/scar_recovery/core/ledger.py",
        "            self._untold[number] = {shard.key for shard in epoch.shards}",
        "            self._untold[number] = {shard.key for shard in epoch.shards} | {'ps-3@1'}",
        f"{RECOVERY_LEDGER}::test_a_shard_that_joins_later_cannot_tell_the_clock_of_a_failure",
    ),
    Break(
        "rc-early-clock",
        "services/scar_recovery/core/ledger.py",
        "        self._heard[key] = adopted\n",
        "",
        f"{RECOVERY_LEDGER}::test_shards_may_tell_their_clock_before_the_ledger_knows_the_epoch",
    ),
    Break(
        "rc-saved-clock",
        "services/scar_recovery/core/ledger.py",
        "clock=max(saved, default=0),",
        "clock=0,",
        f"{RECOVERY_LEDGER}::test_where_no_survivor_tells_a_clock_that_of_what_came_back_is_known",
    ),
    Break(
        "rc-delta",
        "services/scar_recovery/core/ledger.py",
        "0 < sum(record.sources.values()) <= record.exact_blocks",
        "0 < record.exact_blocks",
        f"{RECOVERY_LEDGER}::test_delta_is_not_exact",
    ),
    Break(
        "rc-delta",
        "services/scar_runtime/failure_records.py",
        "for delta in best_comparisons(self.reports) if not delta.behind)",
        "for delta in best_comparisons(self.reports))",
        f"{RECOVERY_LEDGER}::test_delta_of_an_earlier_clock_is_not_exact_and_one_of_the_open_clock_is_preferred",
    ),
    Break(
        "rc-delta",
        "sdk/scar/_client/core/pull_buffer.py",
        "return self.clock >= clock and not replaced",
        "return not replaced",
        "tests/component/test_client_failures.py::"
        "test_values_that_were_pulled_a_clock_before_are_not_called_those_that_died",
    ),
    Break(
        "rc-delta",
        "sdk/scar/_client/core/comparisons.py",
        "                pulled.mark_replaced(ids[part])\n",
        "",
        "tests/component/test_client_failures.py::"
        "test_blocks_that_die_again_before_they_are_pulled_are_not_called_those_that_were",
    ),
    Break(
        "rc-told",
        "services/scar_recovery/epoch_log.py",
        "            self._changed.notify_all()\n\n    def get",
        "\n    def get",
        f"{RECOVERY_STORE}::test_waits_for_the_next_epoch",
    ),
    Break(
        "rc-after",
        "services/scar_recovery/epoch_log.py",
        "range(number + 1, newest + 1)",
        "range(number + 1, newest)",
        f"{RECOVERY_STORE}::test_epochs_come_in_order_without_gaps",
    ),
    Break(
        "rc-ready",
        "services/scar_recovery/core/epoch_delivery.py",
        "        self._clocks = {}\n        concerned",
        "        concerned",
        "tests/unit/test_recovery_epoch_delivery.py::test_what_was_loaded_of_an_epoch_says_nothing_of_the_next",
    ),
    Break(
        "rc-renewed",
        "services/scar_recovery/leader_session.py",
        "        executor.check_leads()\n        return number",
        "        return number",
        f"{RECOVERY_SERVICE}::test_lease_of_last_resort",
    ),
    Break(
        "rc-idle",
        "services/scar_recovery/job_lifecycle.py",
        "                self._check_idle()\n",
        "                pass\n",
        f"{RECOVERY_SERVICE}::test_start_and_workers",
    ),
    Break(
        "rc-skew",
        "services/scar_recovery/core/pod_evidence.py",
        "pod.ended > first_seen + SKEW,",
        "pod.ended > first_seen,",
        f"{RECOVERY_POD_EVIDENCE}::test_what_the_clocks_cannot_tell_apart_is_only_a_reason_to_ask",
    ),
    Break(
        "rc-pod-gone",
        "services/scar_recovery/core/pod_evidence.py",
        "if known is not None and known.uid == pod.uid:",
        "if known is not None:",
        f"{RECOVERY_POD_EVIDENCE}::test_the_old_pods_end_does_not_take_the_new_one_away",
    ),
    Break(
        "rc-said",
        "services/scar_recovery/core/pod_evidence.py",
        "if finding is not None and self._last_evidence.get(member.key) != said:",
        "if finding is not None:",
        f"{RECOVERY_POD_EVIDENCE}::test_a_container_that_ended_after_the_member_had_joined_is_a_proof",
    ),
    Break(
        "rc-attended",
        "services/scar_recovery/coordinator_registry.py",
        "            self._counts = {}  # nobody",
        "            pass  # nobody",
        "tests/unit/test_recovery_coordinator_registry.py::test_an_outage_of_redis_strikes_nobody_off",
    ),
    Break(
        "rc-late-clock",  # a leader that stood still took a survivor's clock of later for that of the failure
        "services/scar_recovery/core/ledger.py",
        "number = min((number for number in adopted",
        "number = max((number for number in adopted",
        f"{RECOVERY_LEDGER}::test_the_clock_is_that_of_the_repair_however_late_a_shard_is_asked",
    ),
    Break(
        "rc-late-clock",
        "services/scar_recovery/shard_client.py",
        "adopted = dict(status.adopted) or",
        "adopted =",
        "tests/simulation/test_kept.py::test_it_holds_now",
    ),
    Break(
        "rc-stale-header",  # what was read once counts as what the store has
        "services/scar_recovery/recovery_store.py",
        "        self._headers.forget(key)\n",
        "",
        "tests/unit/test_recovery_store.py"
        "::test_a_header_that_was_damaged_after_it_was_read_counts_as_the_store_has_it",
    ),
    Break(
        "rc-seals-newer",  # what was saved after the state that a job goes back to stays in the checkpoint
        "services/scar_recovery/recovery_store.py",
        "running = (self._newest_consistent(suspects) if full else newest_saved).running",
        "running = newest_saved.running",
        "tests/unit/test_recovery_store.py::test_a_consistent_state_with_a_damaged_block_is_none",
    ),
    Break(
        "rc-unread-saves",  # pushes were lost since the newest save could not be read, and no record said so
        "services/scar_recovery/core/ledger.py",
        "record.with_members((), (), _unread_saves(epoch)),",
        "record,",
        "tests/unit/test_recovery_ledger.py::test_a_repair_says_that_something_newer_could_not_be_read",
    ),
    Break(
        "rc-silent-shard",  # a new leader gave blocks of a shard away that worked and that it could not reach
        "services/scar_recovery/executor.py",
        "            block_lease(self._silent[-1].key)\n",
        "",
        "tests/unit/test_recovery_two_leaders.py"
        "::test_a_new_leader_takes_no_blocks_from_a_shard_that_it_cannot_keep_from_working",
    ),
)
