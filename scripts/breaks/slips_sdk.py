"""Slips that a tired engineer might make in the SDK.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

SDK = "sdk/scar/"
CLIENT_FAILURES = "tests/component/test_client_failures.py"
CLIENT_PULLS = "tests/unit/test_client_pulls.py"
CODEC = "tests/unit/test_codec.py"
PS_REPLICATION = "tests/unit/test_ps_replication.py"
REROUTING = "tests/unit/test_rerouting.py"
RESEND_BUFFER = "tests/unit/test_resend_buffer.py"

BREAKS = (
    # --- the SDK
    # --------------------------------------------------------------------------------------------------------
    Break(
        "sdk-released",
        "sdk/scar/_client/core/resend_buffer.py",
        "if push.applied_clock < oldest]",
        "if push.applied_clock <= oldest]",
        f"{RESEND_BUFFER}::test_bsp_keeps_a_part_until_its_clock_is_seen_closed",
    ),
    Break(
        "sdk-remembered",
        "sdk/scar/_client/worker_pulls.py",
        "if self._restored.get(wanted.table.name, 0) <= epoch:",
        "if self._view.number == epoch:",
        "tests/unit/test_client_pulls.py::test_a_pull_during_an_epoch_that_restores_nothing_is_remembered",
    ),
    Break(
        "sdk-lost-pull",  # a proxy lost its request, and the worker waited for its whole timeout
        "sdk/scar/_client/pulls.py",
        "min(self.limit.seconds(size), self.deadline.remaining)",
        "self.deadline.remaining",
        "tests/unit/test_client_pulls.py::test_a_request_that_is_lost_does_not_cost_the_whole_deadline",
    ),
    Break(
        "sdk-lost-push",
        "sdk/scar/_client/push_stream.py",
        "return min(self._streams.timeout, self._limit.seconds(size))",
        "return self._streams.timeout",
        "tests/component/test_client_lost_requests.py::test_a_request_that_is_lost_costs_one_try",
    ),
    Break(
        "sdk-short-tries",
        "sdk/scar/wire/transport.py",
        "self._factor *= 2",
        "self._factor *= 1",
        "tests/unit/test_client_pulls.py::test_a_request_that_is_lost_does_not_cost_the_whole_deadline",
    ),
    Break(
        "sdk-former-life",
        "sdk/scar/_client/worker_pulls.py",
        "if self._restored.get(wanted.table.name, 0) <= epoch:",
        "if wanted.complete:",
        "tests/unit/test_client_pulls.py::test_a_pull_during_an_epoch_that_restores_blocks_is_not_remembered",
    ),
    Break(
        "sdk-joined",
        "sdk/scar/_client/core/resend_buffer.py",
        "max(push.clock, clock, joins)",
        "push.clock",
        f"{RESEND_BUFFER}::test_bsp_a_late_part_belongs_to_the_clock_that_was_open",
    ),
    Break(
        "sdk-resume",
        "sdk/scar/_client/core/clocks.py",
        "start = min(told) if told",
        "start = max(told) if told",
        f"{RESEND_BUFFER}::test_where_pushes_are_queued_a_clock_is_done_again_for_the_shards_that_may_lack_it",
    ),
    Break(
        "ps-first-mark",
        "services/scar_ps/core/clocks.py",
        "first = event.finished if event.first is None else event.first",
        "first = event.finished",
        "tests/unit/test_ps_shard.py::test_a_shard_that_hears_late_of_a_new_incarnation_drops_what_that_one_has_done_itself",
    ),
    Break(
        "sdk-resume-low",
        "sdk/scar/_client/core/clocks.py",
        "    if not queues:\n",
        "    if False:\n",
        f"{RESEND_BUFFER}::test_where_a_new_incarnation_goes_on",
    ),
    Break(
        "sdk-empty-part",
        "sdk/scar/_client/core/rerouting.py",
        "if split.kept.tables or numbered:",
        "if split.kept.tables:",
        f"{REROUTING}::test_long_histories",
    ),
    Break(
        "sdk-contained",
        "sdk/scar/_client/core/rerouting.py",
        "blocks.ids[at]) >= push.push_id",
        "blocks.ids[at]) > push.push_id",
        f"{REROUTING}::test_long_histories",
    ),
    Break(
        "sdk-order",
        "sdk/scar/_client/core/rerouting.py",
        "        pushes.sort(key=lambda push: push.push_id)\n",
        "        pass\n",
        f"{REROUTING}::test_what_two_lanes_owe_one_new_owner_goes_in_the_order_of_the_pushes",
    ),
    Break(
        "sdk-report-once",
        "sdk/scar/_client/core/rerouting.py",
        "        reported[ids] = np.where(newest > after, newest, reported[ids])\n",
        "",
        f"{REROUTING}::test_no_contribution_is_lost_in_silence_or_counted_twice",
    ),
    Break(
        "sdk-last-wins",
        "sdk/scar/_client/core/pushes.py",
        'if table.rule.kind == "assign" or',
        "if",
        "tests/unit/test_client_pushes.py::test_repeated_ids_are_combined",
    ),
    Break(
        "sdk-slack",
        "sdk/scar/_client/core/clocks.py",
        "finished - slack",
        "finished",
        f"{CLIENT_PULLS}::test_how_old_a_pulled_value_may_be",
    ),
    Break(
        "sdk-gap",
        "sdk/scar/_client/client.py",
        "if known and epoch.number != known + 1:",
        "if False:",
        f"{CLIENT_PULLS}::test_an_epoch_that_was_skipped_is_an_error_and_not_followed",
    ),
    Break(
        "sdk-homeless",
        "sdk/scar/_client/core/push_state.py",
        "idle = not self.orphans and all(",
        "idle = all(",
        f"{CLIENT_FAILURES}::test_a_clock_is_not_finished_while_a_push_has_nowhere_to_go",
    ),
    Break(
        "sdk-pull-restart",
        "sdk/scar/_client/pulls.py",
        "                        wanted.discard_blocks()\n",
        "                        pass\n",
        f"{CLIENT_PULLS}::test_a_rollback_in_the_middle_of_a_pull_leaves_nothing_from_before",
    ),
    Break(
        "sdk-short-pull",
        "sdk/scar/_client/pulls.py",
        "    if awaited:\n        missing",
        "    if False:\n        missing",
        f"{CLIENT_PULLS}::test_a_stream_that_ends_before_every_table_came_is_no_answer",
    ),
    Break(
        "sdk-squares",
        "sdk/scar/_client/reroute_reports.py",
        "            delta.squared += squared\n",
        "            delta.squared = squared\n",
        f"{CLIENT_FAILURES}::test_the_report_measures_the_perturbation_exactly",
    ),
    Break(
        "sdk-first-error",
        "sdk/scar/_client/cluster_view.py",
        "self.failure = self.failure or error",
        "self.failure = error",
        f"{CLIENT_PULLS}::test_the_first_error_is_the_one_that_is_told",
    ),
    Break(
        "sdk-old-links",
        "sdk/scar/_client/cluster_view.py",
        "            self.links.retain({shard.key for shard in epoch.shards})\n",
        "",
        f"{CLIENT_PULLS}::test_connections_to_shards_that_left_are_closed_and_the_others_kept",
    ),
    Break(
        "sdk-backoff",
        "sdk/scar/wire/transport.py",
        "min(2 * self._now, self._most)",
        "2 * self._now",
        "tests/component/test_client_transport.py::test_backoff_grows_with_jitter_to_its_limit",
    ),
    Break(
        "sdk-ids",
        "sdk/scar/wire/codec.py",
        "if len(ids) and int(ids[-1]) >= blocks:",
        "if len(ids) and int(ids[-1]) > blocks:",
        f"{CODEC}::test_bad_ids_are_refused",
    ),
    Break(
        "sdk-restart",
        "sdk/scar/wire/epoch_messages.py",
        "        restart=epoch.restart,\n",
        "",
        f"{CODEC}::test_epoch_round_trip",
    ),
    Break(
        "sdk-range",
        "sdk/scar/wire/shared_memory.py",
        "if shared.offset + shared.bytes > len(room):",
        "if shared.offset > len(room):",
        "tests/unit/test_shared_memory_pool.py::test_a_range_ends_within_its_segment",
    ),
    Break(
        "sdk-ring",
        SDK + "placement.py",
        "min(job.strategy.replicas, len(ring) - 1)",
        "job.strategy.replicas",
        f"{PS_REPLICATION}::test_the_ring_is_the_same_for_everybody_and_only_neighbours_change",
    ),
    Break(
        "story-repeats",
        "sdk/scar/event_log.py",
        "if self._entries and _repeats(self._entries[-1], kept, actions, self._facts):",
        "if False:",
        "tests/unit/test_ps_story.py::test_an_idle_shard_does_not_fill_its_story",
    ),
    Break(
        "story-refusals",
        "sdk/scar/_client/core/push_state.py",
        "        if isinstance(event, EpochSettled | StepFailed):\n",
        "        if isinstance(event, EpochSettled):\n",
        "tests/unit/test_client_story.py::test_a_story_says_which_epochs_were_followed_and_who_refused",
    ),
    Break(
        "story-load-ids",
        "services/scar_ps/core/actions.py",
        '        return EventSummary("StartLoad", self.load.facts)\n',
        "        return self\n",
        "tests/unit/test_ps_story.py::test_a_story_says_why_and_keeps_no_blocks",
    ),
    Break(
        "sdk-small-ids",
        "sdk/scar/wire/shard_link.py",
        "if len(message) > small_message.SMALL_BYTES:",
        "if False:",
        "tests/component/test_small_calls.py::test_a_push_whose_ids_do_not_fit_travels_as_a_stream",
    ),
    Break(
        "sdk-small-aligned",
        "sdk/scar/wire/small_message.py",
        "aligned_field(_CHUNK_TAG, len(message), len(wire))",
        "aligned_field(_CHUNK_TAG, 0, len(wire))",
        "tests/unit/test_small_message.py::test_all_data_lie_where_numpy_computes_on_them",
    ),
    Break(
        "sdk-released-highest",  # a stream that is behind takes back what another one has released
        "sdk/scar/_client/core/rerouting.py",
        "push_id if push_id >= highest else np.maximum(newest[at], push_id)",
        "push_id",
        "tests/unit/test_acked_pushes.py"
        "::test_the_newest_push_of_a_block_counts_in_whatever_order_they_are_released",
    ),
    Break(
        "epoch-nobody",  # the index after the last shard's
        "sdk/scar/wire/epoch_messages.py",
        "    owners[owners == (1 << len(message.planes)) - 1] = NOBODY\n",
        "",
        "tests/unit/test_epoch_messages.py::test_owners_arrive_as_they_were",
    ),
    Break(
        "epoch-planes",  # all bits set are a shard's, too
        "sdk/scar/wire/epoch_messages.py",
        "highest = int(indices.max()) + 1 if",
        "highest = int(indices.max()) if",
        "tests/unit/test_epoch_messages.py::test_owners_arrive_as_they_were",
    ),
    Break(
        "sdk-late-shard",  # one that joins as the work ends hears that nothing more comes, and of no clock
        "sdk/scar/_client/core/clocks.py",
        "if self.done and (self.known is None or told >= self.known) else",
        "if self.done else",
        "tests/unit/test_ps_migration.py::"
        "test_a_shard_of_which_workers_hear_when_they_are_done_closes_the_last_clock",
    ),
)
