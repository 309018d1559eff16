"""The same server and channels on real gRPC and on the imitation, for tests that compare the two.

    python -m tests.simulation.wire_ground PORT

runs the server as a process of its own, which a test may stop, let go on, and kill.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from scar.wire.transport import channel_options, leader_options
from tests.simulation import scheduler
from tests.simulation.calls import Flag
from tests.simulation.channels import Channel
from tests.simulation.network import Network
from tests.simulation.rpc import Server
from tests.simulation.scheduler import Host, Scheduler

ROOT = Path(__file__).resolve().parents[2]
SERVICE, LEADS = "ground.Ground", "ground.Leader"
LONG = 30.0


class GroundServer:
    """What it serves: calls that take time, wait for their end, count, stream, or cannot be decoded."""

    def __init__(self, server: Any, sleep: Callable[[float], None], event: Callable[[], Any]) -> None:
        self._server, self._sleep, self._event = server, sleep, event
        self._effects = self._ended = 0
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {
            "Echo": unary(lambda request, _: request),
            "Work": unary(self._work),
            "Wait": unary(self._wait),
            "Count": grpc.unary_stream_rpc_method_handler(self._count),
            "Total": grpc.stream_unary_rpc_method_handler(lambda many, _: b"%d" % len(list(many))),
            "Broken": unary(lambda request, _: request, request_deserializer=_refuse),
            "Seen": unary(lambda _, __: b"%d effects, %d ended" % (self._effects, self._ended)),
            "Lead": unary(self._lead),
            "Stop": unary(lambda request, _: (server.stop(float(request)), b"")[1]),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def _work(self, request: bytes, _: Any) -> bytes:
        self._sleep(float(request))
        self._effects += 1
        return b"done"

    def _wait(self, _: bytes, context: Any) -> bytes:
        over = self._event()
        context.add_callback(over.set)
        over.wait(LONG)
        self._ended += not context.is_active()
        return b""

    def _count(self, request: bytes, _: Any) -> Iterator[bytes]:
        for number in range(100):
            self._sleep(float(request))
            yield b"%d" % number

    def _lead(self, request: bytes, _: Any) -> bytes:
        status = health_pb2.HealthCheckResponse
        self._health.set(LEADS, status.SERVING if request == b"yes" else status.NOT_SERVING)
        return b""


def _refuse(_: bytes) -> Any:
    raise ValueError("no message")


class GroundProcess(Protocol):
    """A server's process."""

    address: str

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def kill(self) -> None: ...


@dataclass
class RealProcess:
    address: str
    process: subprocess.Popen[str]

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # until then some threads may run

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Ground(Protocol):
    """Where a test's story takes place. ``slowness``: how many times longer than meant things may take."""

    slowness: float

    def start(self, port: int = 0) -> GroundProcess: ...

    def channel(self, target: str, **options: int) -> Any: ...

    def leader_channel(self, target: str, **options: int) -> Any: ...

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


def _with(options: list[Any], more: dict[str, int]) -> list[Any]:
    """``more``: by the names in gRPC's options, with two underlines for a dot."""
    return list((dict(options) | {name.replace("__", "."): more[name] for name in more}).items())


class RealGround:
    """gRPC on this machine, beside whatever else it does."""

    slowness = 4.0

    def __init__(self) -> None:
        self._processes: list[RealProcess] = []
        self.now, self.sleep = time.monotonic, time.sleep

    def start(self, port: int = 0) -> RealProcess:
        command = [sys.executable, "-m", "tests.simulation.wire_ground", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        self._processes.append(RealProcess(f"127.0.0.1:{int(process.stdout.readline())}", process))
        return self._processes[-1]

    def channel(self, target: str, **options: int) -> Any:
        return grpc.insecure_channel(target, options=_with(list(channel_options()), options))

    def leader_channel(self, target: str, **options: int) -> Any:
        return grpc.insecure_channel(target, options=_with(list(leader_options(LEADS)), options))

    def play(self, story: Callable[[Ground], None]) -> None:
        try:
            story(self)
        finally:
            for one in self._processes:
                one.kill()


class SimulatedProcess:
    def __init__(self, ground: SimulatedGround, port: int) -> None:
        self._ground = ground
        used = ground.scheduler
        self.host = Host(f"server-{port}-{len(used.hosts)}", "10.9.9.9")
        used.hosts[self.host.name] = self.host
        self.address = ""
        used.spawn(self.host, "main", partial(self._serve, port))
        while not self.address:
            used.sleep(0.001)

    def _serve(self, port: int) -> None:
        server = Server(self._ground.network, ThreadPoolExecutor(8))
        GroundServer(server, self._ground.scheduler.sleep, partial(Flag, self._ground.scheduler))
        number = server.add_insecure_port(f"{self.host.address}:{port}")
        server.start()
        self.address = f"{self.host.address}:{number}"

    def freeze(self) -> None:
        self._ground.scheduler.pause(self.host, 1e6)

    def thaw(self) -> None:
        self.host.paused_until = self._ground.scheduler.now
        self._ground.scheduler._thaw(self.host)

    def kill(self) -> None:
        self._ground.scheduler.crash(self.host)


class SimulatedGround:
    """The imitation."""

    slowness = 1.0

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler, seed)
        self.client = self.scheduler.host("client")
        self.sleep = self.scheduler.sleep

    def now(self) -> float:
        return self.scheduler.now

    def start(self, port: int = 0) -> SimulatedProcess:
        return SimulatedProcess(self, port)

    def channel(self, target: str, **options: int) -> Any:
        return Channel(self.network, target, _with(list(channel_options()), options))

    def leader_channel(self, target: str, **options: int) -> Any:
        return Channel(self.network, target, _with(list(leader_options(LEADS)), options))

    def play(self, story: Callable[[Any], None], seconds: float = 5000.0) -> None:
        told: list[BaseException] = []

        def guarded() -> None:
            try:
                story(self)
            except Exception as error:
                told.append(error)

        scheduler.use(self.scheduler)
        try:
            ended = self.scheduler.run(self.scheduler.spawn(self.client, "story", guarded), seconds)
        finally:
            scheduler.use(scheduler.Nobody())
        if told:
            raise told[0]
        assert ended
        assert self.scheduler.failures == []


def main(port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    GroundServer(server, time.sleep, Event)
    number = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
    time.sleep(4 * LONG)


if __name__ == "__main__":
    main(int(sys.argv[1]))
