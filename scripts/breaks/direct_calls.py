"""Calls over connections of their own: who is let in, what is believed, and what ends them."""

from __future__ import annotations

from scripts.breaks.kind import Break

CLIENT = "sdk/scar/wire/direct_calls.py"
FRAMES = "sdk/scar/wire/direct_frames.py"
SERVER = "services/scar_runtime/process/direct_server.py"
CONTEXT = "services/scar_runtime/process/direct_context.py"
LINK = "sdk/scar/wire/shard_link.py"
CONNECTIONS = "tests/component/test_direct_calls.py"
STREAMS = "tests/component/test_direct_streams.py"
MACHINES = "tests/component/test_direct_between_machines.py"

BREAKS = (
    Break(
        "direct-caller-gone",  # an error of more than one read waits for the connection's time limit
        CONTEXT,
        "not arriving.poll(0) or socket",
        "socket",
        f"{CONNECTIONS}::test_what_is_refused_of_more_than_one_read_is_told_at_once",
    ),
    Break(
        "direct-impostor",
        CLIENT,
        "if hmac.compare_digest(receive_secret(opened, CONNECT_SECONDS), offer.proof):",
        "if receive_secret(opened, CONNECT_SECONDS):",
        f"{CONNECTIONS}::test_who_has_taken_the_port_of_another_machines_shard_gets_no_call",
    ),
    Break(
        "direct-late-answer",
        CLIENT,
        """        self.drop(connection)
        return as_call_error(error)
""",
        "        return as_call_error(error)\n",
        f"{CONNECTIONS}::test_who_is_frozen_costs_a_call_its_timeout_and_the_connection",
    ),
    Break(
        "direct-strangers-key",
        SERVER,
        "caller = self._callers.get(key)",
        "caller = next(iter(self._callers.values()), None)",
        f"{CONNECTIONS}::test_who_does_not_know_a_key_is_shown_the_door",
    ),
    Break(
        "direct-other-machine",  # served in the clear, on an address of this machine alone
        SERVER,
        "        local = is_local_peer(context.peer())\n",
        "        local = True\n",
        f"{CONNECTIONS}::test_a_caller_of_another_machine_is_offered_nothing_where_only_this_one_is_served",
    ),
    Break(
        "direct-in-the-clear",
        SERVER,
        "connection = accepted if local else self._encrypt(accepted)",
        "connection = accepted",
        f"{MACHINES}::test_small_and_large_calls_are_encrypted",
    ),
    Break(
        "direct-no-certificate",
        "sdk/scar/wire/certificates.py",
        "    context.verify_mode = ssl.CERT_REQUIRED\n",
        "    context.verify_mode = ssl.CERT_OPTIONAL\n",
        f"{MACHINES}::test_a_stranger_is_shown_the_door_and_nobody_else",
    ),
    Break(
        "direct-any-role",  # a worker of the cluster may take a shard's port
        CLIENT,
        "server_hostname=own.identity.peer_name(self._role)",
        "server_hostname=own.identity.name",
        f"{MACHINES}::test_who_took_the_port_with_another_roles_certificate_hears_no_key",
    ),
    Break(
        "direct-silent-strangers",
        SERVER,
        "crowded = len(self._connections) >= CONNECTIONS or self._strangers >= STRANGERS",
        "crowded = len(self._connections) >= CONNECTIONS",
        f"{MACHINES}::test_silent_strangers_do_not_crowd_out_who_has_connected",
    ),
    Break(
        "direct-never-again",
        CLIENT,
        "self._again = time.monotonic() + AGAIN_SECONDS",
        "self._refused = True",
        f"{MACHINES}::test_a_port_that_cannot_be_reached_means_grpc_until_it_is_tried_again",
    ),
    Break(
        "direct-refused-midway",  # what still comes of a push would be taken for the next call
        SERVER,
        "            messages.drain()\n",
        "",
        f"{STREAMS}::test_a_large_push_that_is_refused_is_told_why_and_keeps_the_connection",
    ),
    Break(
        "direct-left-stream",  # the rest of an answer would be taken for the next one
        CLIENT,
        "            self._connections.drop(connection)\n",
        "            self._connections.finish(connection, DirectAnswer())\n",
        f"{STREAMS}::test_a_pull_that_is_left_costs_its_connection_and_nothing_else",
    ),
    Break(
        "direct-silent-sender",
        CONTEXT,
        "        end_connection(self._connection, socket.SHUT_RD)\n",
        "",
        f"{STREAMS}::test_a_sender_that_falls_silent_is_told_and_loses_its_connection",
    ),
    Break(
        "direct-lost-rest",
        FRAMES,
        "        self._rest = start[end:]\n",
        '        self._rest = b""\n',
        "tests/component/test_direct_frames.py::test_frames_that_come_together_are_told_apart",
    ),
    Break(
        "direct-streams-by-grpc",
        LINK,
        "                if answer is not None:\n",
        "                if False:\n",
        f"{STREAMS}::test_large_pushes_and_pulls_go_over_direct_connections",
    ),
    Break(
        "direct-pulled-overwritten",  # the next answer comes in its place
        "sdk/scar/wire/tensor_reader.py",
        "whole = chunk.lasting and len",
        "whole = len",
        f"{STREAMS}::test_what_was_pulled_stays_when_more_is_pulled",
    ),
    Break(
        "restored-elsewhere",
        "sdk/scar/_client/push_stream.py",
        'blocks.squared_distance(buffers[blocks.table, ""])',
        "blocks.squared_distance(np.empty_like(blocks.cached))",
        "tests/system/test_large_delta.py::test_what_comes_back_is_measured",
    ),
    Break(
        "direct-pull-in-pieces",
        LINK,
        '(_WHOLE if lasting else b"")',
        'b""',
        f"{STREAMS}::test_what_has_room_in_a_message_comes_in_one_and_lasts",
    ),
    Break(
        "direct-header-late",
        LINK,
        'self._send_stream("Push", _headers_first(chunks), timeout)',
        'self._send_stream("Push", chunks, timeout)',
        f"{STREAMS}::test_a_long_header_goes_ahead_of_the_values",
    ),
    Break(
        "rule-uneven-pieces",  # C reads beyond them
        "services/scar_ps/core/segments.py",
        "    return size if all(one == size for one in sizes[:-1]) else 0\n",
        "    return sizes[0] if sizes else 0\n",
        "tests/unit/test_ps_segments.py::test_rows_that_lie_in_two_pieces_are_put_together",
    ),
)
