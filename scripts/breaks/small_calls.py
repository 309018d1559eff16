"""Calls in one message, and the turn that their threads take in the shard."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_APPLY_THREAD = "tests/unit/test_ps_apply_thread.py"
SMALL_CALLS = "tests/component/test_small_calls.py"

LOOPBACK = "sdk/scar/wire/loopback_calls.py"
CONNECTIONS = "tests/component/test_loopback_calls.py"

BREAKS = (
    Break(
        "ps-small-answer",
        "services/scar_ps/servicer.py",
        "        pull_encoder.require_small(found, short, segment, slots)\n",
        "",
        f"{SMALL_CALLS}::test_too_large_an_answer_in_one_message_is_refused_before_it_is_made",
    ),
    Break(
        "loopback-caller-gone",  # an error of more than one read waits for the connection's time limit
        "services/scar_runtime/process/loopback_server.py",
        "not arriving.poll(0) or self",
        "self",
        f"{CONNECTIONS}::test_what_is_refused_of_more_than_one_read_is_told_at_once",
    ),
    Break(
        "ps-small-contents",  # each pull of a job whose workers heal is a stream: more messages
        "sdk/scar/wire/shard_link.py",
        "if fits and not (request.contents and self._refuses_contents):",
        "if fits and not request.contents:",
        "tests/simulation/test_idle_messages.py::test_workers_that_keep_what_they_pull_say_nothing_more",
    ),
    Break(
        "ps-small-push",
        "sdk/scar/wire/small_message.py",
        "    if len(wire) > SMALL_BYTES:",
        "    if False:",
        f"{SMALL_CALLS}::test_too_large_a_push_in_one_message_is_refused_and_changes_nothing",
    ),
    Break(
        "ps-turn",  # two threads in the core at once
        "services/scar_ps/apply_thread.py",
        "            with self._turn:  # who hangs with it hangs this thread, too, and the heart stops\n",
        "            if True:\n",
        f"{PS_APPLY_THREAD}::test_the_apply_thread_waits_while_a_caller_has_the_turn",
    ),
    Break(
        "ps-turn",
        "services/scar_ps/apply_thread.py",
        "free = not self._wanted.is_set() and not",
        "free = not",
        f"{PS_APPLY_THREAD}::test_a_call_overtakes_nothing_that_was_posted_before",
    ),
    Break(
        "loopback-impostor",
        LOOPBACK,
        "if hmac.compare_digest(receive_secret(connection, CONNECT_SECONDS), offer.proof):",
        "if receive_secret(connection, CONNECT_SECONDS):",
        f"{CONNECTIONS}::test_who_has_taken_the_port_of_another_machines_shard_gets_no_call",
    ),
    Break(
        "loopback-late-answer",
        LOOPBACK,
        "        except TimeoutError:\n            self._drop(connection)\n",
        "        except TimeoutError:\n",
        f"{CONNECTIONS}::test_who_is_frozen_costs_a_call_its_timeout_and_the_connection",
    ),
    Break(
        "loopback-strangers-key",
        "services/scar_runtime/process/loopback_server.py",
        "caller = self._callers.get(key)",
        "caller = next(iter(self._callers.values()), None)",
        f"{CONNECTIONS}::test_who_does_not_know_a_key_is_shown_the_door",
    ),
    Break(
        "loopback-other-machine",
        "services/scar_runtime/process/loopback_server.py",
        "if not is_local_peer(context.peer()):",
        "if False:",
        f"{CONNECTIONS}::test_a_caller_of_another_machine_is_offered_nothing",
    ),
)
