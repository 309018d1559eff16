"""Breaks of a shard's threads: calls that time out, loads, copies, rounds; each takes back one fix."""

from __future__ import annotations

from scripts.breaks.kind import Break

APPLY_THREAD = "services/scar_ps/apply_thread.py"
LOADER = "services/scar_ps/loader.py"
COPIES = "services/scar_ps/core/replication.py"
SHIPPER = "services/scar_ps/replica_sender.py"
ROUNDS = "services/scar_ps/core/checkpoint_round.py"

BREAKS = (
    Break(
        "stale-bases",  # what blocks contained whose copies were overwritten long ago is kept for ever
        "services/scar_ps/core/replica_store.py",
        "if self.stores and any(self.base_watermarks):",
        "if False:",
        "tests/unit/test_ps_replica_store.py::test_what_no_copy_contains_any_more_is_forgotten",
    ),
    Break(
        "B2",  # a call that runs at its deadline is given up, and what it brings is lost
        APPLY_THREAD,
        "if not call.done.wait(timeout) and call.withdraw():",
        "if not call.done.wait(timeout) and (call._claim.acquire(blocking=False) or True):",
        "tests/unit/test_ps_apply_thread.py::test_a_call_that_runs_at_its_deadline_is_waited_for",
    ),
    Break(
        "B2",  # a call whose caller has gone runs all the same
        APPLY_THREAD,
        "        self._claim.acquire()\n        return not self.done.is_set()",
        "        with self._claim:\n            return not self.done.is_set()",
        "tests/unit/test_ps_apply_thread.py::test_a_call_whose_turn_does_not_come_in_time_has_no_effect",
    ),
    Break(
        "B2",  # what is to be loaded is told once, to whoever asked for the epoch
        "services/scar_ps/core/ownership.py",
        "tuple(filter(None, map(self._remaining_load, (*self.loads, *loads))))",
        "self.loads",
        "tests/unit/test_ps_loader.py::test_a_store_that_is_away_loses_no_load",
    ),
    Break(
        "B2",  # nobody asks for loads again
        "services/scar_ps/core/shard.py",
        "        self._loads.start_due()\n",
        "",
        "tests/component/test_ps_service.py::test_loads_that_could_not_be_started_are_started_later",
    ),
    Break(
        "B2",  # the disk is asked before anything is read
        "services/scar_runtime/store/directory.py",
        "        seen = copy(self)  # nothing is asked of the disk, which may be away\n",
        "        seen = type(self)(self.url, self._root)\n",
        "tests/contract/test_store.py::test_a_disk_that_is_away_may_be_named",
    ),
    Break(
        "B1",  # what was copied while the sender gave up waiting counts as sent
        APPLY_THREAD,
        "        if not call.done.wait(timeout) and call.withdraw():\n",
        "        if not call.done.wait(timeout):\n",
        "tests/component/test_replica_sender.py::test_a_copy_that_takes_longer_than_the_sender_waits_is_sent",
    ),
    Break(
        "B1",  # what was copied and neither arrived nor failed counts as sent
        COPIES,
        "        for batch in chain.unanswered:",
        "        for batch in chain.unanswered[:0]:",
        "tests/unit/test_ps_replication.py::test_an_outgoing_batch_that_nobody_speaks_of_any_more_goes_again",
    ),
    Break(
        "B1",  # an outgoing batch that nobody speaks of waits for the next period
        "services/scar_ps/core/replication_chain.py",
        "self.urgent or bool(self.unanswered) or",
        "self.urgent or",
        "tests/unit/test_ps_replication.py::test_what_is_sent_on_and_not_spoken_of_goes_again",
    ),
    Break(
        "load-busy",  # a load waits for a busy apply thread, and ends the process when it is busy for long
        LOADER,
        "apply_thread.post(made)",
        "apply_thread.call(made, 0.01)",
        "tests/unit/test_ps_loader.py::test_a_load_that_ends_while_the_apply_thread_is_busy_is_installed",
    ),
    Break(
        "load-twice",  # each look starts what is under way again
        "services/scar_ps/core/loads.py",
        "                attempt.retry_at = None\n",
        "",
        "tests/unit/test_ps_loader.py::test_each_load_is_made_once_however_often_it_is_asked_for",
    ),
    Break(
        "B11",  # the end of a paused leader's round is taken for that of its successor's
        ROUNDS,
        "if (number, author) != (self.number, self._author):",
        "if number != self.number:",
        "tests/unit/test_ps_checkpoint_round.py::test_the_end_of_another_leaders_round_says_nothing_about_one_of_the_same_number",
    ),
    Break(
        "B11",  # a round is saved whatever the manifest names
        ROUNDS,
        "self.stage is ShardRoundStage.UPLOADED and object_key == own",
        "self.stage is ShardRoundStage.UPLOADED",
        "tests/unit/test_ps_checkpoint_round.py::test_a_manifest_that_names_another_object_saved_nothing",
    ),
    Break(
        "B11",  # the coordinator does not say which object it has listed
        "services/scar_checkpoint/core/events.py",
        'object_key=kept.get(shard.key, "")',
        'object_key=""',
        "tests/unit/test_checkpoint_coordinator.py::test_each_shard_hears_which_object_the_manifest_names",
    ),
    Break(
        "B11",  # nobody says whose round it is
        "services/scar_checkpoint/round_codec.py",
        "        author=author,\n        object_key",
        "        object_key",
        "tests/component/test_checkpoint_service.py::test_rounds_follow_the_clocks_and_save_what_has_changed_most",
    ),
    Break(
        "late-distances",  # distances of a former round say that everything is stored
        ROUNDS,
        "if candidates is self._started and",
        "if",
        "tests/unit/test_ps_checkpoint_round.py::test_distances_that_were_measured_for_a_former_round_do_not_count",
    ),
    Break(
        "B3",  # the shard's own calls and the coordinators' are refused with the workers'
        "services/scar_ps/core/shard.py",
        "if request.limited and limited >= MAX_PARKED:",
        "if len(self._parked) >= MAX_PARKED:",
        "tests/unit/test_ps_apply_thread.py::test_too_many_waiting_workers_are_refused_and_nobody_else",
    ),
    Break(
        "B3",  # an error that is not expected ends the process through its sender
        SHIPPER,
        "            except ScarError:  # what",
        "            except NotServing:  # what",
        "tests/component/test_replica_sender.py::test_an_apply_thread_that_does_not_hear_of_an_answer_gets_another",
    ),
    Break(
        "B9",  # a clock is finished before a shard has its mark
        "sdk/scar/_client/client.py",
        'self._marking = self.job.consistency == "bsp" and',
        "self._marking = False and",
        "tests/component/test_client_failures.py::test_a_worker_that_was_replaced_hears_of_it_before_its_clock_counts",
    ),
    Break(
        "clock-twice",  # a clock that is tried again finishes another one
        "sdk/scar/_client/client.py",
        "        if not self._marking:\n            self.pushes.wait_until",
        "        if True:\n            self.pushes.wait_until",
        "tests/component/test_client_failures.py::test_a_clock_that_is_tried_again_is_finished_once",
    ),
    Break(
        "load-problem",  # what a load that was given up could not do is said forever
        "services/scar_ps/core/loads.py",
        "for load in wanted}",
        "for load in (*self._attempts, *wanted)}",
        "tests/unit/test_ps_loader.py::test_blocks_that_have_moved_on_are_no_problem_any_more",
    ),
)
