"""What a TCP socket of another process takes in.

Linux lets a parent, and mostly any process of the same user, copy a descriptor of a process that runs, and
attach a packet filter to it. Nothing of it needs root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from contextlib import closing, suppress
from enum import Enum

PIDFD_GETFD = 438  # the system call's number on every architecture; Linux 5.6
SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27

# (code, jump if true, jump if false, operand) of classic BPF; the packet begins with its TCP header
_DROP = (0x06, 0, 0, 0)
_PASS = (0x06, 0, 0, 0xFFFFFFFF)


class SocketFilter(Enum):
    """What a socket does not take. Values: the programs."""

    ALL = (_DROP,)
    DATA = (  # handshakes alone are taken: what carries bytes of a stream is not
        (0x30, 0, 0, 12),  # A = byte 12: the header's length in words, times 16
        (0x54, 0, 0, 0xF0),
        (0x74, 0, 0, 2),  # A = the header's length in bytes
        (0x07, 0, 0, 0),  # X = A
        (0x80, 0, 0, 0),  # A = the packet's length
        (0x1C, 0, 0, 0),  # A = A - X
        (0x15, 0, 1, 0),  # nothing left: pass
        _PASS,
        _DROP,
    )


def set_filter(pid: int, descriptor: int, inode: int, what: SocketFilter | None) -> bool:
    """Let this TCP socket of a process refuse ``what``; None: nothing any more. False: it is gone.

    Raises :class:`OSError` when the system does not allow it.
    """
    try:
        copy = copy_descriptor(pid, descriptor)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EBADF):
            return False
        raise
    if os.fstat(copy).st_ino != inode:  # its number means something else now, maybe no socket
        os.close(copy)
        return False
    with closing(socket.socket(fileno=copy)) as connection:
        apply_filter(connection, what)
    return True


def apply_filter(connection: socket.socket, what: SocketFilter | None) -> None:
    if what is None:
        with suppress(FileNotFoundError):  # it has none
            connection.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in what.value))
    described = struct.pack("HP", len(what.value), ctypes.addressof(program))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def copy_descriptor(pid: int, descriptor: int) -> int:
    """A descriptor of ours for what another process has open. Raises :class:`OSError`."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "only Linux copies descriptors of other processes")
    process = os.pidfd_open(pid)
    try:
        copy = int(ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0))
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return copy


def filter_problem(pid: int) -> str:
    """Why sockets of this process, a child of ours, cannot be filtered here; empty: they can."""
    try:
        os.close(copy_descriptor(pid, 0))
        with closing(socket.socket()) as trial:
            apply_filter(trial, SocketFilter.ALL)
    except OSError as error:
        return f"this system does not let sockets of other processes be filtered: {error.strerror}"
    return ""
