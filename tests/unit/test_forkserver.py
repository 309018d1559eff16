"""The fork server: copies are like processes of their own, and it says what became of each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scar_local import forks
from scar_local.forks import ForkServer
from scar_local.forkserver import NOT_STARTED, ORPHAN, Server
from scar_local.specs import machine_variables

REPORT = """
import gc, json, os, signal, sys, threading
import numpy
from pathlib import Path
tasks = len(os.listdir("/proc/self/task"))
paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
files = {os.readlink(path) for path in paths if os.path.exists(path)}
Path(sys.argv[1]).write_text(json.dumps({
    "argv": sys.argv[1:], "own": os.environ.get("OWN"),
    "leader": os.getpgid(0) == os.getpid() == os.getsid(0),
    "tasks": tasks, "files": sorted(files - {f"/proc/{os.getpid()}/fd"}), "random": numpy.random.random(),
    "gc": gc.isenabled(),
    "child": str(signal.getsignal(signal.SIGCHLD)), "main": __name__,
    "name": Path("/proc/self/comm").read_text().strip(),
}))
print("said", flush=True)
sys.exit(7)
"""


@contextmanager
def serving(folder: Path, *preload: str, **own: str) -> Iterator[ForkServer]:
    """A server that finds modules in this folder."""
    variables = {**machine_variables(), **own}
    path = os.pathsep.join([str(folder), variables["PYTHONPATH"]])
    made = ForkServer({**variables, "PYTHONPATH": path}, folder / "forkserver.log", preload)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    (tmp_path / "report.py").write_text(REPORT)
    with serving(tmp_path) as made:
        yield made


def await_end(pid: int) -> None:
    """The kernel ends it as soon as it can, which on a busy machine is not at once."""
    deadline = time.monotonic() + 60
    command = Path(f"/proc/{pid}/cmdline")
    while command.exists() and command.read_bytes():
        assert time.monotonic() < deadline, f"{pid} is alive"
        time.sleep(0.01)


def next_change(server: ForkServer) -> tuple[int, int]:
    deadline = time.monotonic() + 60
    while not (changes := server.changes()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)
    assert len(changes) == 1
    return changes[0]


def report(server: ForkServer, folder: Path, name: str, **own: str) -> dict[str, Any]:
    """What a module finds that runs in a copy."""
    file = folder / f"{name}.json"
    pid = server.spawn(name, ["module", "report", str(file)], {**os.environ, **own}, folder / f"{name}.log")
    assert next_change(server) == (pid, 7 << 8)
    assert (folder / f"{name}.log").read_text() == "said\n"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_copy_is_like_a_process_of_its_own(server: ForkServer, tmp_path: Path) -> None:
    first, second = report(server, tmp_path, "ps-0", OWN="mine"), report(server, tmp_path, "ps-1")
    assert first.pop("random") != second.pop("random")
    assert first == {
        "argv": [str(tmp_path / "ps-0.json")],
        "own": "mine",
        "leader": True,
        "tasks": 1,
        "files": sorted(["/dev/null", str(tmp_path / "ps-0.log")]),
        "gc": True,
        "child": str(signal.SIG_DFL),
        "name": "ps-0",
        "main": "__main__",
    }
    assert second["own"] is None


def test_ends_pauses_and_their_order_are_reported(server: ForkServer, tmp_path: Path) -> None:
    pid = server.spawn("sleeper", ["program", "sleep", "60"], dict(os.environ), tmp_path / "log")
    server.signal(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(next_change(server)[1])
    server.signal(pid, signal.SIGCONT)
    assert os.WIFCONTINUED(next_change(server)[1])
    server.signal(pid, signal.SIGKILL)
    assert next_change(server) == (pid, signal.SIGKILL)
    server.signal(pid, signal.SIGKILL)  # the number may mean another process by now


def test_a_server_that_dies_takes_its_processes_along_and_is_replaced(
    server: ForkServer, tmp_path: Path
) -> None:
    pid = server.spawn("sleeper", ["program", "sleep", "60"], dict(os.environ), tmp_path / "log")
    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert next_change(server) == (pid, signal.SIGKILL)
    await_end(pid)
    again = server.spawn("sleeper", ["program", "sleep", "60"], dict(os.environ), tmp_path / "log")
    assert again != pid
    assert not server.changes()


HEAVY = """
import os
from pathlib import Path
with Path(os.environ["IMPORTS"]).open("a") as file:
    file.write(f"{os.getpid()}\\n")
