"""A pull as a user asks for it: names and ids in, arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import Ids
from scar.errors import DeadlineExceeded, InvalidRequest
from scar.packing import Wanted, checked_ids, result
from scar.tables import Job

Values = NDArray[Any]
Names = str | list[str] | tuple[str, ...]
TableIds = ArrayLike | Mapping[str, ArrayLike] | None


def ids_for(job: Job, name: str, ids: TableIds, single: bool) -> Ids | None:
    """The ids that the user gave for this table, in the user's order; None: all blocks."""
    table = job.table(name)
    if isinstance(ids, Mapping):
        ids = ids.get(name)
    elif ids is not None and not single:
        raise InvalidRequest("ids of several tables are a dict: ids={'a': ..., 'b': ...}")
    return None if ids is None else checked_ids(table, ids)


class Order:
    """``tables``: one name (the answer is an array) or several (a dict of arrays)."""

    def __init__(self, job: Job, tables: Names, ids: TableIds) -> None:
        self._single = isinstance(tables, str)
        names = [tables] if isinstance(tables, str) else list(tables)
        self._asked = {name: ids_for(job, name, ids, self._single) for name in names}
        self.wants = [
            Wanted(job.table(name), None if asked is None else np.unique(asked)) for name, asked in self._asked.items()
        ]

    def values(self) -> Any:
        """What the user gets, once everything wanted has arrived."""
        found = {wanted.table.name: result(wanted, self._asked[wanted.table.name]) for wanted in self.wants}
        return next(iter(found.values())) if self._single else found


class Pending:
    """A pull that is under way."""

    def __init__(self, order: Order, future: Future[None]) -> None:
        self._order, self._future = order, future

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """What :meth:`scar.Worker.pull` would have returned; waits for it at most ``timeout`` seconds."""
        try:
            self._future.result(timeout)
        except FutureTimeout as error:
            raise DeadlineExceeded(f"the pull has not arrived after {timeout:g} s") from error
        except CancelledError as error:
            raise InvalidRequest("the worker has left the job before the pull was made") from error
        return self._order.values()
