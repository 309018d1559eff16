"""Becomes one program that dies with the process that started it, even when that process is killed with SIGKILL.

    python -m scar_local.launch PARENT_PID WATCH_FD module scar_ps
    python -m scar_local.launch PARENT_PID WATCH_FD program redis-server --port 7000

Two ways, since neither is enough alone: on Linux the kernel sends SIGKILL when the parent thread ends (it works for any program
and for a stopped one); everywhere else a thread waits for the end of a pipe that only the parent can write to.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

PR_SET_PDEATHSIG = 1
ORPHAN = 4  # exit code of a child whose parent was gone before it could ask to be told


def main(arguments: Sequence[str]) -> None:
    parent, watch, kind, target, *rest = arguments
    die_with(int(parent), int(watch))
    if kind == "program":
        os.execvp(target, [target, *rest])
    sys.argv = [target, *rest]
    runpy.run_module(target, run_name="__main__", alter_sys=True)


def die_with(parent: int, watch: int) -> None:
    """Tie this process to process ``parent``. ``watch``: read end of a pipe whose only writer is the parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request above; nobody would ever tell us
        os._exit(ORPHAN)
    threading.Thread(target=_watch, args=(watch,), name="parent", daemon=True).start()


def _watch(pipe: int) -> NoReturn:
    while os.read(pipe, 1):
        pass
    os._exit(ORPHAN)


if __name__ == "__main__":
    main(sys.argv[1:])
