"""A pull as a user asks for it: names and ids in, arrays out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar._client.core.pull_buffer import PullBuffer, unpack_result
from scar._client.core.pushes import check_ids, check_rows
from scar.blocks import Ids, RowNames, is_ascending
from scar.errors import DeadlineExceeded, InvalidRequest
from scar.tables import Job

Values = NDArray[Any]
Short = Collection[str]  # names of tables whose values travel as bfloat16
Several = list[str] | tuple[str, ...]
Names = str | Several
TableIds = ArrayLike | Mapping[str, ArrayLike] | None


class AskedBlocks(NamedTuple):
    """What a user named of one table, in the user's order, repeats included: blocks, or rows of blocks that
    have several; neither: the whole table.
    """

    ids: Ids | None = None
    rows: RowNames | None = None


def select_blocks(job: Job, name: str, ids: TableIds, rows: TableIds, single: bool) -> AskedBlocks:
    """What the user named of this table."""
    table = job.table(name)
    own_ids = _select_own("ids", name, ids, single)
    own_rows = _select_own("rows", name, rows, single)
    if table.keys is not None and own_ids is not None:
        raise InvalidRequest(f"table {name} has keys, and its blocks are no user's", "Name keys by rows=")
    if own_rows is None:
        return AskedBlocks(None if own_ids is None else check_ids(table, own_ids))
    if own_ids is not None:
        raise InvalidRequest(f"table {name} has both ids= and rows=", "Name blocks by ids, or rows by rows")
    numbers = check_rows(table, own_rows)
    return AskedBlocks(numbers.astype(np.uint32)) if table.has_row_blocks else AskedBlocks(rows=numbers)


def _select_own(what: str, name: str, given: TableIds, single: bool) -> ArrayLike | None:
    if isinstance(given, Mapping):
        return given.get(name)
    if given is not None and not single:
        raise InvalidRequest(f"{what} of several tables are a dict: {what}={{'a': ..., 'b': ...}}")
    return given


class PullRequest:
    """``tables``: one name (the answer is an array) or several (a dict of arrays). ``short``: names of those
    that come rounded to bfloat16.
    """

    def __init__(
        self,
        job: Job,
        tables: Names,
        ids: TableIds = None,
        rows: TableIds = None,
        short: Collection[str] = (),
    ) -> None:
        self._single = isinstance(tables, str)
        names = [tables] if isinstance(tables, str) else list(tables)
        self._asked = {name: select_blocks(job, name, ids, rows, self._single) for name in names}
        _check_short(job, short, names)
        if whole := [name for name in short if job.table(name).keys and self._asked[name].rows is None]:
            raise InvalidRequest(
                f"table {whole[0]} comes with its keys, which nothing rounds", "Leave it out of bfloat16"
            )
        self.wants = [
            PullBuffer(job.table(name), _sort_numbers(asked.ids), _sort_numbers(asked.rows), name in short)
            for name, asked in self._asked.items()
        ]

    def values(self) -> Any:
        """What the user gets, once everything wanted has arrived."""
        arrays = {}
        for wanted in self.wants:
            name = wanted.table.name
            asked = self._asked[name]
            arrays[name] = unpack_result(wanted, asked.ids if asked.rows is None else asked.rows)
        return next(iter(arrays.values())) if self._single else arrays


def _check_short(job: Job, short: Collection[str], names: Collection[str]) -> None:
    if unknown := sorted(set(short) - set(names)):
        raise InvalidRequest(f"bfloat16 names {', '.join(unknown)}, which this pull has not")
    if other := [name for name in short if job.table(name).dtype_name != "float32"]:
        raise InvalidRequest(
            f"table {other[0]} is {job.table(other[0]).dtype_name}: only float32 is pulled as bfloat16",
            "Leave its name out of bfloat16",
        )


def _sort_numbers(asked: Any) -> Any:
    """Each once, ascending."""
    return asked if asked is None or is_ascending(asked) else np.unique(asked)


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
