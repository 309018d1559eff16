"""How the store answers whoever asks it again and again, for those who look at the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scar.errors import ScarError
from scar.v1.recovery_pb2 import StoreHealth


class StoreWatch:
    """``now``: seconds of a monotonic clock. Requests of one thread at a time; any thread may read."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._answered: tuple[float, float] | None = None  # when, and after how many seconds
        self._problem = ""

    @contextmanager
    def request(self) -> Iterator[None]:
        """Notes how the request of the body went; its errors go on."""
        began = self._now()
        try:
            yield
        except ScarError as error:
            self._problem = error.message
            raise
        self._answered = (self._now(), self._now() - began)
        self._problem = ""

    def read(self) -> StoreHealth:
        if self._answered is None:
            return StoreHealth(age=-1.0, problem=self._problem)
        at, seconds = self._answered
        return StoreHealth(age=self._now() - at, seconds=seconds, problem=self._problem)
