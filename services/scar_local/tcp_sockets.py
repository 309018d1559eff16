"""The TCP sockets of this machine's processes, as /proc has them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENS = "0A"
MAPPED = "0000000000000000FFFF0000"  # before an IPv4 address in the table of IPv6
INODE = 9  # column of it

Address = str  # as the kernel spells it: hexadecimal, ADDRESS:PORT


class TcpSocket(NamedTuple):
    """``queued``: of one that listens: connections that nobody has accepted."""

    local: Address
    remote: Address
    listens: bool
    queued: int


class OpenSocket(NamedTuple):
    """Where a socket is found: one of the processes that have it open, and under which number."""

    pid: int
    descriptor: int


def read_sockets() -> dict[int, TcpSocket]:
    """By inode; those that no process has open any more are left out."""
    found: dict[int, TcpSocket] = {}
    for table in TABLES:
        with suppress(FileNotFoundError):  # no IPv6
            found |= parse_table(Path(table).read_text().splitlines()[1:])
    return found


def parse_table(lines: Iterable[str]) -> dict[int, TcpSocket]:
    found = {}
    for line in lines:
        columns = line.split()
        if inode := int(columns[INODE]):
            local, remote = (column.removeprefix(MAPPED) for column in columns[1:3])
            queued = int(columns[4].partition(":")[2], 16)
            found[inode] = TcpSocket(local, remote, columns[3] == LISTENS, queued)
    return found


def open_sockets(pids: Iterable[int]) -> dict[int, OpenSocket]:
    """By inode, of every kind; nothing of processes that have ended or are another user's."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):  # closed since
                    kind, _, inode = os.readlink(f"/proc/{pid}/fd/{entry}").partition(":[")
                    if kind == "socket":
                        found[int(inode[:-1])] = OpenSocket(pid, int(entry))
    return found
