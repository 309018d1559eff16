"""Network namespaces that a bridge connects: each is a machine with an address of its own. Linux, as root."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).resolve().parents[2]
OURS = re.compile(r"scar(\d+)-\w+")  # names of namespaces and links, by the process that made them
DEVICE = "eth0"  # of each machine
BURST = "128kb"  # more than what a kernel hands over at once
CONGESTION = "cubic"  # of nearly all Linux; others move the same bytes in up to three times the time
END_SECONDS = 3.0


class Machines:
    """``count`` of them. ``megabits``: of each one's link, each way, per second; None: as fast as it goes."""

    def __init__(self, count: int, megabits: float | None = None) -> None:
        self.count = count
        self._megabits = megabits
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        if os.geteuid() or not sys.platform.startswith("linux"):
            raise SystemExit(
                "network namespaces need Linux and root: run it by sudo, or in a container with NET_ADMIN"
            )
        _remove_abandoned()
        _ip(f"link add {_name('br')} type bridge")
        _ip(f"link set {_name('br')} up")
        for number in range(self.count):
            self._add(number)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()  # which tells those that read it to stop
        for process in reversed(self._processes):
            end_process(process)
        self._remove()

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{number + 1}"

    def start(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> subprocess.Popen[str]:
        """A process on this machine, with pipes to what it reads and writes. ``quiet``: without its log."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", _name(number), *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
        )
        self._processes.append(process)
        return process

    def _add(self, number: int) -> None:
        name = _name(number)
        _ip(f"netns add {name}")
        _ip(f"link add {name} type veth peer name {DEVICE} netns {name}")
        _ip(f"link set {name} master {_name('br')} up")
        for setting in (
            f"addr add {self.address(number)}/24 dev {DEVICE}",
            f"link set {DEVICE} up",
            "link set lo up",
        ):
            _ip(f"-n {name} {setting}")
        control = f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control"
        _run(["ip", "netns", "exec", name, "sh", "-c", control])
        if self._megabits is not None:
            limit = f"root tbf rate {self._megabits:g}mbit burst {BURST} latency 1s"
            _run(["tc", "qdisc", "add", "dev", name, *limit.split()])
            _run(["tc", "-n", name, "qdisc", "add", "dev", DEVICE, *limit.split()])

    def _remove(self) -> None:
        for number in range(self.count):
            _remove_machine(_name(number))
        _ip(f"link del {_name('br')}", may_fail=True)


def read_line(process: subprocess.Popen[str]) -> str:
    """What it says next. Raises :class:`RuntimeError` when it has ended instead."""
    output: IO[str] | None = process.stdout
    assert output is not None
    line = output.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    return line


def write_line(process: subprocess.Popen[str], line: str) -> None:
    """To what it reads."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def end_process(process: subprocess.Popen[str]) -> None:
    """Give it some time, then a signal, then no choice."""
    for seconds, action in ((1.0, process.terminate), (END_SECONDS, process.kill)):
        try:
            process.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            action()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _name(part: int | str) -> str:
    return f"scar{os.getpid()}-{part}"


def _remove_machine(name: str) -> None:
    _ip(f"link del {name}", may_fail=True)  # a namespace goes later than the command says
    _ip(f"netns del {name}", may_fail=True)


def _remove_abandoned() -> None:
    """What processes have left that were killed."""
    shown = subprocess.run("ip netns; ip -br link", shell=True, capture_output=True, text=True, check=True)
    for found in set(OURS.finditer(shown.stdout)):
        if not Path(f"/proc/{found[1]}").exists():
            _remove_machine(found[0])


def _ip(arguments: str, may_fail: bool = False) -> None:
    _run(["ip", *arguments.split()], may_fail)


def _run(command: Sequence[str], may_fail: bool = False) -> None:
    subprocess.run(command, check=not may_fail, capture_output=may_fail)
