"""Breaks of what the command line says, and of what happens around a user's own code."""

from __future__ import annotations

from scripts.breaks.kind import Break

CLI_JOBS = "tests/unit/test_cli_jobs.py"
SOURCE = "tests/unit/test_function_source.py"
FUNCTIONS = "tests/system/test_function_training.py"

BREAKS = (
    Break(
        "forks",
        "sdk/scar/__init__.py",
        """"GRPC_ENABLE_FORK_SUPPORT", "0\"""",
        """"GRPC_ENABLE_FORK_SUPPORT", "1\"""",
        "tests/component/test_forks.py::test_grpc_leaves_forks_alone_unless_the_user_wants_it",
    ),
    Break(
        "forks",
        "sdk/scar/wire/transport.py",
        "    if os.getpid() != pid:\n",
        "    if False:\n",
        "tests/component/test_client_transport.py::test_a_forked_copy_opens_no_connection",
    ),
    Break(
        "forks",
        "services/scar_runtime/process/signals.py",
        "signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, ())",
        "tests/component/test_forks.py::test_a_signal_right_after_a_fork_ends_the_child_and_not_its_parent",
    ),
    Break(
        "load",
        "services/scar_worker/service.py",
        "    sys.path.insert(0, str(file.parent))",
        "    str(file.parent)",
        "tests/component/test_cli.py::test_a_file_gets_arguments_and_imports_its_neighbours_while_it_trains",
    ),
    Break(
        "load",
        "sdk/scar/jobfile.py",
        "if not frame.filename.startswith(OURS)",
        "if frame.filename",
        "tests/unit/test_client_jobfile.py::test_an_error_shows_the_users_own_lines_and_no_others",
    ),
    Break(
        "function",
        "services/scar_local/function_source.py",
        "if self._names.get(name) is not definition:",
        "if name not in self._names:",
        f"{SOURCE}::test_what_cannot_be_sent_is_named",
    ),
    Break(
        "function",
        "services/scar_local/function_source.py",
        "            self._add_name(used, source)\n",
        "            self._names.get(used)\n",
        f"{SOURCE}::test_what_it_uses_of_its_module_goes_along",
    ),
    Break(
        "function",
        "services/scar_local/function_source.py",
        "line {number - part.line + part.origin}",
        "line {number}",
        f"{SOURCE}::test_a_traceback_names_the_users_own_lines",
    ),
    Break(
        "function",
        "sdk/scar/__init__.py",
        "except ImportError as error:",
        "except ZeroDivisionError as error:",
        f"{SOURCE}::test_without_the_services_local_cluster_says_what_to_install",
    ),
    Break(
        "function",
        "services/scar_local/cluster.py",
        "            self._running_supervisor.stop(self._workers, WORKER_GRACE)\n",
        "            _ = self._workers\n",
        f"{FUNCTIONS}::test_an_interrupt_a_deadline_and_an_early_exit_leave_no_worker",
    ),
    Break(
        "function",
        "services/scar_local/function_training.py",
        "            if status.left_early(since):",
        "            if False:",
        f"{FUNCTIONS}::test_an_interrupt_a_deadline_and_an_early_exit_leave_no_worker",
    ),
    Break(
        "json",
        "services/scar_cli/output.py",
        "    return json_value(value)\n\n\ndef format_count",
        "    return str(value)\n\n\ndef format_count",
        "tests/unit/test_cli_output.py::test_json_has_every_field_and_no_nan",
    ),
    Break(
        "jobs",
        "services/scar_cli/jobs.py",
        "mine or (epoch.cause != END and any_shard_answers(epoch.shards))",
        "mine",
        f"{CLI_JOBS}::test_a_job_whose_shards_answer_is_not_removed",
    ),
    Break(
        "jobs",
        "services/scar_cli/jobs.py",
        "epochs, [JOB]):",
        "[JOB], epochs):",
        f"{CLI_JOBS}::test_a_removal_that_was_cut_short_can_be_repeated",
    ),
    Break(
        "extras",
        "services/scar_cli/__main__.py",
        "        if not (said := missing_extra_text(error)):\n",
        "        if (said := missing_extra_text(error)) is not None:\n",
        "tests/unit/test_cli_extras.py::test_a_missing_extra_is_named_in_one_line",
    ),
    Break(
        "resume",
        "services/scar_recovery/core/job_diff.py",
        "if known.get(name) != asked.get(name)",
        "if name not in known",
        "tests/unit/test_recovery_job_diff.py::test_field_by_field",
    ),
    Break(
        "jobs",
        "services/scar_cli/jobs.py",
        "if _beats(root.under(name)):",
        "if False:",
        "tests/unit/test_cli_jobs.py::test_a_job_whose_owner_beats_is_not_removed",
    ),
    Break(
        "up-web",
        "services/scar_cli/up.py",
        "if open_page is not None and target is not None:",
        "if False:",
        "tests/system/test_console.py::test_a_cluster_comes_up_with_its_page_and_ends_with_it",
    ),
)
