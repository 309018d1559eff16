"""Breaks of who gets in, who answers, and what a failed handshake proves."""

from __future__ import annotations

from scripts.breaks.kind import Break

ACCESS = "tests/unit/test_access.py"
CERTIFICATES = "tests/unit/test_certificates.py"
TLS = "tests/component/test_tls.py"
CLAIMS = "tests/unit/test_claims.py"
SECRETS = "tests/component/test_member_secrets.py"
TOKEN = "tests/unit/test_cluster_token.py"
USERS = "tests/component/test_local_users.py"
BINDING = "tests/unit/test_binding.py"

BREAKS = (
    Break(
        "tls-guard",
        "services/scar_runtime/process/interceptors.py",
        "            check(context, method)\n"
        "            with opened(raws, context) as request:\n                return",
        "            with opened(raws, context) as request:\n                return",
        f"{TLS}::test_a_role_that_may_not_call_is_told_so",
    ),
    Break(
        "tls-cluster",
        "services/scar_runtime/process/access.py",
        "caller is None or caller.cluster != own.cluster",
        "caller is None",
        f"{ACCESS}::test_who_is_nobody_of_ours_may_call_nothing",
    ),
    Break(
        "tls-body-role",
        "services/scar_runtime/process/claims.py",
        "if caller is not None and caller.role != member.role.label:",
        "if False:",
        f"{CLAIMS}::test_a_member_is_of_its_callers_role",
    ),
    Break(
        "tls-leave-role",
        "services/scar_recovery/servicer.py",
        "        member = self._claims.read_caller(request.member, context)\n        members = ",
        "        member = codec.member_from_proto(request.member)\n        members = ",
        f"{CLAIMS}::test_a_member_is_of_its_callers_role",
    ),
    Break(
        "secret-wrong",
        "sdk/scar/member_secrets.py",
        "if known and not hmac.compare_digest(known, hash_secret(secret)):",
        "if False:",
        f"{SECRETS}::test_who_does_not_show_the_secret_is_not_that_member",
    ),
    Break(
        "secret-none",
        "services/scar_recovery/membership_api.py",
        "if len(secret) != SECRET_BYTES:",
        "if False:",
        f"{SECRETS}::test_nobody_joins_without_a_secret",
    ),
    Break(
        "secret-new-leader",
        "services/scar_recovery/core/membership.py",
        "        for member in current.values():\n            self._learn_secret(member)\n",
        "",
        f"{SECRETS}::test_the_next_leader_knows_who_everybody_is",
    ),
    Break(
        "tls-undeclared",
        "services/scar_runtime/process/access.py",
        "        if caller.role not in allowed:\n",
        "        if allowed and caller.role not in allowed:\n",
        f"{ACCESS}::test_what_is_not_declared_is_denied_to_all",
    ),
    Break(
        "tls-anonymous",
        "sdk/scar/wire/credentials.py",
        "require_client_authentication=True",
        "require_client_authentication=False",
        f"{TLS}::test_nobody_gets_in_without_a_certificate",
    ),
    Break(
        "tls-names",
        "sdk/scar/wire/certificates.py",
        "if len(found) == 1 else None",
        "if found else None",
        f"{CERTIFICATES}::test_other_names_are_nobody",
    ),
    Break(
        "tls-role",
        "sdk/scar/wire/certificates.py",
        "            if fresh.identity != self.identity:\n",
        "            if False:\n",
        f"{CERTIFICATES}::test_a_process_does_not_change_its_role",
    ),
    Break(
        "tls-renewal-server",
        "sdk/scar/wire/credentials.py",
        "        if fresh is shown[0]:\n",
        "        if fresh:\n",
        f"{TLS}::test_certificates_are_renewed_under_calls_that_go_on",
    ),
    Break(
        "tls-renewal-client",
        "sdk/scar/wire/secure_channel.py",
        "known is None or known.certificate is not certificate",
        "known is None",
        f"{TLS}::test_closing_ends_calls_of_earlier_connections_too",
    ),
    Break(
        "tls-hung-up",
        "services/scar_detector/death_watch.py",
        'answered and HUNG_UP in (error.details() or "")',
        'HUNG_UP in (error.details() or "")',
        f"{TLS}::test_a_watch_with_an_expired_certificate_is_no_hanging_up",
    ),
    Break(
        "tls-probe",
        "services/scar_detector/prober.py",
        "    except (ssl.SSLError, ConfigError):\n        return ProbeAnswer.UNVERIFIED\n",
        "",
        f"{TLS}::test_a_probe_with_an_expired_certificate_proves_nothing",
    ),
    Break(
        "token-guard",
        "services/scar_runtime/process/access.py",
        "        if not has_token(context, token):\n",
        "        if False:\n",
        f"{USERS}::test_every_method_is_denied_without_the_token",
    ),
    Break(
        "token-members",
        "services/scar_local/specs.py",
        'token = "" if self.certificates else str(ClusterDirectory(self.directory).token)',
        'token = ""',
        f"{USERS}::test_every_method_is_denied_without_the_token",
    ),
    Break(
        "token-file",
        "sdk/scar/wire/cluster_token.py",
        "    if mode & (stat.S_IRWXG | stat.S_IRWXO):\n",
        "    if False:\n",
        f"{TOKEN}::test_a_file_that_others_can_open_is_refused",
    ),
    Break(
        "token-prefix",
        "sdk/scar/wire/cluster_token.py",
        "wanted.encode())\n",
        "wanted.encode()[: len(shown)])\n",
        f"{TOKEN}::test_only_the_whole_token_counts",
    ),
    Break(
        "token-shared",
        "services/scar_local/cluster_operator.py",
        "active_token() if _running else",
        '"" if _running else',
        f"{USERS}::test_two_clusters_of_one_process_share_its_token",
    ),
    Break(
        "local-folder",
        "services/scar_local/private_files.py",
        "        path.chmod(stat.S_IMODE(mode) & ~OTHERS)\n",
        "        pass\n",
        f"{TOKEN}::test_a_folder_is_taken_from_all_others",
    ),
    Break(
        "local-redis",
        "services/scar_local/redis.py",
        "*([str(config)] if config else [])",
        "*[]",
        f"{USERS}::test_redis_wants_its_password",
    ),
    Break(
        "protocol-number",
        "services/scar_recovery/membership_api.py",
        "if OLDEST_PROTOCOL <= protocol <= PROTOCOL:",
        "if protocol >= OLDEST_PROTOCOL:",
        "tests/component/test_protocol_number.py::test_another_protocol_is_refused_and_training_goes_on",
    ),
    Break(
        "protocol-recall",
        "services/scar_recovery/membership_api.py",
        "                check_protocol(member, protocol)\n",
        "",
        "tests/component/test_protocol_number.py::test_who_is_refused_does_not_come_in_by_its_heartbeats",
    ),
    Break(
        "bind-insecure",
        "sdk/scar/wire/credentials.py",
        "        if not insecure and not is_loopback(listen):\n",
        "        if False:\n",
        f"{BINDING}::test_other_machines_reach_nothing_without_tls",
    ),
    Break(
        "bind-accepted",
        "services/scar_runtime/process/app.py",
        "insecure=settings.insecure",
        "insecure=True",
        "tests/component/test_app.py::test_it_serves_other_machines_without_tls_only_where_that_is_meant",
    ),
    Break(
        "tls-unseen",  # a renewed certificate that is of no use is found by the first peer that connects
        "services/scar_runtime/process/app.py",
        "            if self.certificate is not None:\n                self.certificate.current()",
        "            if False:\n                self.certificate.current()",
        "tests/unit/test_certificates.py::test_a_service_looks_at_its_files_though_nobody_connects",
    ),
)
