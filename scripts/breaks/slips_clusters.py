"""Slips that a tired engineer might make in clusters here and on Kubernetes, and in commands.

Few tests were written for one of these alone: ``test`` names one that notices it.
"""

from __future__ import annotations

from scripts.breaks.kind import Break

LC = "services/scar_local/"
KB = "services/scar_kube/"
CLI = "services/scar_cli/"
CLI_CHECKPOINTS = "tests/unit/test_cli_checkpoints.py"
CLI_STATUS = "tests/unit/test_cli_status.py"
KUBE_REACH = "tests/unit/test_kube_reach.py"
KUBE_OPERATOR = "tests/unit/test_kube_operator.py"
KUBE_RELEASE = "tests/unit/test_kube_release.py"
LOCAL_CUT = "tests/unit/test_local_cut.py"
LOCAL_PROCESSES = "tests/unit/test_local_processes.py"

BREAKS = (
    Break(
        "ad-kept-stubs",  # of processes that have gone, for as long as somebody watches
        "services/scar_admin/channels.py",
        "for channel, stubs in self._stubs.items() if channel in kept}",
        "for channel, stubs in self._stubs.items()}",
        "tests/unit/test_admin_channels.py::test_it_goes_with_its_channel",
    ),
    Break(
        "ad-told-loss",  # a shard that has heard a loss alone would hide the metrics that another one has
        "services/scar_admin/status.py",
        "if known is not point and _informed(point) > _informed(known):",
        "if known is not point:",
        "tests/unit/test_cli_status.py::test_what_one_shard_lacks_another_one_has",
    ),
    Break(
        "lc-cut-far-end",
        LC + "network_cut.py",
        "if is_victims or (one.remote, one.local) in cut_links:",
        "if is_victims:",
        f"{LOCAL_CUT}::test_what_the_victim_sends_does_not_arrive_though_its_own_end_is_no_child_of_ours",
    ),
    Break(
        "lc-cut-new-connections",
        LC + "network_cut.py",
        "return SocketFilter.DATA if one.listens else None",
        "return None",
        f"{LOCAL_CUT}::test_connections_that_are_made_meanwhile_carry_nothing_of_the_victim",
    ),
    Break(
        "lc-cut-accept-queue",
        LC + "network_cut.py",
        "return not is_first and not any(table[inode].queued for inode in listening)",
        "return True",
        f"{LOCAL_CUT}::test_what_is_accepted_after_the_end_is_free_as_well",
    ),
    # --- clusters on this machine
    # ----------------------------------------------------------------------------------------
    Break(
        "lc-held",
        LC + "processes.py",
        "self._respawn and not child.held and returns:",
        "self._respawn and returns:",
        f"{LOCAL_PROCESSES}::test_it_stays_down_when_asked_to",
    ),
    Break(
        "lc-listen",
        LC + "processes.py",
        'child.address if child.spec.fixed else ""',
        '""',
        f"{LOCAL_PROCESSES}::test_a_fixed_address_survives_a_restart",
    ),
    Break(
        "lc-returns",
        LC + "process_spec.py",
        "return code < 0 or code == FENCED if self.worker",
        "return code < 0 if self.worker",
        f"{LOCAL_PROCESSES}::test_which_ends_of_a_worker_are_final",
    ),
    Break(
        "lc-lock",
        LC + "directory.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "tests/unit/test_local_directory.py::test_a_second_holder_is_told_what_to_do",
    ),
    Break(
        "lc-dead-pid",
        LC + "forkserver.py",
        "        if pid in self._living:\n            os.killpg(pid, number)\n",
        "        os.killpg(pid, number)\n",
        "tests/unit/test_forkserver.py::test_no_signal_goes_to_a_number_that_is_none_of_its_processes",
    ),
    Break(
        "lc-preload",
        LC + "forks.py",
        "        if not self._ready:\n            self._preload = ()\n",
        "        if not self._ready:\n",
        "tests/unit/test_forkserver.py::test_what_cannot_be_preloaded_is_imported_by_each",
    ),
    Break(
        "lc-orphan",
        LC + "forkserver.py",
        "signal.SIGKILL)\n    if os.getppid()",
        "0)\n    if os.getppid()",
        f"{LOCAL_PROCESSES}::test_children_die_with_their_parent_however_it_ends",
    ),
    Break(
        "lc-wins",
        LC + "specs.py",
        "**known, **own, **trusted, **self.environment}",
        "**self.environment, **known, **own, **trusted}",
        "tests/unit/test_local_specs.py::test_given_variables_win_over_the_clusters_own",
    ),
    # --- Kubernetes
    # ------------------------------------------------------------------------------------------------------
    Break(
        "kb-signal",
        KB + "pods.py",
        " and self.code < SIGNALLED",
        "",
        f"{KUBE_RELEASE}::test_which_end_of_a_worker_is_the_end_of_the_training",
    ),
    Break(
        "kb-seat",
        KB + "forwards.py",
        "if self._taken.get(replica) not in names:",
        "if replica not in self._taken:",
        f"{KUBE_RELEASE}::test_each_replica_has_its_port_and_keeps_its_pod",
    ),
    Break(
        "kb-spare",
        KB + "forwards.py",
        "        if time.monotonic() > until:\n",
        "        if False:\n",
        f"{KUBE_REACH}::test_a_tunnel_that_waited_too_long_is_not_used",
    ),
    Break(
        "kb-other-file",
        KB + "training.py",
        "if all(marks.get(key) == value for key, value in wanted.items()):",
        "if any(marks.get(key) == value for key, value in wanted.items()):",
        f"{KUBE_REACH}::test_a_training_is_followed_only_when_job_and_file_are_the_same",
    ),
    Break(
        "kb-login",
        KB + "release.py",
        'f"{login}@{address}" if login else address',
        "address",
        f"{KUBE_REACH}::test_a_password_of_redis_stays_when_it_is_reached_by_a_forward",
    ),
    Break(
        "kr-operator",
        KB + "operator.py",
        "if not self._secret or active_certificate() is not None:",
        "if not self._secret:",
        f"{KUBE_OPERATOR}::test_who_has_a_certificate_keeps_it",
    ),
    Break(
        "kr-operator-end",
        KB + "operator.py",
        "        files.callback(os.close, number)\n",
        "",
        f"{KUBE_OPERATOR}::test_this_process_is_the_operator_until_the_release_is_closed",
    ),
    # --- commands
    # --------------------------------------------------------------------------------------------------------
    Break(
        "cli-dead",
        CLI + "status.py",
        "if process is not None and not process.alive:",
        "if False:",
        f"{CLI_STATUS}::test_a_dead_process_is_not_called_alive_because_nobody_has_missed_it_yet",
    ),
    Break(
        "cli-parent",
        CLI + "verify.py",
        "if manifest.parent != number - 1:",
        "if False:",
        f"{CLI_CHECKPOINTS}::test_a_broken_chain_is_found",
    ),
    Break(
        "cli-two-places",
        CLI + "options.py",
        'if recovery or cluster != "local":',
        "if recovery:",
        "tests/unit/test_cli_options.py::test_two_places_at_once_are_refused",
    ),
    Break(
        "cli-nan",
        CLI + "output.py",
        "None if isinstance(value, float) and not math.isfinite(value) else value",
        "value",
        "tests/unit/test_cli_output.py::test_json_has_every_field_and_no_nan",
    ),
    Break(
        "cli-only-job",
        CLI + "checkpoints.py",
        "    if len(jobs) > 1:\n",
        "    if False:\n",
        f"{CLI_CHECKPOINTS}::test_what_is_not_there_is_said_with_what_is",
    ),
    Break(
        "compare-unmeasured",
        "services/scar_compare/cost_measures.py",
        "max((seconds for seconds in record[phase] if seconds >= 0), default=None)",
        "max(record[phase], default=None)",
        "tests/unit/test_compare.py::test_what_was_not_measured_is_no_number",
    ),
    Break(
        "compare-unnamed",
        "services/scar_compare/trial_runner.py",
        "return self._dead <= {key for record in failures for key in record.members} and all(",
        "return all(",
        "tests/unit/test_compare.py::test_a_training_is_not_over_before_the_ledger_names_who_was_killed",
    ),
    Break(
        "kube-convoy",  # on a machine that was full, forwards waited in a row that grew
        "services/scar_kube/release.py",
        "if called > self._asked and time.monotonic() > self._pods[0]:",
        "if time.monotonic() > self._pods[0]:",
        "tests/unit/test_kube_reach.py"
        "::test_one_answer_serves_all_who_wait_for_it_however_slow_the_api_server_is",
    ),
)
