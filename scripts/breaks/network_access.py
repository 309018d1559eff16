"""Doors that were open to whoever reaches the network of a cluster."""

from __future__ import annotations

from scripts.breaks.kind import Break

PRIVATE_CA = "tests/contract/test_private_ca.py"
ADDRESSES = "tests/unit/test_addresses.py"
FORGED = "tests/component/test_forged_addresses.py"
WATCH_LIST = "tests/unit/test_watch_list.py"
METRICS_SERVER = "tests/component/test_metrics_server.py"

BREAKS = (
    Break(
        "metrics-peer",
        "services/scar_runtime/process/metrics_server.py",
        " or peers[peer] >= MAX_PEER_CONNECTIONS",
        "",
        f"{METRICS_SERVER}::test_one_address_does_not_take_all_places",
    ),
    Break(
        "metrics-room",
        "services/scar_runtime/process/metrics_server.py",
        "len(self._open) >= MAX_CONNECTIONS or ",
        "",
        f"{METRICS_SERVER}::test_many_addresses_do_not_get_more_than_all_places",
    ),
    Break(
        "metrics-deadline",
        "services/scar_runtime/process/metrics_server.py",
        "request.shutdown(socket.SHUT_RDWR)",
        "pass",
        f"{METRICS_SERVER}::test_a_client_that_sends_a_byte_now_and_then_is_ended_too",
    ),
    Break(
        "redis-plain",
        "services/scar_runtime/liveness/redis_url.py",
        'if not url.startswith("rediss://"):',
        "if False:",
        f"{PRIVATE_CA}::test_a_ca_is_never_ignored",
    ),
    Break(
        "redis-ca",
        "services/scar_runtime/liveness/redis_url.py",
        "with_redis_ca(settings.redis, settings.redis_ca)",
        'with_redis_ca(settings.redis, "")',
        "tests/component/test_app.py::test_heartbeats_reach_a_redis_with_a_certificate_of_a_private_ca",
    ),
    Break(
        "address-foreign",
        "services/scar_runtime/process/claims.py",
        "caller and not self.any_address and not is_host_of(member.address, caller)",
        "False",
        f"{ADDRESSES}::test_a_member_is_where_it_calls_from",
    ),
    Break(
        "address-scheme",
        "services/scar_runtime/process/addresses.py",
        "host.lower() not in SCHEMES and ",
        "",
        f"{ADDRESSES}::test_what_grpc_would_take_for_something_else_is_no_address",
    ),
    Break(
        "donor-address",
        "services/scar_ps/servicer.py",
        "donor = self._epochs.find_shard(codec.member_from_proto(request.donor).key, request.epoch, job)",
        "donor = codec.member_from_proto(request.donor)",
        f"{FORGED}::test_a_shard_receives_from_shards_of_the_epoch_where_the_epoch_says",
    ),
    Break(
        "watch-strangers",
        "services/scar_detector/watch_list.py",
        "list(self._waiting)[: MAX_STRANGERS - len(self._strangers)]",
        "list(self._waiting)",
        f"{WATCH_LIST}::test_who_answers_makes_room",
    ),
    Break(
        "watch-turns",
        "services/scar_detector/monitor.py",
        "            self._watches.rotate()\n",
        "",
        f"{FORGED}::test_after_forged_heartbeats_an_honest_member_gets_its_turn",
    ),
)
