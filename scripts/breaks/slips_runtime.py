"""Slips that a tired engineer might make in what services share: stores, heartbeats.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

RT = "services/scar_runtime/"
HEARTBEAT_SENDER = "tests/unit/test_heartbeat_sender.py"
LIVENESS_CONTRACT = "tests/contract/test_liveness.py"
OBJECTS = "tests/unit/test_objects.py"
PROGRESS_MONITOR = "tests/unit/test_progress_monitor.py"
RUNNING = "tests/unit/test_running.py"
SELECTION = "tests/unit/test_selection.py"
STORE_CONTRACT = "tests/contract/test_store.py"
STORE_S3_CONTRACT = "tests/contract/test_store_s3.py"

BREAKS = (
    # --- the chassis and the stores
    # --------------------------------------------------------------------------------------
    Break(
        "rt-lease",
        "services/scar_runtime/liveness/progress_monitor.py",
        "if confirmed or self.lease_valid():",
        "if asked:",
        f"{PROGRESS_MONITOR}::test_no_lease_before_recovery_has_confirmed_one",
    ),
    Break(
        "rt-resigned",
        "services/scar_runtime/liveness/progress_monitor.py",
        "return not self._given_up and ",
        "return ",
        f"{PROGRESS_MONITOR}::test_who_resigned_never_serves_again",
    ),
    Break(
        "rt-asked",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        "                self._liveness.renew_lease(asked)\n            return",
        "                self._liveness.renew_lease(self._liveness.now())\n            return",
        f"{HEARTBEAT_SENDER}::test_a_slow_answer_gives_a_shorter_lease_not_a_later_one",
    ),
    Break(
        "worker-beats",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        """for name in (*self._paths, *(["recovery"] if self._recovery is not None else [])):""",
        """for name in ("redis", "detector", "recovery"):""",
        f"{HEARTBEAT_SENDER}::test_a_worker_knows_the_detector_alone",
    ),
    Break(
        "rt-behind",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        "if reply.epoch == self._liveness.epoch:",
        "if reply.epoch:",
        f"{HEARTBEAT_SENDER}::test_redis_does_not_renew_who_is_behind_or_doomed",
    ),
    Break(
        "rt-doomed",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        "return standing.epoch <= self._liveness.epoch and not standing.lease_blocked",
        "return standing.epoch <= self._liveness.epoch",
        f"{HEARTBEAT_SENDER}::test_redis_does_not_renew_who_is_behind_or_doomed",
    ),
    Break(
        "rt-spared",
        "services/scar_runtime/liveness/heartbeat_store.py",
        "self._redis.srem(self._lease_block_key(key), by)",
        "self._redis.delete(self._lease_block_key(key))",
        f"{LIVENESS_CONTRACT}::test_a_beat_tells_that_one_is_doomed",
    ),
    Break(
        "rt-lead",
        "services/scar_runtime/liveness/heartbeat_store.py",
        "if holder != incarnation:",
        "if False:",
        f"{LIVENESS_CONTRACT}::test_one_leads_until_its_lease_ends",
    ),
    Break(
        "rt-standby",
        "services/scar_runtime/liveness/leader_lease.py",
        "self.is_held = self.is_held or self._now() >= self._patient_until",
        "self.is_held = True",
        "tests/unit/test_leader_lease.py::test_one_of_two_leads_and_goes_on_without_redis",
    ),
    Break(
        "rt-exit",
        "services/scar_runtime/process/app.py",
        "return 3 if isinstance(error, Fenced) else 1",
        "return 1",
        "tests/component/test_app.py::test_exit_codes",
    ),
    Break(
        "rt-newer-wins",
        "services/scar_runtime/checkpoint/running_checkpoint.py",
        "*(one for one in listed if one[0].key in base and one[0].key not in old - needed),\n"
        "            (ref, header),",
        "(ref, header),\n"
        "            *(one for one in listed if one[0].key in base and one[0].key not in old - needed),",
        "tests/unit/test_running.py"
        "::test_a_rewritten_object_stands_behind_older_ones_that_hold_the_same_blocks",
    ),
    Break(
        "rt-whole",
        "services/scar_runtime/checkpoint/running_checkpoint.py",
        "[ref.key in keys for ref in self.objects] + [False])",
        "[ref.key in keys for ref in self.objects] + [True])",
        f"{RUNNING}::test_a_block_at_its_initial_value_is_covered_by_nothing",
    ),
    Break(
        "rt-ties",
        "services/scar_runtime/checkpoint/top_keys.py",
        "keys += np.uint64((1 << ID_BITS) - 1) - global_ids",
        "keys += global_ids",
        f"{SELECTION}::test_priority_equals_the_full_sort",
    ),
    Break(
        "rt-rank",
        "services/scar_runtime/checkpoint/top_keys.py",
        "left = self.count - int(reached[place] - counts[digit])",
        "left = self.count - int(reached[place - 1])",
        f"{SELECTION}::test_priority_equals_the_full_sort",
    ),
    Break(
        "cp-late-count",
        "services/scar_checkpoint/core/rounds.py",
        "if self.search is not None and within == self.search.within:",
        "if self.search is not None:",
        "tests/unit/test_checkpoint_coordinator.py::"
        "test_a_late_count_of_an_earlier_question_is_not_added_to_a_later_one",
    ),
    Break(
        "rt-around",
        "services/scar_runtime/checkpoint/selection.py",
        "(order - decision.first) % job.blocks < decision.count",
        "(order - decision.first) < decision.count",
        f"{SELECTION}::test_round_robin_visits_every_block_in_turn",
    ),
    Break(
        "rt-nan",
        "services/scar_runtime/checkpoint/top_keys.py",
        "np.where(np.isnan(distances), np.float32(np.inf), distances)",
        "distances",
        f"{SELECTION}::test_a_distance_that_is_no_number_counts_as_infinite",
    ),
    Break(
        "rt-crc",
        "services/scar_runtime/store/records.py",
        ' or int(found["crc"], 16) != zlib.crc32(body):',
        ":",
        f"{RUNNING}::test_a_damaged_manifest_or_object_falls_back",
    ),
    Break(
        "rt-header-digest",
        "services/scar_runtime/checkpoint/header_reader.py",
        "    if hashlib.sha256(raw).digest() != ref.digest:\n",
        "    if False:\n",
        f"{OBJECTS}::test_every_bit_flip_is_found",
    ),
    Break(
        "rt-segment",  # a block whose segment was read in part would pass for damaged, or damage for whole
        "services/scar_runtime/checkpoint/object_reader.py",
        "begin = starts[bounds[segments]]",
        "begin = starts[rows]",
        f"{OBJECTS}::test_blocks_are_read_and_refused_with_their_segment",
    ),
    Break(
        "rt-older-format",
        "services/scar_runtime/store/records.py",
        "    if int(found[2]) < VERSION:\n",
        "    if False:\n",
        "tests/unit/test_records.py::test_an_older_format_is_refused_by_name",
    ),
    Break(
        "rt-unsigned",
        "services/scar_runtime/store/records.py",
        "    if store.signing_key is not None:\n",
        "    if False:\n",
        "tests/unit/test_signatures.py::test_what_has_no_signature_or_another_key_s_is_refused",
    ),
    Break(
        "rt-signed-elsewhere",
        "services/scar_runtime/store/signatures.py",
        "(place.encode(), head, body)",
        '(b"", head, body)',
        "tests/unit/test_signatures.py::test_a_record_stands_for_no_other_one",
    ),
    Break(
        "ps-epoch-of-another-digest",
        "services/scar_ps/epoch_sync.py",
        "if found.digest != digest:",
        "if False:",
        "tests/component/test_ps_service.py::test_an_epoch_is_what_the_store_has_and_not_what_its_bringer_says",
    ),
    Break(
        "rt-gap",
        "services/scar_runtime/checkpoint/object_reader.py",
        "missing[to] = False",
        "missing[:] = False",
        f"{OBJECTS}::test_several_groups_keep_what_belongs_to_them",
    ),
    Break(
        "rt-other-job",
        "services/scar_runtime/checkpoint/header_reader.py",
        'if text["job"] != job.name:',
        "if False:",
        f"{OBJECTS}::test_an_object_of_another_job_or_table_is_refused",
    ),
    Break(
        "rt-range",
        RT + "store/directory.py",
        "            file.seek(start)\n",
        "",
        f"{STORE_CONTRACT}::test_ranges_end_where_the_object_ends",
    ),
    Break(
        "rt-full",
        RT + "store/directory.py",
        "if error.errno in _FULL:",
        "if False:",
        f"{STORE_CONTRACT}::test_a_full_disk_leaves_nothing_behind",
    ),
    Break(
        "rt-s3-lost",
        RT + "store/s3.py",
        "if maybe_ours and self._already_holds(key, body):",
        "if maybe_ours:",
        f"{STORE_S3_CONTRACT}::test_a_create_that_was_lost_to_another_is_told_apart",
    ),
    Break(
        "rt-s3-again",
        RT + "store/s3.py",
        "return code not in _FULL and (",
        "return (",
        f"{STORE_S3_CONTRACT}::test_faults_that_stay_are_not_repeated",
    ),
    Break(
        "rt-s3-digest",  # a payload without TLS that nobody checks
        RT + "store/s3.py",
        "if self._with_digest:",
        "if not self._with_digest:",
        f"{STORE_S3_CONTRACT}::test_what_is_damaged_on_its_way_is_refused_and_sent_again",
    ),
    Break(
        "rt-s3-damaged",  # and one that is damaged is an error at once
        RT + "store/s3.py",
        '"429", "BadDigest")',
        '"429")',
        f"{STORE_S3_CONTRACT}::test_what_is_damaged_on_its_way_is_refused_and_sent_again",
    ),
    Break(
        "rt-heartbeat-unread",
        "sdk/scar/wire/timing.py",
        "return Timing(heartbeat_seconds(os.environ))",
        "return Timing()",
        "tests/unit/test_timing.py::test_a_process_is_told_its_heartbeat_and_takes_all_times_from_it",
    ),
    Break(
        "rt-heartbeat-wrong",  # a wrong one counts as the default, and nobody hears of it
        RT + "process/config.py",
        "    heartbeat_seconds(os.environ)\n",
        "",
        "tests/unit/test_timing.py::test_a_heartbeat_that_cannot_be_is_refused_by_name",
    ),
)
