"""Breaks of a machine that has nothing, and of a start that cannot succeed."""

from __future__ import annotations

from scripts.breaks.kind import Break

LEADER_ELECTION = "tests/component/test_leader_election.py"

BREAKS = (
    Break(
        "start",
        "services/scar_local/preflight.py",
        "    check_store(store)\n",
        "",
        "tests/component/test_local_start.py::test_a_store_that_cannot_be_written",
    ),
    Break(
        "start",
        "services/scar_local/preflight.py",
        "        check_redis(redis_url)\n",
        "        pass\n",
        "tests/component/test_local_start.py::test_a_redis_of_ones_own_that_is_away",
    ),
    Break(
        "start",
        "services/scar_local/processes.py",
        "            child.refusal = str(error)\n",
        "",
        "tests/component/test_local_start.py::test_a_fork_server_that_dies",
    ),
    Break(
        "redis",
        "services/scar_local/redis.py",
        '["/bin/sh", "-c", _GUARD, "guard", str(server.pid)]',
        '["/bin/sh", "-c", "read _", "guard", str(server.pid)]',
        "tests/component/test_local_start.py::test_where_the_kernel_does_not_end_orphans_redis_ends_with_its_parent",
    ),
    Break(
        "redis",
        "services/scar_local/redis.py",
        "return program\n",
        'return Path("redis-server")\n',
        "tests/repo/test_sources.py::test_nothing_needs_a_program_that_a_machine_may_lack",
    ),
    Break(
        "election",
        "services/scar_runtime/liveness/leader_election.py",
        "        self._await_no_obstacle()\n",
        "",
        f"{LEADER_ELECTION}::test_a_coordinator_that_serves_no_older_members_does_not_lead_while_they_live",
    ),
    Break(
        "election",
        "services/scar_runtime/liveness/leader_election.py",
        "            except ScarError as error:\n",
        "            except LookupError as error:\n",
        f"{LEADER_ELECTION}::test_a_store_in_trouble_is_waited_for",
    ),
    Break(
        "election",
        "services/scar_runtime/liveness/leader_election.py",
        "except (UnsafeStore, ConfigError):",
        "except ConfigError:",
        f"{LEADER_ELECTION}::test_what_waiting_cannot_mend_ends_the_process",
    ),
    Break(
        "election",
        "services/scar_recovery/service.py",
        "ready=lambda: election.holds_lease,",
        "ready=lambda: True,",
        "tests/component/test_leader_election.py::test_health_is_what_is_tested_here",
    ),
    Break(
        "names",
        "services/scar_cli/demo/tally.py",
        "rolls_back(record.strategy)",
        'record.strategy == "full"',
        "tests/repo/test_sources.py::test_strategies_are_facts_not_names",
    ),
    Break(
        "names",
        "sdk/scar/strategies.py",
        "STRATEGIES.get(name) or WORKER_STRATEGIES.get(name)",
        "STRATEGIES.get(name)",
        "tests/unit/test_strategies.py::test_what_a_ledger_s_strategy_takes_back",
    ),
    Break(
        "layers",
        "pyproject.toml",
        '"scar_ps.core.**", "scar_recovery.core.**",',
        "",
        "tests/repo/test_sources.py::test_every_core_folder_is_kept_pure",
    ),
)
