"""A pull as a user asks for it: names and ids in, arrays out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar._client.core.pull_buffer import PullBuffer, unpack_result
from scar._client.core.pushes import check_ids
from scar.blocks import Ids, is_ascending
from scar.errors import DeadlineExceeded, InvalidRequest
from scar.tables import Job

Values = NDArray[Any]
Names = str | list[str] | tuple[str, ...]
TableIds = ArrayLike | Mapping[str, ArrayLike] | None


def select_ids(job: Job, name: str, ids: TableIds, single: bool) -> Ids | None:
    """The ids that the user gave for this table, in the user's order; None: all blocks."""
    table = job.table(name)
    if isinstance(ids, Mapping):
        ids = ids.get(name)
    elif ids is not None and not single:
        raise InvalidRequest("ids of several tables are a dict: ids={'a': ..., 'b': ...}")
    return None if ids is None else check_ids(table, ids)


class PullRequest:
    """``tables``: one name (the answer is an array) or several (a dict of arrays)."""

    def __init__(self, job: Job, tables: Names, ids: TableIds) -> None:
        self._single = isinstance(tables, str)
        names = [tables] if isinstance(tables, str) else list(tables)
        self._asked = {name: select_ids(job, name, ids, self._single) for name in names}
        self.wants = [
            PullBuffer(job.table(name), asked if asked is None or is_ascending(asked) else np.unique(asked))
            for name, asked in self._asked.items()
        ]

    def values(self) -> Any:
        """What the user gets, once everything wanted has arrived."""
        arrays = {}
        for wanted in self.wants:
            name = wanted.table.name
            arrays[name] = unpack_result(wanted, self._asked[name])
        return next(iter(arrays.values())) if self._single else arrays


class PullFuture:
    """A pull that is under way: what :meth:`scar.Worker.pull_async` returns."""

    def __init__(
        self, request: PullRequest, future: Future[float], note_pull: Callable[[float, float], None]
    ) -> None:
        """``future``: since when its values were under way. ``note_pull``: hears since when a thread has
        waited for them, and that (infinity: they have not come).
        """
        self._request = request
        self._future = future
        self._note_pull = note_pull

    def done(self) -> bool:
        """Whether the values have arrived, or the pull has failed."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """What :meth:`scar.Worker.pull` would have returned; waits for it at most ``timeout`` seconds.

        Raises :class:`DeadlineExceeded` when it has not arrived by then, and the pull's own error.
        """
        began = time.monotonic()
        moving = math.inf
        try:
            moving = self._future.result(timeout)
            return self._request.values()
        except FutureTimeout as error:
            raise DeadlineExceeded(f"the pull has not arrived after {timeout:g} s") from error
        except CancelledError as error:
            raise InvalidRequest("the worker has left the job before the pull was made") from error
        finally:
            self._note_pull(began, moving)
