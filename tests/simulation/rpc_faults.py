"""What happens to single calls between a channel and a server, as proxies do it, by method.

Methods are those of the protocol's own descriptors, so a new one is afflicted without a word here.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import grpc

from scar.v1 import checkpoint_pb2, detector_pb2, member_pb2, ps_pb2, recovery_pb2, worker_pb2
from tests.simulation.scheduler import Scheduler

FILES = (checkpoint_pb2, detector_pb2, member_pb2, ps_pb2, recovery_pb2, worker_pb2)
METHODS = tuple(
    f"/{service.full_name}/{method.name}"
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
EVERY_METHOD = "*"

REQUEST_LOST = "request-lost"  # before its effect; the client waits for its deadline
ANSWER_LOST = "answer-lost"  # after its effect
DOUBLED = "doubled"  # two effects, and the first answer counts
ANSWER_LATE = "answer-late"
REORDERED = "reordered"  # other calls overtake the request
REFUSED = "refused"
OVERLOADED = "overloaded"
GARBLED = "garbled"  # the answer cannot be decoded
ANSWER_CUT = "answer-cut"  # in mid-stream, or after the effect
REQUEST_CUT = "request-cut"  # a stream of requests ends in its middle
CONNECTION_RESET = "connection-reset"  # with all other calls on it
PROXY_REFUSALS = {
    REFUSED: (grpc.StatusCode.UNAVAILABLE, "upstream connect error or disconnect/reset before headers"),
    OVERLOADED: (grpc.StatusCode.RESOURCE_EXHAUSTED, "upstream max stream count exceeded"),
}
RPC_FAULTS = (
    *(REQUEST_LOST, ANSWER_LOST, DOUBLED, ANSWER_LATE, REORDERED, REFUSED),
    *(OVERLOADED, GARBLED, ANSWER_CUT, REQUEST_CUT, CONNECTION_RESET),
)
GARBAGE = b"\xff" * 11  # no message of any type: a varint without an end


@dataclass
class Affliction:
    """``method``: "*" for every one; ``probability``: for one call; ``seconds``: mean of a delay."""

    method: str
    kind: str
    probability: float
    until: float
    seconds: float


class RpcFaults:
    """Who is afflicted by what, and how often it has struck, by method and kind."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.active: list[Affliction] = []
        self.struck: Counter[tuple[str, str]] = Counter()
        self._scheduler, self._random = scheduler, random.Random(f"rpc faults {seed}")
        self._mean = 0.0

    def afflict(self, method: str, kind: str, probability: float, until: float, seconds: float = 1.0) -> None:
        assert kind in RPC_FAULTS, kind
        assert method == EVERY_METHOD or method in METHODS, method
        self._scheduler.record(f"afflict {method} {kind} {probability:.3f} {until:.3f}")
        self.active.append(Affliction(method, kind, probability, until, seconds))
        self._scheduler.at(until, self._expire)

    def _expire(self) -> None:
        self.active = [one for one in self.active if one.until > self._scheduler.now]

    def draw(self, method: str) -> str:
        """What happens to a call of this method; "": nothing."""
        for one in self.active:
            mine = one.method in (method, EVERY_METHOD) and one.until > self._scheduler.now
            if mine and method in METHODS and self._random.random() < one.probability:
                self.struck[method, one.kind] += 1
                self._mean = one.seconds
                self._scheduler.record(f"afflicted {method} {one.kind}")
                return one.kind
        return ""

    def seconds(self) -> float:
        """Of the delay of the call that was drawn last."""
        return self._random.expovariate(1 / self._mean)

    def moment(self) -> float:
        """Seconds into a call at which something breaks: often while it is under way."""
        return self._random.expovariate(1 / 0.002)

    def part(self, count: int) -> int:
        """How many of so many messages get through."""
        return int(self._random.random() * count)
