"""What a user's training code holds: a :class:`Worker` (by :func:`join`) or a :class:`Reader` (by :func:`connect`).

with scar.join("host:port", "worker-0") as worker:      # blocks until the job has started and all workers are there
    for clock in worker.clocks(limit=200, until=0.42):  # every worker stops at the same clock (BSP)
        w = worker.pull("w")                            # the whole table, read-only
        loss, gradient = step(w)
        worker.push("w", gradient)                      # returns at once; the end of the clock waits for acknowledgements
        worker.report(loss)                             # summed over the workers
"""

from __future__ import annotations

import importlib.util
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, overload

import numpy as np
from numpy.typing import ArrayLike

from scar.beats import Beats
from scar.client import UNACKED_BYTES, Client, Pushed
from scar.epochs import Follower, Recovery, View
from scar.errors import ConfigError, DeadlineExceeded, Fenced, InvalidRequest, JobNotFound, ScarError
from scar.local import NAME as LOCAL
from scar.local import Local, ensure_declared, unpacked
from scar.orders import Names, Order, Pending, TableIds, Values, ids_for
from scar.packing import combined, flat, packed_rows
from scar.placement import Member, Role
from scar.pulls import Puller
from scar.tables import Job
from scar.transport import Deadline

TIMEOUT_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
LEAVE_SECONDS = 5.0


