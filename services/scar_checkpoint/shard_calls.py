"""Calls to shards that may take long and may become void: one future per call, all of a round cancelled at
once.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import grpc

from scar.errors import ScarError, Unreachable, from_rpc
from scar.placement import Member
from scar.v1 import ps_pb2
from scar.wire.link_pool import ShardLinks
from scar.wire.shard_link import ShardLink
from scar.wire.transport import Deadline, retry

OnAnswer = Callable[[Any], None]
OnRefusal = Callable[[ScarError], None]


class ShardCalls:
    """Connections to the shards of the newest epoch, by member key. Safe to use from any thread."""

    def __init__(self) -> None:
        self._links = ShardLinks()
        self._open: dict[int, set[grpc.Future]] = defaultdict(set)
        self._lock = threading.Lock()

    def measure_distances(
        self,
        shard: Member,
        request: ps_pb2.DistancesRequest,
        timeout: float,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
    ) -> None:
        def begin(link: ShardLink) -> grpc.Future:
            return link.control.Distances.future(request, timeout=timeout)

        self._start_call(shard, begin, request.round, on_answer, on_refusal)

    def count_keys(
        self,
        shard: Member,
        request: ps_pb2.CountRequest,
        timeout: float,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
    ) -> None:
        def begin(link: ShardLink) -> grpc.Future:
            return link.control.Count.future(request, timeout=timeout)

        self._start_call(shard, begin, request.round, on_answer, on_refusal)

    def save_blocks(
        self,
        shard: Member,
        request: ps_pb2.SaveRequest,
        timeout: float,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
    ) -> None:
        def begin(link: ShardLink) -> grpc.Future:
            return link.control.Save.future(request, timeout=timeout)

        self._start_call(shard, begin, request.round, on_answer, on_refusal)

    def finish_round(self, shard: Member, request: ps_pb2.FinishRequest, timeout: float) -> None:
        """Blocks for up to ``timeout`` seconds. Raises :class:`ScarError`."""
        link = self._links.connect(shard)

        def attempt(remaining: float) -> ps_pb2.FinishReply:
            reply: ps_pb2.FinishReply = link.call(link.control.Finish, request, remaining)
            return reply

        retry(attempt, Deadline(timeout), f"{shard.key} to hear the end of round {request.round}")

    def cancel_round(self, round_number: int) -> None:
        """Nobody waits for this round's answers any more; they are not reported."""
        with self._lock:
            futures = self._open.pop(round_number, set())
        for future in futures:
            future.cancel()

    def retain_links(self, keys: set[str]) -> None:
        """Close connections to all others; their calls fail."""
        self._links.retain(keys)

    def _start_call(
        self,
        shard: Member,
        begin: Callable[[ShardLink], grpc.Future],
        round_number: int,
        on_answer: OnAnswer,
        on_refusal: OnRefusal,
    ) -> None:
        link = self._links.connect(shard)
        try:
            future = begin(link)
        except ValueError:  # what gRPC raises on a channel that was closed
            return on_refusal(Unreachable(f"{link.target}: the connection was closed"))
        with self._lock:
            self._open[round_number].add(future)
        future.add_done_callback(
            lambda ended: self._end_call(ended, link.target, round_number, on_answer, on_refusal)
        )
        return None

    def _end_call(
        self, future: grpc.Future, target: str, round_number: int, on_answer: OnAnswer, on_refusal: OnRefusal
    ) -> None:
        with self._lock:
            if future not in self._open.get(round_number, ()):
                return None  # cancelled
            self._open[round_number].discard(future)
        try:
            reply = future.result()
        except grpc.FutureCancelledError:  # with its channel
            return on_refusal(Unreachable(f"{target}: the connection was closed"))
        except grpc.RpcError as error:
            return on_refusal(from_rpc(error, target))
        return on_answer(reply)
