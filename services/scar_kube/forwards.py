"""Ports of this machine that lead to pods, opened when they are first needed.

A connection is tied to a pod when it is made. So when a pod dies its connections break, as they would without
forwarding, and the next ones go to its successor. Everything here ends with this process, or with
:meth:`Forwards.close`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

from scar_kube.tunnel import ENDED, Tunnel

CHUNK = 1 << 16  # bytes
SPARE_SECONDS = 10.0  # for which a tunnel that nobody waited for is worth keeping

Dial = Callable[[], Tunnel]  # connects to the pod that counts at the moment; raises when there is none


class Forward:
    """One port. Connections that lead nowhere are closed at once, so that whoever dials tries again.

    A tunnel that is there only after its dialer has given up waits for the next one: where everything is
    slow, nobody might ever wait long enough, and each attempt would make the next one slower.
    """

    def __init__(self, tunnel: Dial) -> None:
        self._tunnel = tunnel
        self._spare: tuple[float, Tunnel] | None = None  # good until
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn_thread(self._accept_connections)

    def close(self) -> None:
        """Its connections break; the threads that carry them close them."""
        with self._lock:
            self._closed = True
            for near in self._open:
                with contextlib.suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)
        self._keep_spare(None)
        _shut_down(self._listener)

    def _accept_connections(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._spawn_thread(partial(self._carry_connection, near))

    def _carry_connection(self, near: socket.socket) -> None:
        """One connection from its beginning to its end."""
        try:
            far = self._take_spare() or self._tunnel()
        except Exception:
            # the pod is gone, or the API server is: either way the dialer finds out by the closed connection
            return _shut_down(near)
        if (said := _read_said(near)) is None:
            self._keep_spare(far)
        else:
            self._join_ends(near, far, said)
        return _shut_down(near)

    def _join_ends(self, near: socket.socket, far: Tunnel, said: bytes) -> None:
        with self._lock:
            closed = self._closed
            self._open.add(near)
        with contextlib.suppress(*ENDED):
            if said and not closed:
                far.send(said)
            if not closed:
                _splice_ends(near, far)
        with self._lock:
            self._open.discard(near)
        far.close()

    def _keep_spare(self, far: Tunnel | None) -> None:
        spare = (time.monotonic() + SPARE_SECONDS, far) if far is not None else None
        with self._lock:
            if spare is None or not self._closed:
                self._spare, spare = spare, self._spare
        if spare is not None:
            spare[1].close()

    def _take_spare(self) -> Tunnel | None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is None:
            return None
        until, far = spare
        if time.monotonic() > until:
            far.close()
            return None
        return far

    @staticmethod
    def _spawn_thread(target: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=target, name="forward", daemon=True)
        thread.start()
        return thread


def _read_said(near: socket.socket) -> bytes | None:
    """What a dialer has sent while it waited; None: it has given up."""
    said = bytearray()
    near.setblocking(False)
    try:
        while data := near.recv(CHUNK):
            said += data
    except BlockingIOError:
        near.setblocking(True)
        return bytes(said)
    except OSError:
        pass
    return None


def _splice_ends(near: socket.socket, far: Tunnel) -> None:
    """Carry what each sends to the other until one of them ends."""
    while True:
        inputs: list[socket.socket | Tunnel] = [near, far]
        ready = [far] if far.pending else select.select(inputs, (), ())[0]
        if near in ready:
            data = near.recv(CHUNK)
            if not data:
                return
            far.send(data)
        if far in ready:
            answer = far.receive()
            if answer is None:
                return
            near.sendall(answer)


def _shut_down(end: socket.socket) -> None:
    """Close it so that a thread that waits for it wakes up."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class PodAssignment:
    """Which pod each of several forwards leads to: always the same one while it exists, and never two to one
    pod.

    ``names``: says which pods there are now.
    """

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self._taken: dict[int, str] = {}
        self._lock = threading.Lock()

    def pod_of(self, replica: int) -> str:
        """Raises :class:`LookupError` when there is no pod for this replica."""
        names = sorted(self._names())
        with self._lock:
            if self._taken.get(replica) not in names:
                others = {name for other, name in self._taken.items() if other != replica}
                free = [name for name in names if name not in others]
                if not free:
                    raise LookupError(f"no pod is left for replica {replica}")
                self._taken[replica] = free[0]
            return self._taken[replica]


class Forwards:
    """A :class:`scar_admin.channels.Dialer`. ``routes``: the forwards for an address, made when it is
    first dialled.
    """

    def __init__(self, routes: Callable[[str], list[Forward]]) -> None:
        self._routes = routes
        self._open: dict[str, list[Forward]] = {}
        self._lock = threading.Lock()

    def target_of(self, address: str) -> str:
        """A gRPC target: one port, or one for each replica."""
        with self._lock:
            if address not in self._open:
                self._open[address] = self._routes(address)
            ports = [forward.address for forward in self._open[address]]
        return ports[0] if len(ports) == 1 else f"ipv4:{','.join(ports)}"

    def keep_only(self, addresses: Collection[str]) -> None:
        """Close the forwards to pods that nobody asks for any more; those of a service stay."""
        with self._lock:
            gone = [address for address in self._open if ":" in address and address not in addresses]
            closing = [forward for address in gone for forward in self._open.pop(address)]
        for forward in closing:
            forward.close()

    def close(self) -> None:
        with self._lock:
            closing = [forward for forwards in self._open.values() for forward in forwards]
            self._open.clear()
        for forward in closing:
            forward.close()
