"""A cluster in which things break: starts its job, waits for it, reads its truth from the store, judges it.

with open_run(LocalTarget(folder), folder, shards=3, workers=2) as run:
    run.target.inject("kill", "ps-1")
    run.wait_healed()
    run.verify()
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scar.errors import DeadlineExceeded
from scar.tables import Job
from scar.wire.loss_messages import point_from_proto
from scar_admin.polling import LOOK_PAUSE, await_status
from scar_admin.status import ClusterStatus
from scar_chaos.core.counting_job import make_job
from scar_chaos.health import find_problems, finished_clocks, member_incarnations
from scar_chaos.oracles.exactly_once import SettledPushes
from scar_chaos.oracles.verdict import RunRecords, Verdict, judge_run
from scar_chaos.recorder import Recorder, newest_clocks
from scar_chaos.restore import restore_tables
from scar_chaos.run_reader import RunReader
from scar_chaos.targets.base import ChaosTarget

TIMEOUT = 90.0  # seconds for anything that is waited for; generous, for busy machines
LEDGER_SECONDS = 60.0  # after which no record in the store may wait for a worker's report
AHEAD = 6  # clocks between an order to rest and the clock to rest at: every worker hears of it in time


class NotHealed(AssertionError):
    """The cluster did not become well again in time."""


class ChaosRun(RunReader):
    """All waiting is bounded and says what it waited for."""

    def __init__(self, target: ChaosTarget, job: Job, recorder: Recorder) -> None:
        super().__init__(target, job, recorder)
        self.shards = [target.member(f"ps-{number}") for number in range(job.shards)]
        self.workers = [target.member(f"worker-{number}") for number in range(job.workers)]
        self._settled = SettledPushes()

    # --- waiting

    def wait(
        self, condition: Callable[[ClusterStatus], bool], what: str, timeout: float = TIMEOUT
    ) -> ClusterStatus:
        """Look until ``condition`` holds.

        Raises :class:`DeadlineExceeded` after ``timeout`` seconds, with the cluster's problems.
        """
        return await_status(self.status, condition, what, timeout)

    def wait_clock(self, clock: int, timeout: float = TIMEOUT) -> ClusterStatus:
        return self.wait(lambda status: status.clock >= clock, f"clock {clock}", timeout)

    def wait_clocks(self, clocks: int) -> ClusterStatus:
        """Wait until the open clock is this much further."""
        status = self.wait(lambda status: bool(status.shards), "a shard's answer")
        return self.wait_clock(status.clock + clocks)

    def wait_healed(
        self, before: Mapping[str, str] | None = None, killed: Sequence[str] = ()
    ) -> ClusterStatus:
        """Wait until everybody is back, owns blocks, has settled, all losses are reported and training moves.

        ``before``: :meth:`incarnations` before the fault; ``killed``: names of those that must have been
        replaced since. Raises :class:`NotHealed` with what is still wrong.
        """
        gone = {(before or {}).get(name, "") for name in killed}
        problems: list[str] = []

        def is_healed(status: ClusterStatus) -> bool:
            alive = gone & set(member_incarnations(status).values())
            problems[:] = find_problems(status, (*self.shards, *self.workers))
            problems.extend(self.target.unwell())
            problems.extend(f"{incarnation} lives" for incarnation in sorted(alive))
            return not problems

        try:
            status = self.wait(is_healed, "the cluster to heal")
        except DeadlineExceeded as error:
            raise NotHealed(f"not healed: {'; '.join(problems)}") from error
        return self.wait_clock(status.clock + 2)

    def wait_saved(self, since: ClusterStatus) -> None:
        """Wait until a round of this job is committed.

        A cluster whose checkpoint has stopped looks well until it is needed.
        """
        number = since.checkpoint.manifest if since.checkpoint is not None else 0

        def is_saved(status: ClusterStatus) -> bool:
            return status.checkpoint is not None and status.checkpoint.manifest > number

        self.wait(is_saved, "a round to be committed")

    def hold_workers(self) -> int:
        """Bring all workers to rest at one clock; everything that they pushed is acknowledged.

        Returns the clock.
        """
        clock = self.future_clock()
        self.recorder.give_orders(hold=clock)
        while (reached := self.status().clock) < clock:  # who was away may have far to go, where nobody waits
            self.wait_clock(reached + 1)

        def is_at_rest(status: ClusterStatus) -> bool:
            reached = min(finished_clocks(status), default=0)
            return self._all_answer(status) and reached == clock and status.clock == clock

        self.wait(is_at_rest, f"all workers to rest at clock {clock}")
        return clock

    def future_clock(self) -> int:
        """A clock that no worker has begun.

        A worker that does not wait for acknowledgements is further than the shards know.
        """
        begun = newest_clocks(self.recorder.folder) if self.job.strategy.queues else []
        status = self.wait(
            lambda status: self._all_answer(status) and bool(finished_clocks(status)), "clocks of every shard"
        )
        return max([*finished_clocks(status), *begun]) + AHEAD

    def incarnations(self) -> dict[str, str]:
        """Name -> incarnation of every member of the newest epoch."""
        return member_incarnations(self.wait(lambda status: status.epoch is not None, "an epoch"))

    def _all_answer(self, status: ClusterStatus) -> bool:
        """A busy shard may miss a look; nothing follows from a look without it."""
        return len(status.shards) == len(self.shards)

    # --- judging

    def verify(self) -> None:
        """Bring everything to rest, run every oracle, and let training go on.

        Raises :class:`scar_chaos.oracles.violation.Violation`.
        """
        self.judge_at_rest().enforce()

    def judge_at_rest(self) -> Verdict:
        """The same, as a value."""
        self.wait_healed()
        self.hold_workers()
        self._wait_ledger()
        try:
            return self.judge(self.read_values())
        finally:
            self.recorder.give_orders()

    def judge(self, values: Mapping[str, np.ndarray]) -> Verdict:
        """``values``: of all blocks, while no worker has a push on its way."""
        epochs = self.read_epochs()
        shards = self.wait(self._all_answer, "an answer of every shard").shards.values()
        return judge_run(
            RunRecords(
                job=self.job,
                epochs=epochs,
                ledger=self.read_ledger(),
                history=self.read_history(),
                values=values,
                saved=restore_tables(self.store, self.job, self.target.damaged),
                returned=[blocks for epoch in epochs for blocks in self.read_returned(epoch)],
                observed=self.target.observed_violations(),
                losses=[{one.clock: point_from_proto(one) for one in shard.losses} for shard in shards],
                settled=self._settled,
            )
        )

    def _wait_ledger(self) -> None:
        """Give the ledger its time; what is open in the store after that is for the verdict to say."""
        deadline = time.monotonic() + LEDGER_SECONDS
        while time.monotonic() < deadline:
            if not any(record.waiting or not record.epoch for record in self.read_ledger()):
                return
            time.sleep(LOOK_PAUSE)


@contextmanager
def open_run(
    target: ChaosTarget, folder: Path, *, resume: bool = False, **options: Any
) -> Iterator[ChaosRun]:
    """A job that trains on ``target``; nothing of it is left when the block ends.

    ``folder``: for the history. ``options``: of :func:`scar_chaos.core.counting_job.make_job`.
    """
    with Recorder(folder / "history", target.listen, target.host) as recorder:
        environment = {"SCAR_CHAOS_JOB": json.dumps(options), "SCAR_CHAOS_RECORDER": recorder.address}
        try:
            job = make_job(**options)
            target.begin(job, environment, resume)
            run = ChaosRun(target, job, recorder)
            run.wait(lambda status: status.clock >= 3, "the first clocks")
            yield run
        finally:
            target.end()
