"""Who may do what in the bundled Redis: a real one reads the file that the chart renders, and each role does
all that its service does.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from scar.placement import Member, Role
from scar_local.redis import server_command
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from tests.helm.chart import CHART, ROOT, Object, Render, component, environment, named, pods

CLUSTER = "here.scar"
SERVICES = ROOT / "services"
KEYS = f"scar:{CLUSTER}"
ROLES = {
    "ps": Role.SHARD,
    "checkpoint": Role.CHECKPOINT,
    "recovery": Role.RECOVERY,
    "detector": Role.DETECTOR,
}
FREE = {"auth", "hello", "reset", "quit"}  # what everybody may
OTHER = Member(Role.SHARD, "ps-9", "bbbbbbbbbbbb", "127.0.0.1:2")
# what each service calls of its heartbeat store
USES = {
    "ps": {"ping", "record_heartbeat", "forget_member"},
    "checkpoint": {"ping", "record_heartbeat", "forget_member", "acquire_leader_lease"},
    "recovery": {
        *("ping", "record_heartbeat", "forget_member", "acquire_leader_lease"),
        *("read_heartbeats", "publish_epoch", "block_lease"),
    },
    "detector": {
        *("ping", "record_heartbeat", "forget_member"),
        *("read_heartbeats", "block_lease", "unblock_lease"),
    },
}


@dataclass
class AclServer:
    """``path``: of its socket. ``admin``: a user who may do everything, beside those of the chart. ``urls``:
    role -> its URL, as its pod is told.
    """

    path: str
    admin: redis.Redis
    urls: dict[str, str]

    def client(self, role: str) -> redis.Redis:
        return redis.Redis.from_url(self.urls[role], decode_responses=True)

    def granted(self, role: str) -> set[str]:
        """All commands that the user may call on some key."""
        user: Any = self.admin.execute_command("ACL", "GETUSER", role)
        rules = [user["commands"], *(one["commands"] for one in user["selectors"])]
        return {word[1:] for rule in rules for word in rule.split() if word.startswith("+")}


@pytest.fixture(scope="module")
def server(rendered: list[Object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclServer]:
    secret: dict[str, str] = named(rendered, "Secret", "scar-redis")["stringData"]
    folder = tmp_path_factory.mktemp("r")
    users, path = folder / "users.acl", folder / "s"
    users.write_text(f"{secret['users.acl'].strip()}\nuser admin on nopass ~* &* +@all\n")
    settings = folder / "redis.conf"
    settings.write_text(secret["redis.conf"].replace("/etc/scar/users.acl", str(users)))
    program = server_command(0, folder)[0]
    with (folder / "log").open("wb") as log:
        command = [program, str(settings), "--port", "0", "--unixsocket", str(path), "--dir", str(folder)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    admin = redis.Redis(unix_socket_path=str(path), username="admin", password="any", decode_responses=True)
    try:
        _await_answer(admin, folder / "log")
        urls = {
            key.removeprefix("SCAR_REDIS_").lower(): re.sub(r"redis://([^@]+)@.*", rf"unix://\1@{path}", url)
            for key, url in secret.items()
            if key.startswith("SCAR_REDIS_")
        }
        yield AclServer(str(path), admin, urls)
    finally:
        admin.close()
        process.kill()
        process.wait()


def _await_answer(admin: redis.Redis, log: Path) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            admin.ping()
            return
        except redis.RedisError:
            assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


# --- what each role does


def beat(store: HeartbeatStore, server: AclServer, role: str) -> None:
    """Also where a mark stands that would never go."""
    member = Member(ROLES[role], f"{role}-0", "aaaaaaaaaaaa", "127.0.0.1:1")
    store.record_heartbeat(member, 1, 1)
    server.admin.sadd(f"{KEYS}:doomed:{member.key}", "somebody")
    assert store.record_heartbeat(member, 2, 1).lease_blocked
    assert server.admin.ttl(f"{KEYS}:doomed:{member.key}") > 0


def lead(store: HeartbeatStore, server: AclServer, role: str) -> None:
    """Taken, renewed, somebody else's, and somebody else's for ever."""
    key = f"{KEYS}:leader:{role}"
    assert store.acquire_leader_lease(role, "one", 60)
    assert store.acquire_leader_lease(role, "one", 60)
    assert not store.acquire_leader_lease(role, "two", 60)
    server.admin.persist(key)
    assert not store.acquire_leader_lease(role, "two", 60)
    assert server.admin.ttl(key) > 0
    server.admin.delete(key)


DOES: dict[str, Callable[[HeartbeatStore, AclServer, str], object]] = {
    "ping": lambda store, _server, _role: store.ping(),
    "record_heartbeat": beat,
    "forget_member": lambda store, _server, _role: store.forget_member(OTHER.key),
    "read_heartbeats": lambda store, _server, _role: store.read_heartbeats(),
    "publish_epoch": lambda store, _server, _role: store.publish_epoch(3),
    "block_lease": lambda store, _server, role: store.block_lease(OTHER.key, role),
    "unblock_lease": lambda store, _server, role: store.unblock_lease(OTHER.key, role),
    "acquire_leader_lease": lead,
}


# What a client calls itself, which it may be denied: Redis 7.0 does not know it, and would refuse the file.
INTRODUCTION = "cmdstat_client|setinfo"


def test_the_file_names_no_command_that_is_younger_than_redis_7() -> None:
    assert "setinfo" not in (CHART / "files" / "redis.acl").read_text()


@pytest.mark.parametrize("role", USES)
def test_each_role_may_do_what_it_does_and_nothing_else(server: AclServer, role: str) -> None:
    server.admin.config_resetstat()
    store = HeartbeatStore(server.urls[role], CLUSTER)
    for method in sorted(USES[role]):
        DOES[method](store, server, role)
    store.close()
    stats: dict[str, Any] = server.admin.info("commandstats")  # type: ignore[assignment]
    stats.pop(INTRODUCTION, None)
    assert [name for name, one in stats.items() if one["rejected_calls"]] == []
    used = {name.removeprefix("cmdstat_") for name in stats} - FREE
    granted = server.granted(role)
    assert used - granted <= {
        "sadd",
        "persist",
        "ttl",
        "del",
        "config|resetstat",
        "info",
    }  # of the test itself
    assert granted - used <= {"time"}  # `scar doctor` on Kubernetes reads the recovery coordinator's URL


@pytest.mark.parametrize("role", [*USES, "test"])
def test_what_is_not_granted_is_refused(server: AclServer, role: str) -> None:
    user: Any = server.admin.execute_command("ACL", "GETUSER", role)
    assert all(rules["commands"].startswith("-@all ") for rules in (user, *user["selectors"]))
    assert "+@" not in str(user)
    client = server.client(role)
    for command in (
        *(
            "FLUSHALL",
            "FLUSHDB",
            "CONFIG GET *",
            "CONFIG SET dir /tmp",
            "KEYS *",
            "SCAN 0",
            "MONITOR",
            "SHUTDOWN",
        ),
        *("ACL LIST", "ACL WHOAMI", "CLIENT LIST", "CLIENT KILL TYPE normal", "EVAL x 0", "FUNCTION LIST"),
        *(
            "SUBSCRIBE a",
            "REPLICAOF a 1",
            "SAVE",
            "INFO",
            "SELECT 1",
            "SWAPDB 0 1",
            "WAIT 0 0",
        ),
    ):
        with pytest.raises(NoPermissionError):
            client.execute_command(*command.split())
    client.close()


STRANGE = f"scar:{CLUSTER}2"


@pytest.mark.parametrize(
    ("role", "words"),
    [
        *((role, ("HSET", f"{STRANGE}:beats", "a", "b")) for role in USES),
        *((role, ("GET", "anything")) for role in USES),
        *((role, ("GET", f"{STRANGE}:epoch")) for role in USES),
        *((role, ("SET", f"{KEYS}:epoch", "9")) for role in USES if role != "recovery"),
        *((role, ("SET", f"{KEYS}:leader:recovery", "me")) for role in USES if role != "recovery"),
        *((role, ("SET", f"{KEYS}:leader:checkpoint", "me")) for role in USES if role != "checkpoint"),
        *((role, ("DEL", f"{KEYS}:beats")) for role in USES),
        *((role, ("SET", f"{KEYS}:beats", "wrong kind")) for role in USES),
        *((role, ("SADD", f"{KEYS}:doomed:ps-0@1", "me")) for role in ("ps", "checkpoint")),
        ("ps", ("HGETALL", f"{KEYS}:beats")),
        ("test", ("GET", f"{KEYS}:epoch")),
        ("test", ("PING",)),
    ],
)
def test_other_keys_are_out_of_reach(server: AclServer, role: str, words: tuple[str, ...]) -> None:
    client = server.client(role)
    with pytest.raises(NoPermissionError):
        client.execute_command(*words)
    client.close()


def test_nobody_gets_in_without_a_user_and_its_password(server: AclServer) -> None:
    for login in ({}, {"username": "ps", "password": "wrong"}, {"username": "default", "password": ""}):
        client = redis.Redis(unix_socket_path=server.path, **login)
        with pytest.raises(redis.RedisError, match=r"authenticated|invalid username"):
            client.get("a")
        client.close()


def test_the_doctor_of_the_chart_only_reads_the_clock(server: AclServer) -> None:
    assert server.client("test").time()
    assert server.granted("test") == {"time"}


def test_the_uses_of_each_role_are_those_of_its_sources() -> None:
    """What the chassis does for all, what a leader does, and what the service itself does."""
    known = "|".join(DOES)
    for role, uses in USES.items():
        text = "".join(path.read_text() for path in (SERVICES / f"scar_{role}").rglob("*.py"))
        found = set(re.findall(rf"heartbeats\.({known})\(", text)) | {
            "ping",
            "record_heartbeat",
            "forget_member",
        }
        found |= {"acquire_leader_lease"} if "LeaderElection" in text else set()
        assert found == uses, role


def test_each_pod_logs_in_as_its_own_role(everything: list[Object]) -> None:
    secret = named(everything, "Secret", "scar-redis")["stringData"]
    for name, pod in pods(everything).items():
        told = environment(pod["spec"]["containers"][0]).get("SCAR_REDIS")
        if told is None:
            continue
        reference = told["secretKeyRef"]
        assert reference["name"] == "scar-redis", name
        assert secret[reference["key"]].startswith(f"redis://{component(pod)}:"), name
    passwords = [value for key, value in secret.items() if key.endswith(".password")]
    assert len(set(passwords)) == len(passwords) == len(ROLES) + 1
    readable = secret["users.acl"] + secret["redis.conf"]
    assert not any(word in readable for word in passwords), "the server needs their digests alone"
    (volume,) = [
        one for one in pods(everything)["Deployment/scar-redis"]["spec"]["volumes"] if "secret" in one
    ]
    assert {item["key"] for item in volume["secret"]["items"]} == {"redis.conf", "users.acl"}


def test_a_redis_outside_has_one_user_or_one_for_each_role(render: Render) -> None:
    outside = ("bundled.redis.enabled=false", "redis.existingSecret=ours")
    for values, keys in (
        (outside, {"SCAR_REDIS"}),
        ((*outside, "redis.urlPerRole=true"), {f"SCAR_REDIS_{role.upper()}" for role in (*ROLES, "test")}),
    ):
        told = [
            environment(pod["spec"]["containers"][0]).get("SCAR_REDIS")
            for pod in pods(render(*values)).values()
        ]
        assert {one["secretKeyRef"]["key"] for one in told if one} == keys
