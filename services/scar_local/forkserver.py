"""The parent of a cluster's processes: it imports once what the services need and forks a copy of itself for
each of them.

    python -m scar_local.forkserver SUPERVISOR_PID CONTROL_FD LOG [MODULE ...]

A service imports for half a second, and a cluster is ten of them. A copy is there in milliseconds and becomes
its service by running the service's ``__main__``, as ``python -m`` would; other programs are executed. The
server stays free of threads, gRPC objects and connections, which do not survive a fork. Each MODULE, too, is
imported once; ``{"ready"}`` goes back when that is done.

Orders come in over CONTROL_FD, a line of JSON each: ``{"command", "environment", "log", "name"}`` or
``{"signal", "pid"}``. Answers go back: ``{"pid"}`` for each command in turn (0: refused), ``{"pid",
"status"}`` (that of waitpid) for each change.

Nothing outlives the supervisor: on Linux the kernel sends SIGKILL when the parent's thread ends (to any
program, a stopped one too), first to the server, thereby to its copies. Elsewhere a thread waits for the end
of a pipe that only the server can write to, and copies are executed afresh, since the system's libraries do
not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

SHARED = (  # what several services import; their own modules would bring metrics that no other service has
    "scar_runtime.process.app",
    "scar_runtime.liveness.leader_lease",
    "scar_runtime.store.records",
    "scar_runtime.checkpoint.running_checkpoint",
    "scar_runtime.checkpoint.selection",
    "scar.v1.checkpoint_pb2_grpc",
    "scar.v1.worker_pb2_grpc",
)
LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
ORPHAN = 4  # exit code of a process whose parent was gone before it could ask to be told
NOT_STARTED = 127  # exit code of a process that the system refused to start
BUFFER = 1 << 16

Order = dict[str, Any]


class Server:
    """``control``: the supervisor's orders. ``watch``: what copies watch where the kernel does not tell
    them of our end.
    """

    def __init__(self, control: socket.socket, preload: Sequence[str] = ()) -> None:
        self._control = control
        self._preload = preload
        self._lines = b""
        self._living: set[int] = set()
        self._loaded = False
        self.watch, self._held = os.pipe()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> Order | None:
        """In a copy: its order. In the server: None, when the supervisor is gone."""
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._waker)
        if self._preload:
            self._load_modules()
            self._send_answer(ready=1)
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, BUFFER)
                self._report_changes()
            for order in self._read_orders() if self._control.fileno() in ready else ():
                if order is None or self._carry_out(order):
                    return order

    def _read_orders(self) -> Iterator[Order | None]:
        """What has come in; None: there will be no more."""
        data = self._control.recv(BUFFER)
        if not data:
            yield None
        *whole, self._lines = (self._lines + data).split(b"\n")
        yield from map(json.loads, whole)

    def _carry_out(self, order: Order) -> bool:
        """Whether this is the copy that the order asked for."""
        if "signal" in order:
            self._signal_group(order["pid"], order["signal"])
            return False
        if LINUX and order["command"][0] == "module":
            self._load_modules()
        try:
            pid = _fork_leader()
        except OSError:  # no memory, or too many processes
            self._send_answer(pid=0)
            return False
        if pid == 0:
            self._leave_server()
            return True
        self._living.add(pid)
        self._send_answer(pid=pid)
        return False

    def _load_modules(self) -> None:
        """What copies have in common. If something is not there, or broken, it is for the copy to report."""
        if self._loaded:
            return
        self._loaded = True
        gc.disable()
        for module in (*SHARED, *self._preload):
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        gc.freeze()  # copies share these objects as long as no collector touches them

    def _leave_server(self) -> None:
        """In a copy: give up what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self._held, self._woken, self._waker):
            os.close(end)
        self._control.close()
        gc.enable()

    def _signal_group(self, pid: int, number: int) -> None:
        """To a process and its own children. Only the process that waits for its children can tell that a
        number still means the same process.
        """
        if pid in self._living:
            os.killpg(pid, number)

    def _report_changes(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (change := os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED))[0]:
                pid, status = change
                if not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                    self._living.discard(pid)
                self._send_answer(pid=pid, status=status)

    def _send_answer(self, **fields: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of orders says the same
            self._control.sendall(json.dumps(fields).encode() + b"\n")


def _fork_leader() -> int:
    """As os.fork; returns when the copy leads a session and group of its own, so that its group can be
    signalled.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if (pid := os.fork()) == 0:
            os.setsid()
        else:
            theirs.close()
            ours.recv(1)  # ends when the copy closes its end
    return pid


def become(order: Order, server: int, watch: int) -> None:
    """Turn this copy of process ``server`` into what was ordered."""
    die_with(server)
    if LINUX:
        os.close(watch)
        ctypes.CDLL(None).prctl(PR_SET_NAME, order["name"].encode())
    _redirect_output(order["log"])
    kind, target, *rest = order["command"]
    if kind == "program":
        os.execvpe(target, [target, *rest], order["environment"])
    if not LINUX:
        os.set_inheritable(watch, True)
        again = [sys.executable, "-P", "-m", "scar_local.forkserver", "copy", str(watch), target, *rest]
        os.execve(sys.executable, again, order["environment"])
    os.environ.clear()
    os.environ.update(order["environment"])
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # the old global generator would give every copy the same numbers
    run(target, rest)


def run(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL at the end of this process's parent, which has to be ``parent``; Linux
    only, else nothing.
    """
    if not LINUX:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request above; nobody would ever tell us
        os._exit(ORPHAN)


def _redirect_output(path: str) -> None:
    try:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        os._exit(NOT_STARTED)
    for source, end in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, end)
    os.close(log)
    os.close(nothing)


def _watch_parent(pipe: int) -> NoReturn:
    while os.read(pipe, 1):
        pass
    os._exit(ORPHAN)


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "copy":
        threading.Thread(target=_watch_parent, args=(int(arguments[1]),), name="parent", daemon=True).start()
        run(arguments[2], arguments[3:])
        return
    die_with(int(arguments[0]))
    server = Server(socket.socket(fileno=int(arguments[1])), preload=arguments[3:])
    own = os.getpid()
    order = server.serve()
    if order is None:
        os._exit(0)
    become(order, own, server.watch)


if __name__ == "__main__":
    main(sys.argv[1:])
