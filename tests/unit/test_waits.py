"""What a look at a cluster says about a training that does not go on; no process runs here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scar.tables import Job, Table
from scar.v1 import ps_pb2, recovery_pb2, types_pb2, worker_pb2
from scar.wire.codec import job_to_proto
from scar_admin.status import ClusterStatus
from scar_admin.waits import waits

JOB = job_to_proto(Job("mnist", tables=[Table("w", 10)], shards=4, workers=2))


def member(name: str, role: types_pb2.Role = types_pb2.ROLE_WORKER) -> types_pb2.Member:
    return types_pb2.Member(role=role, name=name, incarnation="f" * 12, address="127.0.0.1:1")


def worker(
    name: str, state: str = "training", clock: int = 5, waited: float = 0.1, pace: float = 0.1
) -> worker_pb2.WorkerStatus:
    return worker_pb2.WorkerStatus(
        member=member(name), state=state, clock=clock, waited=waited, seconds_per_clock=pace
    )


def training(*workers: worker_pb2.WorkerStatus, **rest: object) -> ClusterStatus:
    epoch = types_pb2.Epoch(
        number=3, workers=[one.member for one in workers], awaits_workers=len(workers) < JOB.workers
    )
    recovery = recovery_pb2.RecoveryStatus(leader=True)
    by_name = {one.member.name: one for one in workers}
    return replace(ClusterStatus(recovery=recovery, job=JOB, epoch=epoch, workers=by_name), **rest)  # type: ignore[arg-type]


def test_too_few_shards_and_how_to_go_on() -> None:
    shards = [member(f"ps-{number}", types_pb2.ROLE_SHARD) for number in range(3)]
    problem = "waiting for shards: 3 of 4 have joined"
    recovery = recovery_pb2.RecoveryStatus(
        members=[*shards, member("worker-0")], waiting=7.5, problem=problem
    )
    (wait,) = waits(ClusterStatus(recovery=recovery, job=JOB, problems=(f"recovery: {problem}",)))
    assert (wait.text, wait.seconds, wait.wrong) == ("3 of 4 shards have joined", 7.5, True)
    assert wait.step == (
        "Start 1 more (`scar up --shards 4`; of a release: ps.replicas=4, and all of its pods have to run),"
        " or train with --shards 3"
    )


def test_too_few_workers() -> None:
    (wait,) = waits(training(worker("worker-0", "waiting", 0, 8.0)))
    assert (wait.text, wait.seconds) == ("1 of 2 workers have joined: worker-0", 8.0)
    assert wait.step.endswith("Or train with --workers 1")
    assert waits(training(worker("worker-0", "waiting", 0, 8.0), worker("worker-1", "waiting", 0, 8.0))) == []


def test_too_few_workers_of_a_resumed_job() -> None:
    """Its number of workers stays; and one that comes back to a run that is under way waits for nobody."""
    status = training(worker("worker-0", "waiting", 5, 8.0))
    table = ps_pb2.TableStatus(blocks=3)
    status = replace(status, shards={"ps-0": ps_pb2.ShardStatus(clock=5, tables=[table])})
    (wait,) = waits(status)
    assert "--workers" not in wait.step
    status.epoch.awaits_workers = False  # type: ignore[union-attr]
    assert waits(status) == []


def test_who_has_finished_the_fewest_clocks_is_waited_for() -> None:
    slow, fast, gone = (
        worker("worker-0", waited=12.0),
        worker("worker-1", clock=6, waited=12.0),
        worker("worker-2", "leaving", 9),
    )
    (wait,) = waits(training(slow, fast, gone))
    assert wait.text == "worker-0 has not finished clock 5, worker-1, worker-2 wait for it"
    assert (wait.seconds, wait.worker, wait.wrong) == (12.0, "worker-0", True)


@pytest.mark.parametrize(
    ("waited", "pace", "found"), [(4.0, 0.1, 0), (6.0, 0.1, 1), (40.0, 10.0, 0), (60.0, 10.0, 1)]
)
def test_a_clock_is_late_by_what_clocks_take(waited: float, pace: float, found: int) -> None:
    assert len(waits(training(worker("worker-0", waited=waited, pace=pace)))) == found


@pytest.mark.parametrize(("waited", "wrong"), [(10.0, False), (61.0, True)])
def test_a_first_clock_that_takes_long_is_said_and_no_error_at_first(waited: float, wrong: bool) -> None:
    (wait,) = waits(training(worker("worker-0", clock=0, waited=waited, pace=0.0)))
    assert wait.wrong == wrong


def test_what_services_say_comes_with_its_time() -> None:
    status = training(
        worker("worker-0"),
        problems=("recovery: epoch 4 waits for the store", "detector: Redis cannot be read"),
    )
    assert status.recovery is not None
    status.recovery.waiting = 3.0
    assert [(wait.text.partition(":")[0], wait.seconds) for wait in waits(status)] == [
        ("recovery", 3.0),
        ("detector", -1.0),
    ]


def test_without_a_job_and_after_its_end_nothing_is_waited_for() -> None:
    assert waits(ClusterStatus(problems=("checkpoint: no job was started yet",))) == []
    done = recovery_pb2.RecoveryStatus(finished=recovery_pb2.FinishedRecord(number=3, manifest=7))
    assert waits(replace(training(worker("worker-0", waited=99.0)), recovery=done)) == []
