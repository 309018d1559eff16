"""The trace of each push: from the user's call until every shard has acknowledged its part."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from scar.wire import tracing

MOST = 64  # pushes that are waited for; the end of an older one is not known


class PushTraces:
    """Of one worker; any thread may call it. A span ends no earlier than those of the pushes before it.

    Without traces nothing is kept.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # push -> parts that are not acknowledged
        self._lock = threading.Lock()

    def begin(self, push: int, parts: int) -> None:
        """Before any part can be sent. ``push``: its number, ascending."""
        if not tracing.is_on():
            return
        tracing.begin_operation(("push", push), "push")
        with self._lock:
            self._open[push] = parts
            while len(self._open) > MOST:
                del self._open[next(iter(self._open))]

    def sending(self, push: int) -> AbstractContextManager[None]:
        """What this thread does is part of it."""
        return tracing.join_operation(("push", push))

    def end_part(self, push: int) -> None:
        if not tracing.is_on():
            return
        with self._lock:
            left = self._open.pop(push, 0) - 1
            if left > 0:
                self._open[push] = left
            first = min(self._open, default=push + 1)
        tracing.end_operation(("push", first - 1))
