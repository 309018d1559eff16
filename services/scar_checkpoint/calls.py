"""Calls to shards that may take long and may become void: one future per call, all of a round cancelled at once."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import grpc

from scar.errors import ScarError, Unreachable, from_rpc
from scar.placement import Member
from scar.transport import Deadline, ShardLink, retry
from scar.v1 import ps_pb2

FINISH_SECONDS = 2.0

_log = logging.getLogger(__name__)

Request = ps_pb2.DistancesRequest | ps_pb2.SaveRequest
Answered = Callable[[Any], None]
Refused = Callable[[ScarError], None]


class Calls:
    """Connections to the shards of the newest epoch, by member key. Safe to use from any thread."""

    def __init__(self) -> None:
        self._links: dict[str, ShardLink] = {}
        self._open: dict[int, set[grpc.Future]] = defaultdict(set)
        self._lock = threading.Lock()

    def measure(self, shard: Member, request: ps_pb2.DistancesRequest, timeout: float, done: Answered, failed: Refused) -> None:
        self._start(shard, lambda link: link.control.Distances.future(request, timeout=timeout), request.round, done, failed)

    def save(self, shard: Member, request: ps_pb2.SaveRequest, timeout: float, done: Answered, failed: Refused) -> None:
        self._start(shard, lambda link: link.control.Save.future(request, timeout=timeout), request.round, done, failed)

    def finish(self, shard: Member, request: ps_pb2.FinishRequest) -> None:
        """Blocks for up to :data:`FINISH_SECONDS`. Raises :class:`ScarError`."""
        link = self._link(shard)

        def attempt(timeout: float) -> ps_pb2.FinishReply:
            reply: ps_pb2.FinishReply = link.call(link.control.Finish, request, timeout)
            return reply

        retry(attempt, Deadline(FINISH_SECONDS), f"{shard.key} to hear the end of round {request.round}")

    def cancel(self, round_number: int) -> None:
        """Nobody waits for this round's answers any more; they are not reported."""
        with self._lock:
            futures = self._open.pop(round_number, set())
        for future in futures:
            future.cancel()

    def keep(self, keys: set[str]) -> None:
        """Close connections to all others; their calls fail."""
        with self._lock:
            gone = [self._links.pop(key) for key in list(self._links) if key not in keys]
        for link in gone:
            link.close()

    def _start(
        self, shard: Member, begin: Callable[[ShardLink], grpc.Future], round_number: int, done: Answered, failed: Refused
    ) -> None:
        link = self._link(shard)
        try:
            future = begin(link)
        except ValueError:  # what gRPC raises on a channel that was closed
            return failed(Unreachable(f"{link.target}: the connection was closed"))
        with self._lock:
            self._open[round_number].add(future)
        future.add_done_callback(lambda ended: self._ended(ended, link.target, round_number, done, failed))
        return None

    def _ended(self, future: grpc.Future, target: str, round_number: int, done: Answered, failed: Refused) -> None:
        with self._lock:
            if future not in self._open.get(round_number, ()):
                return None  # cancelled
            self._open[round_number].discard(future)
        try:
            reply = future.result()
        except grpc.FutureCancelledError:  # with its channel
            return failed(Unreachable(f"{target}: the connection was closed"))
        except grpc.RpcError as error:
            return failed(from_rpc(error, target))
        return done(reply)

    def _link(self, shard: Member) -> ShardLink:
        with self._lock:
            if shard.key not in self._links:
                self._links[shard.key] = ShardLink(shard.address, shard.key)
            return self._links[shard.key]
