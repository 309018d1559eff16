"""Half of the servers die: SIGKILL at a given iteration, and how long training stands still after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from scar.errors import from_rpc
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar_cli.demo.report import ServerKill
from scar_local import LocalCluster

NEAR = 3  # iterations before the kill from which on the clock is read as often as possible
FAR_SECONDS = 0.02
NEAR_SECONDS = 0.002
CALL_SECONDS = 2.0
NO_LOSSES = 1 << 62  # a clock that never comes: Status without losses


@dataclass(frozen=True)
class KillOutcome:
    """``pause_seconds``: from the kill until the next iteration was complete."""

    kills: Sequence[ServerKill] = ()
    pause_seconds: float = 0.0


class ServerKiller:
    """Kills ``victims`` as soon as ``survivor`` has closed ``iteration`` clocks.

    ``outcome`` says what was done.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        survivor: ps_pb2_grpc.ShardControlStub,
        victims: Sequence[str],
        iteration: int,
    ) -> None:
        self._cluster = cluster
        self._survivor = survivor
        self._victims = victims
        self._iteration = iteration
        self.outcome = KillOutcome()

    def kill_at_clock(self, stop: threading.Event, tell: Callable[[str], None]) -> None:
        """Wait, kill, and measure the pause.

        ``stop`` ends it early. Raises :class:`scar.errors.ScarError`.
        """
        closed = self._await_clock(self._iteration, stop)
        killed_at = time.monotonic()
        if stop.is_set():
            return
        kills = [ServerKill(name, self._cluster.kill(name), closed) for name in self._victims]
        self.outcome = KillOutcome(kills)
        tell("SIGKILL to " + " and ".join(f"{kill.shard} (pid {kill.pid})" for kill in kills))
        self._await_clock(closed + 1, stop)
        self.outcome = KillOutcome(kills, time.monotonic() - killed_at)

    def _await_clock(self, wanted: int, stop: threading.Event) -> int:
        """The survivor's open clock, once it is at least ``wanted``."""
        request = ps_pb2.ShardStatusRequest(since_clock=NO_LOSSES)
        while True:
            try:
                clock = int(self._survivor.Status(request, timeout=CALL_SECONDS).clock)
            except grpc.RpcError as error:
                raise from_rpc(error, "a surviving server") from error
            if clock >= wanted or stop.wait(NEAR_SECONDS if clock >= wanted - NEAR else FAR_SECONDS):
                return clock
