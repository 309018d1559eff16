"""A break for each guarantee of docs/guarantees.md."""

from __future__ import annotations

from scripts.breaks.kind import Break

BREAKS = (
    Break(
        "G1",
        "services/scar_ps/core/pushes.py",
        "apply_part(part, rule, state.clock, state.progress)",
        "pass",
        "tests/unit/test_ps_shard.py::test_a_push_is_applied_on_arrival_and_seen_by_pulls",
    ),
    Break(
        "G2",
        "services/scar_ps/core/pushes.py",
        "if state.sequences.is_duplicate(push.sender, push.seq):",
        "if False:",
        "tests/unit/test_ps_shard.py::test_duplicates_in_any_interleaving_are_applied_once",
    ),
    Break(
        "G3",
        "services/scar_recovery/ledger_writer.py",
        "            self._ledger.add_report(report, self._now())\n        self.write()\n",
        "            self._ledger.add_report(report, self._now())\n",
        "tests/unit/test_recovery_ledger_writer.py::test_a_report_is_durable_when_it_is_taken",
    ),
    Break(
        "G3",
        "sdk/scar/_client/core/rerouting.py",
        "has_it = moves.watermarks(table, blocks.ids[at]) >= push.push_id",
        "has_it = moves.watermarks(table, blocks.ids[at]) >= 0",
        "tests/unit/test_rerouting.py::test_long_histories",
    ),
    Break(
        "G4",
        "services/scar_runtime/checkpoint/object_reader.py",
        "    if wrong.any():\n",
        "    if False:\n",
        "tests/unit/test_objects.py::test_every_bit_flip_is_found",
    ),
    Break(
        "G5",
        "services/scar_ps/core/shard.py",
        "if request.limited and not leased:",
        "if False:",
        "tests/unit/test_ps_apply_thread.py::test_without_a_lease_nothing_is_applied",
    ),
    Break(
        "G5",
        "services/scar_ps/apply_thread.py",
        "        if not self.leased:\n",
        "        if False:\n",
        "tests/unit/test_ps_apply_thread.py::test_a_lease_that_runs_out_while_applying_is_not_acknowledged",
    ),
    Break(
        "G5",
        "services/scar_ps/servicer.py",
        "short, slots, request.whole)\n        self._apply_thread.check_lease()\n",
        "short, slots, request.whole)\n",
        "tests/component/test_ps_service.py"
        "::test_a_lease_that_runs_out_while_values_are_sent_ends_their_stream_with_an_error",
    ),
    Break(
        "G5",
        "services/scar_runtime/store/directory.py",
        "os.link(file, target)",
        "os.replace(file, target)",
        "tests/contract/test_store.py::test_one_of_many_creates_wins",
    ),
    Break(
        "G6",
        "services/scar_recovery/core/epoch_draft.py",
        "    if intent.rollback:\n",
        "    if True:\n",
        "tests/unit/test_recovery_planner.py::test_survivors_keep_their_blocks",
    ),
    Break(
        "G7",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        """"redis": partial(self._send_to_redis, heartbeats), **self._paths}""",
        """"redis": partial(self._send_to_redis, heartbeats)}""",
        "tests/unit/test_heartbeat_sender.py::test_without_redis_the_detector_keeps_it",
    ),
    Break(
        "G7",
        "services/scar_runtime/liveness/heartbeat_sender.py",
        "        if not renewed or (self._member.role",
        "        if (self._member.role",
        "tests/unit/test_heartbeat_sender.py::test_without_redis_and_detector_recovery_keeps_it",
    ),
    Break(
        "G3",
        "services/scar_ps/core/pushes.py",
        "if waits and chain.replicated < chain.required_update(event.update):",
        "if False:",
        "tests/unit/test_ps_replication.py::test_an_acknowledgement_waits_for_the_next_replica",
    ),
    Break(
        "G5",
        "services/scar_ps/core/replica_store.py",
        "        self._sealed |= set(dead)\n",
        "",
        "tests/unit/test_ps_replication.py::test_after_a_claim_nothing_more_is_taken_from_the_dead",
    ),
    Break(
        "G8",
        "sdk/scar/wire/table_messages.py",
        "import zlib\n",
        "import pickle\nimport zlib\n",
        "tests/repo/test_sources.py::test_nothing_can_execute_what_it_reads",
    ),
    Break(
        "G9",
        "services/scar_ps/core/bsp_buffer.py",
        "sorted(pushes, key=lambda one: (ranks.get(one.sender.name, last), one.sender.key, one.push_id))",
        "list(pushes) if last >= 0 else []",
        "tests/unit/test_ps_shard.py::test_bsp_sums_do_not_depend_on_the_order_of_arrival",
    ),
    Break(
        "G10",
        "sdk/scar/wire/transport.py",
        "            return errors.from_rpc(error, self.target)",
        "            raise error",
        "tests/system/test_sdk_errors.py::test_nobody_listens",
    ),
    Break(
        "proxy-overloaded",
        "sdk/scar/errors.py",
        "    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,",
        "    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLarge,",
        "tests/unit/test_errors.py::test_a_bare_code_gets_a_class_and_names_the_peer",
    ),
    Break(
        "proxy-reset",
        "sdk/scar/errors.py",
        '    "RST_STREAM": Unreachable,\n',
        "",
        "tests/unit/test_errors.py::test_what_the_way_did_to_a_call_is_tried_again_and_a_bug_is_not",
    ),
)
