"""Breaks of what a job's life promises: "finished" is durable, and it is said what holds a training up."""

from __future__ import annotations

from scripts.breaks.kind import Break

FINISHER = "tests/unit/test_recovery_job_finisher.py"
RENDEZVOUS = "tests/unit/test_recovery_rendezvous.py"
START = "tests/component/test_recovery_start_again.py"
EPOCHS = "tests/unit/test_checkpoint_epochs.py"

BREAKS = (
    Break(
        "run-begins",
        "services/scar_recovery/job_lifecycle.py",
        "                self._state.begin_run()\n",
        "                pass\n",
        "tests/component/test_recovery_service.py::test_workers_of_a_resumed_job_wait_for_each_other",
    ),
    Break(
        "start-again",  # whoever's answer was lost hears that somebody else has started the job
        "services/scar_recovery/job_lifecycle.py",
        "if answer is not None and not resume and",
        "if False and",
        f"{START}::test_who_started_the_job_is_answered_by_every_leader",
    ),
    Break(
        "start-content",
        "services/scar_recovery/job_registry.py",
        "        if known.digest != start.digest:\n",
        "        if False:\n",
        f"{START}::test_an_id_of_another_job_is_refused",
    ),
    Break(
        "resume-again",
        "services/scar_recovery/job_lifecycle.py",
        "self._registry.revise_job(job, start)",
        "self._registry.revise_job(job)",
        f"{START}::test_a_resumption_with_other_settings_is_told_again_what_it_has_changed",
    ),
    Break(
        "start-race",  # a coordinator that led before may have carried the same request out
        "services/scar_recovery/job_registry.py",
        '            raise NotServing(f"job {spec.name!r} has just been started',
        '            raise JobExists(f"job {spec.name!r} has just been started',
        "tests/unit/test_recovery_job_start.py::test_whoever_loses_a_race_is_told_to_ask_again",
    ),
    Break(
        "start-id",
        "sdk/scar/job_start.py",
        "request_id=str(uuid.uuid4())",
        'request_id="start"',
        "tests/unit/test_job_start.py"
        "::test_a_request_that_is_sent_again_is_the_same_and_the_next_one_is_another",
    ),
    Break(
        "strategy-chosen",
        "services/scar_recovery/job_lifecycle.py",
        "if ends or running is None:",
        "if ends:",
        "tests/component/test_recovery_service.py"
        "::test_a_strategy_is_chosen_when_the_job_starts_and_kept_while_it_runs",
    ),
    Break(
        "strategy-declared",
        "services/scar_recovery/job_registry.py",
        '    spec.ClearField("choice")\n',
        "    pass\n",
        "tests/unit/test_recovery_strategy_choice.py"
        "::test_the_choice_is_in_the_job_s_record_and_no_part_of_what_was_declared",
    ),
    Break(
        "strategy-ledger",
        "services/scar_recovery/core/ledger.py",
        "return self._job.strategy.name if",
        "return self._job.recovery if",
        "tests/unit/test_recovery_ledger.py::test_the_ledger_names_the_strategy_that_was_chosen",
    ),
    Break(
        "run-former-workers",
        "services/scar_recovery/core/rendezvous.py",
        "member.key not in former for member",
        "True for member",
        f"{RENDEZVOUS}::test_workers_of_the_run_before_are_not_counted",
    ),
    Break(
        "run-next-leader",
        "services/scar_recovery/core/rendezvous.py",
        "former is not None or epoch.awaits_workers or",
        "former is not None or",
        f"{RENDEZVOUS}::test_a_new_leader_knows_who_waits",
    ),
    Break(
        "finished-full",
        "services/scar_recovery/job_finisher.py",
        "        if not manifest.full:\n",
        "        if False:\n",
        f"{FINISHER}::test_nothing_is_finished_before_every_block_is_durable",
    ),
    Break(
        "finished-dead",
        "services/scar_recovery/core/next_epoch.py",
        "<= pending.finished - pending.dead",
        "<= pending.finished | pending.dead",
        f"{FINISHER}::test_a_job_is_not_finished_by_workers_that_stop_or_die",
    ),
    Break(
        "finished-epoch",
        "services/scar_recovery/core/next_epoch.py",
        "        return epoch.finished\n",
        "        return 0\n",
        f"{FINISHER}::test_it_stays_finished_whatever_becomes_of_shards_until_somebody_works_again",
    ),
    Break(
        "finished-leave",
        "sdk/scar/_client/recovery_client.py",
        "            if finished and (reply.remaining or reply.epoch < epoch):\n",
        "            if False:\n",
        "tests/component/test_recovery_job_end.py::test_without_the_store_a_worker_does_not_hear_that_it_may_go",
    ),
    Break(
        "finished-clocks",
        "services/scar_checkpoint/core/manifest_chain.py",
        " or epoch.finished > 0)",
        ")",
        f"{EPOCHS}::test_after_the_last_push_every_block_is_a_consistent_state_whatever_the_shards_count",
    ),
    Break(
        "finished-record",
        "services/scar_recovery/job_finisher.py",
        "self._record if epoch is not None and self._record.number == epoch.finished else None",
        "self._record if epoch is not None else None",
        f"{FINISHER}::test_a_second_end_has_a_record_of_its_own",
    ),
    Break(
        "exit-main",
        "services/scar_runtime/process/app.py",
        "        except BaseException as error:  # a user's sys.exit",
        "        except Exception as error:  # a user's sys.exit",
        "tests/component/test_app.py::test_exit_codes",
    ),
    Break(
        "exit-left",
        "services/scar_worker/task.py",
        "if not isinstance(error, SystemExit) or error.code:",
        "if not isinstance(error, SystemExit):",
        "tests/component/test_client_worker.py::test_sys_exit_is_a_failure",
    ),
    Break(
        "stuck-lowest",
        "services/scar_admin/waits.py",
        "if one.clock == lowest and one.waited",
        "if one.waited",
        "tests/unit/test_waits.py::test_who_has_finished_the_fewest_clocks_is_waited_for",
    ),
    Break(
        "stuck-shards",
        "services/scar_admin/waits.py",
        "if shards < job.shards else []",
        "if shards < 1 else []",
        "tests/unit/test_waits.py::test_too_few_shards_and_how_to_go_on",
    ),
    Break(
        "stuck-stack",
        "services/scar_worker/stack.py",
        "*[frames[index] for index in reversed(own)][:MOST], ",
        "",
        "tests/unit/test_worker_stack.py::test_the_frames_of_the_users_file_come_first_then_what_they_call",
    ),
    Break(
        "stuck-told",
        "services/scar_cli/wait_reports.py",
        "            if wait.seconds >= SAY_SECONDS and now",
        "            if wait.seconds < SAY_SECONDS and now",
        "tests/unit/test_cli_commentary.py::test_a_holdup_is_told_after_five_seconds_with_the_stack_and_not_all_the_time",
    ),
    Break(
        "prints-once",
        "services/scar_local/growing_files.py",
        "        self._files[file] = ReadFile(known.read + len(data), rest)\n",
        "        self._files[file] = ReadFile(known.read + len(data))\n",
        "tests/unit/test_cli_commentary.py::test_lines_are_told_once_and_whole",
    ),
    Break(
        "prints-old",
        "services/scar_local/processes.py",
        "                        old.unlink(missing_ok=True)\n",
        "                        pass\n",
        "tests/unit/test_local_processes.py::test_what_a_worker_printed_goes_when_another_takes_its_name",
    ),
    Break(
        "loss-void",
        "services/scar_cli/commentary.py",
        "if not math.isfinite(loss)), default=-1)",
        "if loss is None), default=-1)",
        "tests/unit/test_cli_commentary.py::test_a_loss_that_is_no_number_is_said_once",
    ),
)