class Worker:
    """A worker of the job. All methods belong to one thread; every error is a :class:`scar.errors.ScarError`.

    ``loss``: of the last closed clock that this worker has heard of, summed over workers; NaN before.
    ``loss_clock``: number of clocks that were closed then, so the loss is that of clock ``loss_clock - 1``; 0: none yet.
    """

    def __init__(self, client: Client, recovery: Recovery, beats: Beats | None) -> None:
        self._client, self._recovery, self._beats = client, recovery, beats
        self._reported: float | None = None
        self._step = 0
        self._stopping = self._closed = False
        self.job = client.job
        self.member = client.member

    # --- where it is -------------------------------------------------------------------------------------------------

    @property
    def clock_number(self) -> int:
        """Clocks that this worker has finished, which is the number of the open one."""
        return self._client.finished

    @property
    def epoch(self) -> int:
        """Number of the newest epoch that this worker follows."""
        return self._client.view.number

    @property
    def rank(self) -> int:
        """Position among the workers that share the data, from 0."""
        return self._client.view.epoch.rank(self.member.name)

    @property
    def world(self) -> int:
        """Number of workers that share the data: those of the epoch, and the dead whose seat is kept."""
        return len(self._client.view.epoch.ranks)

    @property
    def leads(self) -> bool:
        """First of the workers that live: for what one of them has to do."""
        return self._client.view.epoch.workers[:1] == (self.member,)

    @property
    def loss(self) -> float:
        return self._client.loss

    @property
    def loss_clock(self) -> int:
        return self._client.loss_clock

    @property
    def reroutes(self) -> int:
        """Epochs followed without a restart."""
        return self._client.reroutes

    @property
    def seconds_per_clock(self) -> float:
        """Moving average; 0 before two clocks have been finished."""
        return self._client.pace.seconds

    def share(self, n: int) -> slice:
        """This worker's contiguous part of ``n`` examples. It changes when workers come and go."""
        rank, world = self.rank, self.world
        return slice(rank * n // world, (rank + 1) * n // world)

    # --- work --------------------------------------------------------------------------------------------------------

    def clocks(self, limit: int | None = None, until: float | None = None) -> Iterator[int]:
        """Numbers of the clocks to work on, from the open one. Each is finished when the loop's body ends.

        ``limit``: number of the clock to stop before. ``until``: stop when the loss is this low; in BSP every worker hears the
        same loss for the same clock, so all stop at the same one.
        """
        while not self._stopping and (limit is None or self.clock_number < limit):
            if until is not None and self._reached(until):
                return
            yield self.clock_number
            self.clock()

    def _reached(self, until: float) -> bool:
        if self.clock_number and self.job.consistency == "bsp":
            self._client.refresh_loss()
        return self.loss_clock > 0 and self.loss <= until

    @overload
    def pull(self, tables: str, ids: TableIds = None) -> Values: ...

    @overload
    def pull(self, tables: list[str] | tuple[str, ...], ids: TableIds = None) -> dict[str, Values]: ...

    def pull(self, tables: Names, ids: TableIds = None) -> Values | dict[str, Values]:
        """Read-only values of a table, in its shape; or a dict of several. ``ids``: these blocks, in any order, rows packed."""
        order = Order(self.job, tables, ids)
        self._client.pull(order.wants)
        values: Values | dict[str, Values] = order.values()
        return values

    def pull_async(self, tables: Names, ids: TableIds = None) -> Pending:
        """The same in the background, while this thread computes."""
        order = Order(self.job, tables, ids)
        return Pending(order, self._client.pull_async(order.wants))

    def push(self, tables: str | Mapping[str, ArrayLike], values: ArrayLike | None = None, ids: TableIds = None) -> None:
        """Send an update: ``push("w", gradient)``, with ``ids`` for some blocks only, or ``push({"a": ..., "b": ...})`` as one.

        Returns at once, unless too much is unacknowledged. The arrays may be changed afterwards. A repeated id is summed (rule
        ``assign``: the last one wins).
        """
        arrays = _arrays(tables, values)
        self._client.push({name: self._packed(name, array, ids, isinstance(tables, str)) for name, array in arrays.items()})

    def _packed(self, name: str, values: ArrayLike, ids: TableIds, single: bool) -> Pushed:
        table = self.job.table(name)
        asked = ids_for(self.job, name, ids, single)
        if asked is None:
            return Pushed(None, flat(table, values, table.shape[0]))
        piece = combined(table, asked, flat(table, values, packed_rows(table, asked)))
        return Pushed(piece.ids, piece.values)

    def report(self, loss: float) -> None:
        """This worker's part of the loss of the open clock; parts are added."""
        self._reported = (self._reported or 0.0) + float(loss)

    def clock(self) -> None:
        """Finish the open clock: waits until all pushes are acknowledged. :meth:`clocks` does it."""
        self._client.clock(self._reported)
        self._reported = None

    def recall(self) -> Local:
        """This worker's own state, of the same moment as the model: see :mod:`scar.local`."""
        rank = self.rank
        ensure_declared(self.job, rank)
        found = unpacked(self.job, rank, np.ravel(self.pull(LOCAL, ids=[rank])))
        self._step = found.step
        return found

    def keep(self, values: ArrayLike = ()) -> None:
        """The step that was recalled in this clock is done; ``values`` are what the user hands in for the next one."""
        row = np.concatenate(([self._step + 1.0], np.ravel(np.asarray(values, np.float64))))
        self.push(LOCAL, row[np.newaxis], ids=[self.rank])

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let :meth:`clocks` end with the clock that is open. May be called from any thread or from a signal handler."""
        self._stopping = True

    def leave(self, finished: bool = True) -> None:
        """Wait until everything pushed is in the model, then leave the job. ``finished``: nobody takes over our share.

        One that is not finished has to go soon, so it does not wait long.
        """
        timeout, problem = self._client.timeout, None
        try:
            try:
                self._client.finish(Deadline(timeout if finished else min(timeout, LEAVE_SECONDS)))
            except DeadlineExceeded as error:
                problem = error  # the others must not wait for us on top of that
            self._recovery.leave(self.member, finished, Deadline(timeout))
        finally:
            self.close()
        if problem is not None and finished:
            raise problem

    def close(self) -> None:
        """Stop without a word to the others."""
        self._closed = True
        if self._beats is not None:
            self._beats.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._closed:
            return
        if error is None:
            self.leave(finished=not self._stopping)
            return
        try:
            if not isinstance(error, Fenced):
                self._recovery.leave(self.member, False, Deadline(LEAVE_SECONDS))  # or the others wait until we are found dead
        except ScarError as second:
            error.add_note(f"leaving the job failed, too: {second}")
        finally:
            self.close()


class Reader:
    """Looks at a job's tables without being part of it."""

    def __init__(self, job: Job, recovery: Recovery, timeout: float) -> None:
        self.job, self._timeout = job, timeout
        self._view = View(job)
        self._view.adopt(recovery.newest(0, Deadline(timeout)))
        self._puller = Puller(self._view, None)
        self._follower = Follower(self._view, recovery, self._view.adopt)

    @property
    def epoch(self) -> int:
        return self._view.number

    @overload
    def pull(self, tables: str, ids: TableIds = None) -> Values: ...

    @overload
    def pull(self, tables: list[str] | tuple[str, ...], ids: TableIds = None) -> dict[str, Values]: ...

    def pull(self, tables: Names, ids: TableIds = None) -> Values | dict[str, Values]:
        """As :meth:`Worker.pull`, of values as they are now."""
        order = Order(self.job, tables, ids)
        self._puller.pull(order.wants, 0, Deadline(self._timeout))
        values: Values | dict[str, Values] = order.values()
        return values

    def close(self) -> None:
        self._view.fail(InvalidRequest("the reader is closed"))
        self._follower.close()
        self._puller.close()
        self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(
    recovery: str,
    name: str,
    *,
    job: str = "",
    incarnation: str = "",
    address: str = "",
    detector: str = "",
    timeout: float = TIMEOUT_SECONDS,
    patience: float = PATIENCE_SECONDS,
    unacked_bytes: int = UNACKED_BYTES,
    stopping: threading.Event | None = None,
) -> Worker:
    """Become a worker of the cluster whose recovery coordinator is at ``recovery`` ("host:port").

    ``name`` stays the same over restarts. ``job``: wait until the cluster runs this one, not whichever it runs now.
    ``timeout``: seconds for one operation. ``patience``: seconds to wait for the job to start and for the other workers;
    ``stopping``: when set, it is over. ``detector`` ("host:port"): send it heartbeats, for a process that no chassis beats for.
    """
    member = Member(Role.WORKER, name, incarnation or secrets.token_hex(6), address)
    office, deadline = Recovery(recovery), Deadline(patience, stopping)
    try:
        spec = office.job(deadline, job)
        office.join(member, deadline)
        epoch = office.newest(0, deadline)
        while member not in epoch.workers:
            if epoch.job != spec.name:
                raise JobNotFound(f"job {spec.name!r} ended before {name} could join it")
            epoch = office.newest(epoch.number, deadline)
    except ScarError:
        office.close()
        raise
    client = Client(spec, member, office, timeout, unacked_bytes)
    beats = Beats(detector, member, lambda: (client.progress, client.view.number)) if detector else None
    worker = Worker(client, office, beats)
    try:
        client.start(epoch, deadline)
        client.await_workers(deadline)
    except ScarError:
        worker.close()
        raise
    return worker


def connect(recovery: str, *, timeout: float = TIMEOUT_SECONDS) -> Reader:
    """Read the tables of the cluster whose recovery coordinator is at ``recovery``. ``timeout``: seconds for one operation."""
    office = Recovery(recovery)
    try:
        return Reader(office.job(Deadline(timeout)), office, timeout)
    except ScarError:
        office.close()
        raise


def load_job(path: str, function: str = "train") -> tuple[Job, Callable[[Worker], object]]:
    """The ``job`` and the training function of a user's file. Raises :class:`ConfigError` that says what the file lacks."""
    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"scar_job_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file", "Give the path of a training file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickling and dataclasses look a class's module up
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path} cannot be loaded: {error!r}", "Run it with Python to see where it fails") from error
    finally:
        sys.path.remove(str(file.parent))
    job, train = getattr(module, "job", None), getattr(module, function, None)
    if not isinstance(job, Job):
        raise ConfigError(f"{path} has no job", "Add job = scar.Job(...)")
    if not callable(train):
        raise ConfigError(f"{path} has no function {function}", f"Add def {function}(worker)")
    return job, train


def _arrays(tables: str | Mapping[str, ArrayLike], values: ArrayLike | None) -> Mapping[str, ArrayLike]:
    if isinstance(tables, str):
        if values is None:
            raise InvalidRequest(f"push({tables!r}) needs values")
        return {tables: values}
    if values is not None:
        raise InvalidRequest("push takes one table and its values, or a dict of tables")
    return tables
