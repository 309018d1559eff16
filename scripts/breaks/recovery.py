"""Breaks of the recovery coordinator's ledger and of who may lead a job."""

from __future__ import annotations

from scripts.breaks.kind import Break

ROLLBACKS = "tests/unit/test_recovery_rollbacks.py"
RECOVERY_WORKER_DEATHS = "tests/unit/test_recovery_worker_deaths.py"

BREAKS = (
    Break(
        "recovery-own-lease",  # two owners serve while a cluster gets another lease
        "services/scar_recovery/core/membership.py",
        "return max(self._lease, member.lease_seconds) if member is not None else self._lease",
        "return self._lease",
        "tests/unit/test_recovery_planner.py"
        "::test_the_longer_lease_of_a_shard_counts_in_this_leadership_and_the_next",
    ),
    Break(
        "lease-untold",
        "services/scar_runtime/process/app.py",
        "lease = settings.lease_seconds if role is Role.SHARD else 0.0",
        "lease = 0.0",
        "tests/system/test_slow_heartbeat.py"
        "::test_the_lease_that_a_shard_has_is_awaited_though_recoverys_own_is_shorter",
    ),
    Break(
        "lease-without-bound",
        "sdk/scar/wire/codec.py",
        "if not 0 <= lease <= MOST_LEASE:",
        "if lease < 0:",
        "tests/unit/test_codec.py::test_a_lease_that_would_keep_blocks_from_recovery_is_refused",
    ),
    Break(
        "beat-lease-without-bound",
        "services/scar_runtime/liveness/heartbeat_store.py",
        " and 0 <= lease <= MOST_LEASE else None",
        " else None",
        "tests/contract/test_liveness.py::test_what_is_malformed_is_left_out",
    ),
    Break(
        "simulated-heartbeat",
        "tests/simulation/__main__.py",
        'os.environ["SCAR_HEARTBEAT_SECONDS"] = str(heartbeat)',
        "pass",
        "tests/simulation/test_heartbeats.py::test_a_heartbeat_of_half_a_second_is_a_fifth_of_the_beats",
    ),
    Break(
        "kept-intent",  # an epoch that is written down stays in memory until the next one
        "services/scar_recovery/core/epoch_preparation.py",
        "commit if question is not None else None",
        "commit",
        "tests/unit/test_epoch_preparation.py::test_an_epoch_without_a_question_is_not_kept",
    ),
    Break(
        "waits-for-who-began-later",
        "services/scar_recovery/core/ledger.py",
        "if earlier.epoch < report.epoch and report.worker in earlier.waiting:",
        "if earlier.epoch == report.epoch and report.worker in earlier.waiting:",
        "tests/unit/test_recovery_ledger.py::test_worker_that_begins_later_is_not_waited_for",
    ),
    Break(
        "silent-beginning",
        "sdk/scar/_client/reroute_reports.py",
        "if not (first or cost):",
        "if not cost:",
        "tests/unit/test_reroute_reports.py::test_where_a_worker_begins_is_told_though_it_cost_nothing",
    ),
    Break(
        "links-of-the-dead",
        "sdk/scar/wire/link_pool.py",
        "        link = kept or _open_link(member)\n"
        "        try:\n"
        "            yield link\n"
        "        finally:\n"
        "            if kept is None:\n"
        "                link.close()\n",
        "        yield kept or self.connect(member)\n",
        "tests/component/test_remote_shards.py::test_who_was_only_asked_leaves_no_connection",
    ),
    Break(
        "rewind-nothing",
        "services/scar_recovery/core/epoch_intent.py",
        "rollback and lost_worker and any(one.key in served for one in shards)",
        "rollback and lost_worker",
        "tests/unit/test_worker_strategies.py::test_with_every_shard_dead_nothing_is_left_to_take_back",
    ),
    Break(
        "rewind-newcomers",  # shards that have just come stand for those that would go back
        "services/scar_recovery/core/epoch_intent.py",
        "any(one.key in served for one in shards)",
        "any(True for _ in shards)",
        "tests/unit/test_worker_strategies.py::"
        "test_a_worker_that_dies_when_no_shard_stays_takes_nothing_back",
    ),
    Break(
        "rollback-moves",  # blocks that were being moved are installed as they were, not put back
        "services/scar_recovery/core/next_epoch.py",
        "moved = () if dead or pending.rollback else pending.moved or ()",
        "moved = () if dead else pending.moved or ()",
        f"{ROLLBACKS}::test_a_move_that_has_just_ended_is_void",
    ),
    Break(
        "rollback-twice",  # each worker's request is done, one epoch after the other
        "services/scar_recovery/core/pending_rollback.py",
        "if epoch is None or is_answered(epoch, request.clock):",
        "if epoch is None:",
        f"{ROLLBACKS}::test_workers_that_ask_because_of_one_clock_get_one_rollback",
    ),
    Break(
        "rollback-too-late",  # to what was saved with the bad clock open
        "services/scar_runtime/checkpoint/good_state.py",
        "newest_clock(running) < spoilt",
        "newest_clock(running) <= spoilt",
        "tests/unit/test_good_state.py::test_no_block_of_it_is_of_the_bad_clock_or_a_later_one",
    ),
    Break(
        "rollback-not-finite",
        "services/scar_runtime/checkpoint/good_state.py",
        "np.isfinite(array).all()",
        "array.size",
        "tests/unit/test_good_state.py::test_one_with_a_value_that_is_no_number_is_passed_over",
    ),
    Break(
        "rollback-unbounded",
        "services/scar_recovery/rollback_desk.py",
        "if not may_roll_back(clock, self._ledger.rollback_clocks()):",
        "if False:",
        f"{ROLLBACKS}::test_it_is_refused_when_it_has_been_too_often",
    ),
    Break(
        "resumed-slots",  # a number that adds a slot is taken over: saved objects are of another rule then
        "services/scar_recovery/job_settings.py",
        "if _slots(job_from_proto(merged)) != _slots(job_from_proto(known)):",
        "if False:",
        "tests/unit/test_job_settings.py::test_a_number_that_decides_on_a_slot_stays",
    ),
    Break(
        "revision-unread",  # settings hold until a coordinator or a shard is started again
        "services/scar_runtime/store/job_records.py",
        "if not number:\n        return JobRevision(job=get_record(store, JOB, JobSpec))",
        "if True:\n        return JobRevision(job=get_record(store, JOB, JobSpec))",
        "tests/unit/test_job_settings.py::test_a_setting_changes_and_the_record_says_so",
    ),
    Break(
        "leader",
        "services/scar_recovery/executor.py",
        "        if not self.leads():  # else a leader that Redis names again tells its old epochs forever\n"
        "            return\n",
        "",
        "tests/unit/test_recovery_two_leaders.py::test_a_leader_that_nobody_asks_hears_of_its_successor",
    ),
    Break(
        "B8",
        "services/scar_runtime/failure_records.py",
        "        best = best.with_reports(other.reports)\n",
        "",
        "tests/unit/test_recovery_two_leaders.py::test_a_leader_that_wakes_up_overwrites_nothing",
    ),
    Break(
        "B8",
        "services/scar_recovery/leader_session.py",
        "        executor.ledger.accept_report(report)\n        executor.check_leads()\n",
        "        executor.ledger.accept_report(report)\n",
        "tests/component/test_recovery_service.py::test_a_deposed_leader_takes_no_report",
    ),
    Break(
        "B8",
        "services/scar_recovery/ledger_writer.py",
        "        self._unread |= before is not None and before.author != epoch.author\n",
        "",
        "tests/unit/test_recovery_two_leaders.py::test_what_two_leaders_were_told_comes_together",
    ),
    Break(
        "B7",
        "sdk/scar/_client/reroute_reports.py",
        "                return False\n",
        "                return True\n",
        "tests/unit/test_reroute_reports.py::test_a_report_is_told_until_it_is_taken",
    ),
    Break(
        "B7",
        "sdk/scar/training.py",
        "self._client.flush_reports(min(timeout, REPORT_SECONDS if finished else LEAVE_SECONDS))\n",
        "pass\n",
        "tests/component/test_client_failures.py::test_a_worker_leaves_when_recovery_has_its_reports",
    ),
    Break(
        "deaths",
        "services/scar_recovery/core/next_epoch.py",
        "return pending.newest_failure + 1 if costs or _loses_worker(pending) else 0",
        "return pending.newest_failure + 1 if costs else 0",
        f"{RECOVERY_WORKER_DEATHS}::test_it_has_a_record_of_its_own",
    ),
    Break(
        "B5",
        "services/scar_recovery/job_lifecycle.py",
        "            self._ownership.claim(job.name, take_over)\n",
        "",
        "tests/component/test_recovery_clusters.py::test_a_second_cluster_cannot_go_on_with_a_job_that_is_trained",
    ),
    Break(
        "B5",
        "services/scar_recovery/job_ownership.py",
        "            self._check_gone(job, owner)\n",
        "            pass\n",
        "tests/component/test_recovery_clusters.py::test_an_empty_cluster_with_the_same_label_leaves_the_job_alone",
    ),
    Break(
        "B5",
        "services/scar_recovery/core/owner_watch.py",
        "if now - known.since >= EXPIRY else",
        "if now >= known.since else",
        "tests/unit/test_recovery_job_ownership.py::test_a_job_that_is_trained_is_not_given_away",
    ),
    Break(
        "B12",
        "sdk/scar/_client/client.py",
        "return Deadline(self.timeout, held=lambda: self.view.outage, patience=self._outage_timeout)",
        "return Deadline(self.timeout, patience=self._outage_timeout)",
        "tests/component/test_client_failures.py::test_while_recovery_waits_for_the_store_nobody_gives_up",
    ),
    Break(
        "B12",
        "services/scar_recovery/servicer.py",
        "outage=session.outage",
        'outage=""',
        "tests/component/test_recovery_service.py::test_store_outage_delays_recovery",
    ),
    Break(
        "B14",
        "services/scar_runtime/store/failure_log.py",
        "hashlib.sha256(one.block_ids).hexdigest()",
        'f"{hashlib.sha256(one.block_ids).hexdigest()[:9]}-{worker}"',
        "tests/unit/test_failures.py::test_a_failure_of_a_large_job_costs_little",
    ),
    Break(
        "B14",
        "sdk/scar/wire/lost_pushes.py",
        "LEVEL = 6",
        "LEVEL = 0",
        "tests/unit/test_lost_pushes.py::test_a_range_for_each_of_many_blocks_is_small",
    ),
    Break(
        "B14",
        "services/scar_recovery/ledger_writer.py",
        "for record in records[:PAGE]]",
        "for record in records]",
        "tests/component/test_recovery_service.py::test_the_ledger_is_listed_in_pages",
    ),
    Break(
        "B14",
        "services/scar_recovery/executor.py",
        "            self.store.collect_epochs(self.epochs.get(newest))\n",
        "",
        "tests/unit/test_recovery_leader_killed.py::test_epochs_do_not_pile_up",
    ),
    Break(
        "B14",
        "services/scar_recovery/recovery_store.py",
        "return self.read_epoch(number) if number > epoch.number else found",
        "return found",
        "tests/unit/test_recovery_store.py::test_a_leader_that_slept_until_its_number_was_collected_is_deposed",
    ),
    Break(
        "deaths",
        "services/scar_recovery/ledger_writer.py",
        "            if self._loaded[0] == epoch.number:  # the shards were faster than we\n",
        "            if False:\n",
        f"{RECOVERY_WORKER_DEATHS}::test_it_has_a_record_of_its_own",
    ),
    Break(
        "epochs-from-zero",
        "services/scar_recovery/metrics.py",
        '"traffic", "failure", "end"',
        '"traffic", "end"',
        "tests/unit/test_recovery_metrics.py::test_epochs_of_every_cause_are_counted_from_zero",
    ),
)
