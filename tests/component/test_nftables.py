"""No packet comes in or goes out while the process runs, and all do when it has ended, in a network namespace
of a real kernel.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCENE = """
import signal, socket, subprocess, sys, time

def connects():
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            socket.create_connection(server.getsockname(), 0.3).close()
        except TimeoutError:
            return False
    return True

def said_to(near, far):
    near.send(b"x")
    far.settimeout(0.3)
    try:
        return far.recv(1) == b"x"
    except TimeoutError:
        return False

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(server.getsockname())
far, _ = server.accept()
assert connects() and said_to(near, far)
cut = subprocess.Popen([sys.executable, "-m", "scar_kube.nftables", "600"])
deadline = time.monotonic() + 60
while connects():
    assert cut.poll() is None and time.monotonic() < deadline
assert not said_to(near, far)
cut.send_signal(signal.SIGKILL)  # nobody tidies up
cut.wait()
assert connects()
far.settimeout(60)
assert far.recv(1) == b"x"  # what was held back comes: the connection was never closed
"""


def test_an_open_connection_is_silent_until_the_process_is_killed() -> None:
    unshare = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*unshare, "ip", "link"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here: NO PACKET WAS DROPPED")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SCENE], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def test_without_the_right_it_says_what_it_needs() -> None:
    command = [sys.executable, "-m", "scar_kube.nftables", "600"]
    as_nobody = ["unshare", "--user"]  # of which this network is none
    done = subprocess.run([*as_nobody, *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no packets are dropped: [Errno 1] Operation not permitted; it needs nftables" in done.stderr
