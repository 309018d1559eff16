"""A `StartJob` that comes again: whose request it was is in the job's record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar.errors import InvalidRequest, JobExists, NotServing
from scar.tables import Job, Table, given
from scar.v1 import recovery_pb2, types_pb2
from scar.wire.codec import job_to_proto
from scar_recovery.codec import job_start_from_proto
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_runtime.store.base import Data
from scar_runtime.store.records import create_record
from tests.framework.recovery import MemoryStore

JOB = Job("test", [Table("a", (8, 2))], shards=2)


def request(job: Job = JOB, request_id: str = "one", **more: object) -> recovery_pb2.StartJobRequest:
    return recovery_pb2.StartJobRequest(job=job_to_proto(job), request_id=request_id, **more)  # type: ignore[arg-type]


def start(job: Job = JOB, request_id: str = "one", **more: object) -> types_pb2.JobStart:
    found = job_start_from_proto(request(job, request_id, **more))
    assert found is not None
    return found


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def jobs(store: MemoryStore) -> JobRegistry:
    return JobRegistry(store, "scar")


def begin(store: MemoryStore) -> None:
    create_record(store.under("test"), "epochs/00000001", types_pb2.Epoch(number=1, job="test"))


def test_a_request_says_who_it_is_in_few_letters() -> None:
    assert job_start_from_proto(request(request_id="")) is None, "an older client"
    assert start(request_id="a" * 64).request_id == "a" * 64
    for wrong in ("a" * 65, "a b", "ä", "a\n", "../a"):
        with pytest.raises(InvalidRequest, match="request_id"):
            job_start_from_proto(request(request_id=wrong))


def test_two_requests_are_one_only_when_everything_is_the_same() -> None:
    others = [
        start(replace(JOB, seed=1)),
        start(resume=True),
        start(take_over=True),
        start(given={"a": b"1"}),
        start(given={"a": b"2"}),
    ]
    assert start() == start()
    assert len({other.digest for other in [start(), *others]}) == 1 + len(others)


def test_the_answer_of_a_start_is_known_to_every_leader(store: MemoryStore, jobs: JobRegistry) -> None:
    assert jobs.find_answer("test", start()) is None
    jobs.declare_job(JOB, GivenArrays(), False, start())
    begin(store)
    successor = JobRegistry(store, "scar")
    assert successor.find_answer("test", start()) == ""
    assert successor.find_answer("test", start(request_id="two")) is None
    assert successor.find_answer("test", None) is None
    with pytest.raises(InvalidRequest, match="'one' was of another request") as refused:
        successor.find_answer("test", start(resume=True))
    assert "Draw a new one" in refused.value.next_step


def test_the_record_says_nothing_to_members_and_changes_no_description(
    store: MemoryStore, jobs: JobRegistry
) -> None:
    declared = jobs.declare_job(JOB, GivenArrays(), False, start())
    jobs.record_run(declared)
    found = JobRegistry(store, "scar").find_running_job()
    assert found is not None
    assert job_to_proto(found) == job_to_proto(declared) == job_to_proto(JOB)
    assert jobs.find_changes(JOB, resume=True) == ""


def test_before_a_job_has_begun_it_is_of_whoever_asks_last(store: MemoryStore, jobs: JobRegistry) -> None:
    """The program that asked first may have ended; both cannot be told that they have started it."""
    jobs.declare_job(JOB, GivenArrays(), False, start())
    jobs.declare_job(JOB, GivenArrays(), False, None)
    assert jobs.find_answer("test", start()) == "", "an older client takes nothing over"
    jobs.declare_job(JOB, GivenArrays(), False, start(request_id="two"))
    assert jobs.find_answer("test", start()) is None
    assert jobs.find_answer("test", start(request_id="two")) == ""
    begin(store)
    with pytest.raises(JobExists):
        jobs.declare_job(JOB, GivenArrays(), False, start())


def test_a_resumption_is_told_again_what_it_has_changed(jobs: JobRegistry) -> None:
    asked = replace(JOB, workers=3)
    again = start(asked, "two", resume=True)
    jobs.declare_job(JOB, GivenArrays(), False, start())
    assert jobs.find_answer("test", again) is None
    changes = jobs.find_changes(asked, resume=True)
    jobs.revise_job(asked, again)
    assert jobs.find_changes(asked, resume=True) == ""
    assert jobs.find_answer("test", again) == changes == "workers: 1 -> 3"
    assert jobs.find_answer("test", start()) is None, "the run that it began has ended"


def test_whoever_loses_a_race_is_told_to_ask_again(store: MemoryStore, jobs: JobRegistry) -> None:
    """It may have been the same request: the answer is in the record that won."""

    class Racing(MemoryStore):
        def create(self, key: str, data: Data) -> None:
            self.put(key, b"of a leader that was faster")
            super().create(key, data)

    racing = Racing(store.objects)
    with pytest.raises(NotServing, match="just been started"):
        JobRegistry(racing, "scar").declare_job(JOB, GivenArrays(), False, start())
    store.objects.clear()
    jobs.declare_job(JOB, GivenArrays(), False, start())
    with pytest.raises(NotServing, match="just been resumed"):
        JobRegistry(racing, "scar").revise_job(replace(JOB, workers=3), start(request_id="two"))


def test_given_arrays_are_part_of_the_request(store: MemoryStore, jobs: JobRegistry) -> None:
    job = replace(JOB, tables=[Table("a", (2, 2), init=given(np.ones((2, 2), np.float32)))])
    raw = {"a": np.ones(4, np.float32).tobytes()}
    jobs.declare_job(job, GivenArrays(raw), False, start(job, given=raw))
    begin(store)
    assert jobs.find_answer("test", start(job, given=raw)) == ""
    with pytest.raises(InvalidRequest):
        jobs.find_answer("test", start(job, given={"a": bytes(16)}))