"""
ENDS_ITS_FIRST = HEAVY + "len(Path(os.environ['IMPORTS']).read_text().splitlines()) == 1 and os._exit(5)\n"
HANGS_ITS_FIRST = (
    HEAVY
    + "import time\nlen(Path(os.environ['IMPORTS']).read_text().splitlines()) == 1 and time.sleep(600)\n"
)
USER = (
    "import os, sys\nloaded = 'heavy' in sys.modules\nimport heavy\nprint(loaded, os.getpid())\nsys.exit(7)\n"
)


def play_users(folder: Path, heavy: str) -> list[list[str]]:
    """What two processes say, one after the other, that import what their server imports beforehand."""
    (folder / "heavy.py").write_text(heavy)
    (folder / "user.py").write_text(USER)
    imports = {"IMPORTS": str(folder / "imports")}
    logs = [folder / "one.log", folder / "other.log"]
    with serving(folder, "heavy", **imports) as made:
        deadline = time.monotonic() + 60
        while not made.ready():
            assert time.monotonic() < deadline, "it never was ready"
            time.sleep(0.01)
        for log in logs:
            pid = made.spawn("user", ["module", "user"], {**os.environ, **imports}, log)
            assert next_change(made) == (pid, 7 << 8), log.read_text()
    return [log.read_text().split() for log in logs]


def test_what_is_preloaded_is_imported_once(tmp_path: Path) -> None:
    (first, one), (second, other) = play_users(tmp_path, HEAVY)
    assert (first, second) == ("True", "True")
    [importer] = (tmp_path / "imports").read_text().split()
    assert len({importer, one, other}) == 3


@pytest.mark.parametrize("heavy", [ENDS_ITS_FIRST, HANGS_ITS_FIRST], ids=["ends", "hangs"])
def test_what_cannot_be_preloaded_is_imported_by_each(
    heavy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "READY_SECONDS", 60.0 if heavy is ENDS_ITS_FIRST else 3.0)
    (loaded, one), (again, other) = play_users(tmp_path, heavy)
    assert (loaded, again) == ("False", "False")
    assert (tmp_path / "imports").read_text().split()[1:] == [one, other]


def test_one_that_cannot_write_its_log_is_not_started(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "ps-0.log").mkdir()
    pid = server.spawn("ps-0", ["program", "true"], dict(os.environ), tmp_path / "ps-0.log")
    assert next_change(server) == (pid, NOT_STARTED << 8)


def serve_here(order: dict[str, Any]) -> bytes:
    """What a server in this process answers to an order, its last one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(json.dumps(order).encode() + b"\n")
        ours.shutdown(socket.SHUT_WR)
        before = signal.getsignal(signal.SIGCHLD)
        try:
            assert Server(theirs).serve() is None
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)
        theirs.shutdown(socket.SHUT_WR)
        return ours.recv(100)


def test_no_signal_goes_to_a_number_that_is_none_of_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have given it to a stranger."""
    signalled: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda *order: signalled.append(order))
    assert serve_here({"signal": signal.SIGKILL, "pid": os.getpid()}) == b""
    assert signalled == []


def test_a_system_that_refuses_is_an_error(
    monkeypatch: pytest.MonkeyPatch, server: ForkServer, tmp_path: Path
) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    order = {"name": "ps-0", "command": ["program", "true"], "environment": {}, "log": str(tmp_path / "log")}
    assert json.loads(serve_here(order)) == {"pid": 0}
    server._started = [0]  # what the other end makes of it
    monkeypatch.setattr(server, "_start_server", lambda: None)
    monkeypatch.setattr(server, "_send_order", lambda _order: None)
    with pytest.raises(OSError, match="refused another process"):
        server.spawn("ps-0", ["program", "true"], {}, tmp_path / "log")


def test_where_the_kernel_does_not_tell_a_pipe_does(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    read, write = os.pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-P", "-m", "scar_local.forkserver", "copy", str(read), "sleeper"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, pass_fds=[read]) as process:
        os.close(read)
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        os.close(write)
        assert process.wait(60) == ORPHAN
