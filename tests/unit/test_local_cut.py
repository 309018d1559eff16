"""A cut of one process by filters on sockets: silent both ways, nobody else's, and over in any case."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_cli.clusters import DirectTarget
from scar_cli.cut import cut_local
from scar_cli.member_faults import faults_of
from scar_local import socket_filters
from scar_local.cuts import CutRequests, begin_cut, end_cut
from scar_local.directory import ClusterState
from scar_local.network_cut import NetworkCut
from scar_local.process_spec import Spec
from scar_local.processes import Supervisor
from scar_local.specs import machine_variables
from scar_local.tcp_sockets import TcpSocket, open_sockets, parse_table

SILENCE = 1.0  # seconds in which something would have come

# answers what it is sent, by connections that it takes and those that it is told to make
ECHO = """
import socket, sys, threading
def answer(peer):
    while data := peer.recv(9):
        peer.sendall(data)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def dial():
    for line in sys.stdin:
        peer = socket.create_connection(("127.0.0.1", int(line)))
        peer.sendall(b"hello")
        threading.Thread(target=answer, args=(peer,), daemon=True).start()
threading.Thread(target=dial, daemon=True).start()
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="filters on sockets of others are Linux' own")


class AnsweringProcess:
    """A process that answers."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", ECHO], stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    @property
    def pid(self) -> int:
        return self.process.pid

    def dial(self, port: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{port}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def echoes() -> Iterator[list[AnsweringProcess]]:
    made = [AnsweringProcess(), AnsweringProcess()]
    yield made
    for one in made:
        one.close()


def hears(peer: socket.socket, seconds: float) -> bytes:
    """What comes within this time."""
    peer.settimeout(seconds)
    try:
        return peer.recv(9)
    except TimeoutError:
        return b""


def accepted(listener: socket.socket) -> socket.socket:
    listener.settimeout(10)
    return listener.accept()[0]


def release(network: NetworkCut, own: list[int]) -> None:
    while not network.release(own):
        time.sleep(0.01)


def hears_while(network: NetworkCut, cut: int, own: list[int], peer: socket.socket) -> bytes:
    """What comes while the cut is kept, in :data:`SILENCE`, or earlier."""
    deadline = time.monotonic() + SILENCE
    while time.monotonic() < deadline:
        network.sweep([cut], own)
        if heard := hears(peer, 0.02):
            return heard
    return b""


@LINUX
def test_nothing_arrives_either_way_and_all_of_it_arrives_afterwards(echoes: list[AnsweringProcess]) -> None:
    victim, bystander = echoes
    own = [victim.pid, bystander.pid, os.getpid()]
    network = NetworkCut()
    with (
        socket.create_connection(("127.0.0.1", victim.port)) as talk,
        socket.create_connection(("127.0.0.1", bystander.port)) as other,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        talk.sendall(b"?")
        assert hears(talk, 10) == b"?"  # the other side has taken it
        victim.dial(server.getsockname()[1])
        with accepted(server) as dialled:
            assert hears(dialled, 10) == b"hello"
            network.sweep([victim.pid], own)
            talk.sendall(b"a")
            dialled.sendall(b"b")
            other.sendall(b"c")
            assert hears(other, 10) == b"c"
            assert hears(talk, SILENCE) == hears(dialled, 0.01) == b""
            release(network, own)
            assert (hears(talk, 30), hears(dialled, 30)) == (b"a", b"b")


@LINUX
def test_what_the_victim_sends_does_not_arrive_though_its_own_end_is_no_child_of_ours(
    echoes: list[AnsweringProcess],
) -> None:
    """As where two supervisors share a cluster: each has its own ends."""
    victim, _ = echoes
    network = NetworkCut()
    with socket.create_server(("127.0.0.1", 0)) as server:
        victim.dial(server.getsockname()[1])
        with accepted(server) as dialled:
            assert hears(dialled, 10) == b"hello"
            network.sweep([victim.pid], [os.getpid()])
            dialled.sendall(b"b")  # it is heard there, and answered
            assert hears(dialled, SILENCE) == b""
            release(network, [os.getpid()])
            assert hears(dialled, 30) == b"b"


@LINUX
def test_connections_that_are_made_meanwhile_carry_nothing_of_the_victim(
    echoes: list[AnsweringProcess],
) -> None:
    victim, bystander = echoes
    own = [victim.pid, bystander.pid, os.getpid()]
    network = NetworkCut()
    with socket.create_server(("127.0.0.1", 0)) as server:
        network.sweep([victim.pid], own)
        victim.dial(server.getsockname()[1])
        with accepted(server) as dialled:
            assert hears_while(network, victim.pid, own, dialled) == b""
            bystander.dial(server.getsockname()[1])
            with accepted(server) as other:
                assert hears_while(network, victim.pid, own, other) == b"hello"
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", victim.port), timeout=SILENCE)
            release(network, own)
            assert hears(dialled, 30) == b"hello"


@LINUX
def test_what_is_accepted_after_the_end_is_free_as_well(echoes: list[AnsweringProcess]) -> None:
    """A connection has the filter of who listened when it was made, wherever it waits."""
    victim, bystander = echoes
    own = [victim.pid, bystander.pid, os.getpid()]
    network = NetworkCut()
    with socket.create_server(("127.0.0.1", 0)) as server:
        network.sweep([victim.pid], own)
        bystander.dial(server.getsockname()[1])
        time.sleep(0.3)
        assert not network.release(own)
        assert not network.release(own), "nobody has accepted it"
        with accepted(server) as other:
            release(network, own)
            assert hears(other, 30) == b"hello"


@LINUX
def test_the_end_of_one_cut_leaves_another_one(echoes: list[AnsweringProcess]) -> None:
    first, second = echoes
    own = [first.pid, second.pid, os.getpid()]
    network = NetworkCut()
    with (
        socket.create_connection(("127.0.0.1", first.port)) as one,
        socket.create_connection(("127.0.0.1", second.port)) as two,
    ):
        for peer in (one, two):  # the other side has taken it
            peer.sendall(b"?")
            assert hears(peer, 10) == b"?"
        network.sweep([first.pid, second.pid], own)
        one.sendall(b"a")
        two.sendall(b"b")
        network.sweep([second.pid], own)
        assert hears(one, 30) == b"a"
        assert hears(two, SILENCE) == b""
        release(network, own)
        assert hears(two, 30) == b"b"


# --- tables of the kernel


def test_a_table_is_read() -> None:
    lines = [
        "0: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000 0 0 77 1 0 100 0 0 10 0",
        "1: 0000000000000000FFFF00000100007F:C001 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 0 0 78",
        "2: 0100007F:C002 0100007F:1F90 06 00000000:00000000 03:00000B3C 00000000 0 0 0 3 0",
    ]
    assert parse_table(lines) == {
        77: TcpSocket("0100007F:1F90", "00000000:0000", True, 2),
        78: TcpSocket("0100007F:C001", "0100007F:1F90", False, 0),
    }


@LINUX
def test_sockets_of_a_process_are_found_and_of_one_that_has_ended_none() -> None:
    with socket.socket() as mine:
        found = open_sockets([os.getpid(), 2**22 + 1])
        assert found[os.fstat(mine.fileno()).st_ino] == (os.getpid(), mine.fileno())


@LINUX
def test_a_number_that_means_another_socket_by_now_is_left_alone() -> None:
    with socket.socket() as mine:
        number, inode = mine.fileno(), os.fstat(mine.fileno()).st_ino
        assert socket_filters.set_filter(os.getpid(), number, inode, None)
        assert not socket_filters.set_filter(os.getpid(), number, inode + 1, None)
    assert not socket_filters.set_filter(os.getpid(), number, inode, None)
    assert not socket_filters.set_filter(2**22 + 1, number, inode, None)


# --- who asks, and who does it


def test_a_request_ends_by_itself_and_the_last_one_holds(tmp_path: Path) -> None:
    requests = CutRequests(tmp_path / "cuts")
    assert requests.read() == {}
    requests.ask("ps-0", 7, 0.05)
    requests.ask("ps-1", 8, 60)
    requests.ask("ps-1", 9, 60)
    (tmp_path / "cuts" / "junk.json").write_text("[]")
    time.sleep(0.06)
    assert requests.read() == {"ps-1": 9}
    requests.withdraw("ps-1")
    requests.withdraw("ps-1")
    assert requests.read() == {}
    assert not [*(tmp_path / "cuts").iterdir()]


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "logs", machine_variables(), delay=0.05, cuts=tmp_path / "cuts")
    made.start(Spec("sleeper", ("program", "sleep", "60")))
    made.await_started(["sleeper"], 60)
    yield made
    made.close()


@LINUX
def test_a_supervisor_cuts_off_who_is_named_until_the_time_is_over(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    states = lambda: [one.state for one in supervisor.info()]  # noqa: E731
    assert supervisor.cuts.problem == ""
    begin_cut(tmp_path, supervisor.info, "sleeper", 1.0)
    assert states() == ["cut"]
    eventually(lambda: states() == ["running"])
    begin_cut(tmp_path, supervisor.info, "sleeper", 600.0)
    end_cut(tmp_path, "sleeper")
    eventually(lambda: states() == ["running"])


@LINUX
def test_the_cut_of_a_process_ends_with_it(supervisor: Supervisor, tmp_path: Path) -> None:
    begin_cut(tmp_path, supervisor.info, "sleeper", 600.0)
    pid = supervisor.info()[0].pid
    supervisor.restart("sleeper")
    eventually(lambda: supervisor.info()[0].state == "running" and supervisor.info()[0].pid != pid)


def test_a_cut_that_nobody_begins_is_an_error_and_withdrawn(tmp_path: Path) -> None:
    alone = ProcessInfo("ps-0", os.getpid(), "running", 0)
    with pytest.raises(ConfigError, match="ps-0 was not cut off"):
        begin_cut(tmp_path, lambda: [alone], "ps-0", 0.1)
    assert CutRequests(tmp_path / "cuts").read() == {}


class OwnProcess(DirectTarget):
    def processes(self) -> tuple[ProcessInfo, ...]:
        return (ProcessInfo("ps-0", os.getpid(), "running", 0),)


def test_where_the_system_does_not_allow_it_there_is_no_button_and_the_command_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    def target(problem: str) -> OwnProcess:
        return OwnProcess("", directory=tmp_path, state=ClusterState(1, "", "", cut_problem=problem))

    assert "cut" in faults_of(target("")).offered
    monkeypatch.setattr(socket_filters, "copy_descriptor", refuse)
    problem = socket_filters.filter_problem(os.getpid())
    assert problem.endswith("sockets of other processes be filtered: Operation not permitted")
    assert "cut" not in faults_of(target(problem)).offered
    with pytest.raises(ConfigError, match="ps-0 cannot be cut off: this system does not let"):
        cut_local(target(problem), "ps-0", 1.0)
    with pytest.raises(ConfigError, match="it is not a cluster of this machine"):
        cut_local(OwnProcess(""), "ps-0", 1.0)
