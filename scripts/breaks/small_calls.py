"""Calls in one message, and the turn that their threads take in the shard."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_APPLY_THREAD = "tests/unit/test_ps_apply_thread.py"
SMALL_CALLS = "tests/component/test_small_calls.py"

BREAKS = (
    Break(
        "ps-small-answer",
        "services/scar_ps/servicer.py",
        "        pull_encoder.require_small(found, short, segment, slots)\n",
        "",
        f"{SMALL_CALLS}::test_too_large_an_answer_in_one_message_is_refused_before_it_is_made",
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
)
