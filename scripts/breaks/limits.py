"""Limits that keep one caller from taking everything: threads, streams, watches, shared memory, commands."""

from __future__ import annotations

from scripts.breaks.kind import Break

PROCESS = "services/scar_runtime/process/"
STREAMS = "tests/component/test_request_streams.py"
HEALTH = "tests/component/test_health.py"

BREAKS = (
    Break(
        "silent-sender",
        PROCESS + "request_streams.py",
        "self._end_longest(SILENT_SECONDS, len(self._arriving))",
        "pass",
        f"{STREAMS}::test_silence_ends_with_a_typed_error",
    ),
    Break(
        "refused-request",
        PROCESS + "interceptors.py",
        "    with closing(requests.read(raws, context)) as messages:\n        yield map(decode, messages)\n",
        "    yield map(decode, requests.read(raws, context))\n",
        f"{STREAMS}::test_a_request_that_was_refused_is_waited_for_no_longer",
    ),
    Break(
        "silent-crowd",
        PROCESS + "request_streams.py",
        "if surplus > 0:",
        "if False:",
        f"{STREAMS}::test_of_many_connections_the_most_silent_give_way",
    ),
    Break(
        "one-connection",
        PROCESS + "server.py",
        '[*server_options(connection_ms), ("grpc.max_concurrent_streams", CONNECTION_STREAMS)]',
        "server_options(connection_ms)",
        f"{STREAMS}::test_one_connection_does_not_take_all_threads",
    ),
    Break(
        "calls-without-end",
        PROCESS + "server.py",
        "maximum_concurrent_rpcs=MAX_CALLS",
        "maximum_concurrent_rpcs=None",
        f"{STREAMS}::test_more_calls_than_may_wait_are_refused",
    ),
    Break(
        "probe-threads",
        PROCESS + "interceptors.py",
        "answer.experimental_thread_pool = self._probes",
        "pass",
        f"{STREAMS}::test_a_full_server_answers_the_failure_detector_and_health",
    ),
    Break(
        "watch-threads",
        PROCESS + "health_board.py",
        "or peers[peer] >= CONNECTION_WATCHES",
        "",
        f"{HEALTH}::test_one_connection_may_watch_only_so_often",
    ),
    Break(
        "deaf-watcher",
        PROCESS + "health_board.py",
        "watch.context.cancel()",
        "pass",
        f"{HEALTH}::test_who_does_not_listen_is_dropped",
    ),
    Break(
        "memory-by-thread",
        "sdk/scar/wire/shared_memory.py",
        "if not _is_process(offer.pid):",
        "if False:",
        "tests/unit/test_shared_memory_pool.py::test_a_thread_is_not_another_process",
    ),
    Break(
        "node-command",
        "services/scar_chaos/targets/node_control.py",
        "or not NODE_NAME.fullmatch(node)",
        "",
        "tests/unit/test_chaos_node_control.py::test_no_other_request_reaches_the_command",
    ),
    Break(
        "redis-password",
        "services/scar_runtime/process/config.py",
        'shown = "..."  # it may be the password alone',
        "pass",
        "tests/unit/test_config.py::test_a_password_in_a_malformed_url_of_redis_is_never_shown",
    ),
    Break(
        "start-too-large",  # a model of more than 64 MiB could not be started
        "sdk/scar/job_start.py",
        "    if total + framing + request.ByteSize() <= MAX_MESSAGE_BYTES:\n",
        "    if True:\n",
        "tests/unit/test_job_start.py::test_initial_values_that_do_not_go_into_one_message_are_uploaded_first",
    ),
    Break(
        "resume-sends-again",
        "sdk/scar/job_start.py",
        "    if not resume:\n",
        "    if True:\n",
        "tests/unit/test_job_start.py::test_a_job_that_is_resumed_keeps_its_own_however_large",
    ),
)
