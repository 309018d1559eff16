"""Breaks of reading bytes that nobody of ours has written: from Redis, the store and the wire."""

from __future__ import annotations

from scripts.breaks.kind import Break

LIVENESS_CONTRACT = "tests/contract/test_liveness.py"
TABLES = "tests/unit/test_tables.py"
FUZZ = "tests/fuzz/test_fuzz.py"
KEPT = f"{FUZZ}::test_an_input_that_showed_a_defect_shows_none_any_more"

BREAKS = (
    Break(
        "epoch-counts",  # a shard ends because of a clock that no array holds
        "sdk/scar/wire/epoch_messages.py",
        "    if max((message.clock, *message.watermark.values())) > MOST_COUNTED:\n",
        "    if False:\n",
        "tests/unit/test_epoch_messages.py::test_no_clock_and_no_push_is_beyond_what_arrays_hold",
    ),
    Break(
        "redis-numbers",
        "services/scar_runtime/liveness/heartbeat_store.py",
        "(ValueError, KeyError, TypeError, OverflowError, RecursionError)",
        "(ValueError, KeyError, TypeError)",
        f"{LIVENESS_CONTRACT}::test_what_is_malformed_is_left_out",
    ),
    Break(
        "lease-without-end",
        "services/scar_runtime/liveness/heartbeat_store.py",
        "return left == NO_EXPIRY or left > milliseconds",
        "return left > milliseconds",
        f"{LIVENESS_CONTRACT}::test_a_lease_that_nobody_renews_ends_whatever_its_expiry",
    ),
    Break(
        "lease-of-another-clock",  # a leader died while Redis' clock was wrong: nobody led for a day
        "services/scar_runtime/liveness/heartbeat_store.py",
        "return left == NO_EXPIRY or left > milliseconds",
        "return left == NO_EXPIRY",
        f"{LIVENESS_CONTRACT}::test_a_lease_that_nobody_renews_ends_whatever_its_expiry",
    ),
    Break(
        "block-of-another-clock",
        "services/scar_runtime/liveness/heartbeat_store.py",
        "if _stands_too_long(left, 1000 * LEASE_BLOCK_SECONDS):",
        "if False:",
        f"{LIVENESS_CONTRACT}::test_a_lease_block_of_a_dead_detector_ends_when_the_clock_of_redis_went_back",
    ),
    Break(
        "wrapped-offsets",
        "sdk/scar/table_checks.py",
        "is_ascending(offsets)",
        "bool((np.diff(offsets) > 0).all())",
        f"{TABLES}::test_offsets_whose_differences_wrap_are_refused",
    ),
    Break(
        "job-blocks",
        "sdk/scar/tables.py",
        'if self.blocks > MAX_BLOCKS:\n            raise ConfigError(\n                f"job {self.name}',
        'if False:\n            raise ConfigError(\n                f"job {self.name}',
        f"{TABLES}::test_too_many_blocks_are_refused_before_any_memory_is_taken",
    ),
    Break(
        "forged-epoch",
        "services/scar_ps/core/epochs.py",
        "        epoch.ensure_valid(state.job or job)\n",
        "",
        "tests/unit/test_ps_shard.py::test_an_epoch_that_does_not_fit_the_job_is_refused_and_changes_nothing",
    ),
    Break(
        "shown-password",
        "services/scar_runtime/process/config.py",
        'without_password(str(problem["input"]))',
        'str(problem["input"])',
        "tests/unit/test_config.py::test_a_bad_url_is_shown_without_its_password",
    ),
    Break(
        "hostile-record",
        "services/scar_runtime/store/records.py",
        "except (ValueError, RecursionError) as error:  # its text",
        "except MemoryError as error:  # its text",
        "tests/unit/test_records.py::test_a_body_that_cannot_be_read_is_typed_whatever_its_checksum",
    ),
    Break(
        "hostile-object",
        "services/scar_runtime/checkpoint/header_reader.py",
        "AttributeError, OverflowError, RecursionError) as error",
        "AttributeError) as error",
        "tests/unit/test_objects.py::test_a_header_of_impossible_numbers_is_corrupt_whatever_its_checksum",
    ),
    Break(
        "structured-dtype",  # numpy reads a dtype with commas as source text
        "sdk/scar/table_checks.py",
        'isinstance(name, str) and not re.fullmatch(r"[<>=|]?[A-Za-z]+[0-9]{0,3}", name)',
        "False",
        KEPT,
    ),
    Break(
        "negative-square",  # one report of a worker, and the coordinator's ledger fails
        "services/scar_runtime/failure_records.py",
        "0 <= delta.squared < math.inf",
        "math.isfinite(delta.squared)",
        KEPT,
    ),
    Break(
        "endless-sum",
        "services/scar_runtime/failure_records.py",
        "return min(sum(counts), MAX_COUNT)",
        "return sum(counts)",
        KEPT,
    ),
    Break(
        "initial-size",
        "services/scar_runtime/checkpoint/initial_arrays.py",
        "if size not in (-1, len(raw)):",
        "if False:",
        KEPT,
    ),
    Break(
        "initial-digest",  # who writes to the bucket changes x(0)
        "services/scar_runtime/checkpoint/initial_arrays.py",
        "if digest and hashlib",
        "if False and hashlib",
        "tests/unit/test_recovery_store.py::test_a_job_keeps_the_arrays_with_which_it_began",
    ),
    Break(
        "initial-key",  # shards are told of a job whose arrays have no place
        "services/scar_recovery/job_lifecycle.py",
        "declared = self._registry.declare_job(job, given, resume, start)",
        "self._registry.declare_job(job, given, resume, start); declared = job",
        "tests/component/test_recovery_service.py::test_a_job_names_the_array_that_was_given_by_its_digest",
    ),
    Break(
        "saved-step",
        "sdk/scar/worker_state.py",
        "if not 0 <= row[0] < MAX_STEP:",
        "if row[0] < 0:",
        KEPT,
    ),
    Break(
        "chaos-record",
        "services/scar_chaos/recorder.py",
        "(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)",
        "(ValueError, OverflowError, RecursionError)",
        KEPT,
    ),
    Break(
        "cluster-state",
        "services/scar_local/directory.py",
        "(OSError, ValueError, TypeError, KeyError, RecursionError)",
        "(OSError, ValueError, TypeError, KeyError)",
        KEPT,
    ),
    Break(
        "trial-record",
        "services/scar_compare/records.py",
        "except (ValueError, TypeError, RecursionError):",
        "except ValueError:",
        KEPT,
    ),
    Break(
        "printed-json",
        "services/scar_admin/tracebacks.py",
        "suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError)",
        "suppress(ValueError, TypeError, KeyError)",
        KEPT,
    ),
    Break(
        "long-number",
        "services/scar_chaos/targets/node_control.py",
        "text.isdecimal() and len(text) <= MOST_DIGITS",
        "text.isdecimal()",
        KEPT,
    ),
    Break(
        "long-clock",
        "services/scar_compare/kill_schedule.py",
        "@(\\d{1,18})",
        "@(\\d+)",
        KEPT,
    ),
)
