"""Requests on their way in. A sender that is silent holds a thread: for so long, and so many of them.

Nothing says how long a call may take, as a pull waits for its clock and a push for its turn. But whoever
sends a request has it at hand, so its messages come one after the other.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator, Iterator
from threading import Lock

import grpc

from scar.errors import DeadlineExceeded, InvalidRequest

SILENT_SECONDS = 10.0  # between two messages of one request
MOST_SILENT = 32  # requests that are waited for: half of the threads
CROWDED_SECONDS = 0.25  # silence for which a request may be ended, once there are as many

_log = logging.getLogger(__name__)


class Arriving:
    """A request that arrives. ``silent_since``: infinite while its handler is at work on what has come."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.context = context
        self.silent_since = time.monotonic()
        self.ended: DeadlineExceeded | None = None

    def end(self, silence: float) -> None:
        self.ended = DeadlineExceeded(
            f"the sender of this request was silent for {silence:.1f} s", "Send it again"
        )
        _cancel(self.context, self.ended)

    def raise_ended(self) -> None:
        """Say why, in place of the error that this looks like to gRPC."""
        if self.ended is not None:
            raise self.ended from None


class RequestStreams:
    """All requests of a server that arrive."""

    def __init__(self) -> None:
        self._arriving: dict[Arriving, None] = {}
        self._lock = Lock()

    def read_one(self, raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """The only message of a request."""
        request = self._admit(context)
        try:
            for raw in raws:
                return raw
        except grpc.RpcError:
            request.raise_ended()
            raise
        finally:
            self._forget(request)
        raise InvalidRequest("the request has no message")

    def read(self, raws: Iterator[bytes], context: grpc.ServicerContext) -> Generator[bytes, None, None]:
        """The messages of a request.

        Raises :class:`DeadlineExceeded` when its sender has been silent for too long.
        """
        request = self._admit(context)
        try:
            for raw in raws:
                request.silent_since = math.inf
                yield raw
                request.silent_since = time.monotonic()
        except grpc.RpcError:
            request.raise_ended()
            raise
        finally:
            self._forget(request)

    def _admit(self, context: grpc.ServicerContext) -> Arriving:
        request = Arriving(context)
        with self._lock:
            self._arriving[request] = None
        self._make_room()
        return request

    def _forget(self, request: Arriving) -> None:
        with self._lock:
            self._arriving.pop(request, None)

    def end_silent(self) -> None:
        """To be called now and then."""
        if self._arriving:
            self._end_longest(SILENT_SECONDS, len(self._arriving))

    def _make_room(self) -> None:
        """Those who have been silent for the longest give way."""
        surplus = len(self._arriving) - MOST_SILENT
        if surplus > 0:
            self._end_longest(CROWDED_SECONDS, surplus)

    def _end_longest(self, least: float, most: int) -> None:
        """End at most so many, of those who have been silent for ``least`` seconds."""
        now = time.monotonic()
        with self._lock:
            arriving = [one for one in self._arriving if one.ended is None]
        silent = sorted(arriving, key=lambda one: one.silent_since)
        for one in silent[:most]:
            silence = now - one.silent_since
            if silence > least:
                one.end(silence)


def _cancel(context: grpc.ServicerContext, error: DeadlineExceeded) -> None:
    """End a call whose handler waits in another thread. gRPC's core can tell the caller why, which its
    Python interface leaves out.
    """
    _log.warning("request.silent", extra={"peer": context.peer(), "reason": error.message})
    call = getattr(getattr(context, "_rpc_event", None), "call", None)
    if call is None:
        context.cancel()
    else:
        call.cancel(error.code.value[0], error.message)
