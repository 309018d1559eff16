"""A running checkpoint of which nothing can be read: for a while the store may be ill; then it is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Job
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.store import Store
from scar_runtime.store.layout import MANIFESTS
from scar_runtime.store.records import numbers

LOST_SECONDS = 30.0  # for which a store may be ill

_log = logging.getLogger(__name__)


class LossPatience:
    """Of one reader, for one kind of reads."""

    def __init__(self) -> None:
        self._since: float | None = None  # when nothing could be read any more

    def read(self, store: Store, job: Job, load: Callable[[], RunningCheckpoint]) -> RunningCheckpoint:
        """What ``load`` reads; x(0), all manifests passed over, where it has read nothing for
        :data:`LOST_SECONDS`: the job goes on from there, not never. Raises as ``load`` until then.
        """
        try:
            found = load()
        except (CorruptCheckpoint, ObjectNotFound) as error:
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            if now < self._since + LOST_SECONDS:
                raise
            _log.error("checkpoint.lost", extra={"reason": str(error)})
            found = RunningCheckpoint(job)
            found.passed_over = numbers(store, MANIFESTS)
            return found
        self._since = None
        return found
