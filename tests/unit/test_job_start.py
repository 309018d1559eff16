"""What is sent to start a job: initial values with it or before it, none where the job has its own, one
request however often it is sent.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

import scar
from scar.errors import ConfigError, CorruptCheckpoint, InvalidRequest, JobExists, ObjectNotFound, TooLarge
from scar.job_start import start_job
from scar.v1 import recovery_pb2, types_pb2
from scar.wire.codec import MAX_MESSAGE_BYTES, job_from_proto
from scar.wire.table_messages import INITIAL_PART_BYTES
from scar_recovery.codec import uploaded_from_proto
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.store.records import create_record
from tests.framework.recovery import MemoryStore

LARGE_ROWS = (1 << 16) + 5  # of 1 KiB: four parts and a bit


class Coordinator:
    """Takes what the wire takes, for a store. ``failures``: what it answers first."""

    def __init__(self, *failures: Exception) -> None:
        self.requests: list[recovery_pb2.StartJobRequest] = []
        self.store = MemoryStore()
        self.registry = JobRegistry(self.store, "scar")
        self.uploads = 0
        self._failures = list(failures)

    def StartJob(self, request: recovery_pb2.StartJobRequest, **_: object) -> SimpleNamespace:
        assert request.ByteSize() <= MAX_MESSAGE_BYTES
        self.requests.append(request)
        self._fail()
        return SimpleNamespace(changes="")

    def UploadInitial(self, request: recovery_pb2.UploadInitialRequest, **_: object) -> SimpleNamespace:
        assert request.ByteSize() <= MAX_MESSAGE_BYTES
        key = self.registry.upload_initial(request.job, request.table, request.data)
        self.uploads += 1
        self._fail()
        return SimpleNamespace(key=key)

    def _fail(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    def declare(self) -> scar.Job:
        """As :meth:`StartJob` does."""
        request = self.requests[-1]
        given = GivenArrays(request.given, uploaded_from_proto(request))
        return self.registry.declare_job(job_from_proto(request.job), given, resume=False)


class Lost(grpc.RpcError):
    """The connection broke, with the answer or without."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def given_job(rows: int) -> scar.Job:
    """With rows of 1 KiB, and another table beside."""
    values = np.arange(256 * rows, dtype=np.float32).reshape(rows, 256)
    small = scar.Table("small", (3,), init=scar.given([1, 2, 3]))
    return scar.Job("large", [scar.Table("rows", values.shape, init=scar.given(values)), small])


@pytest.fixture(scope="module")
def uploaded() -> Coordinator:
    coordinator = Coordinator(Lost())
    coordinator.registry.upload_initial("large", "rows", b"what somebody began and did not end")
    start_job(coordinator, given_job(LARGE_ROWS), resume=False)  # type: ignore[arg-type]
    return coordinator


def test_initial_values_that_do_not_go_into_one_message_are_uploaded_first(uploaded: Coordinator) -> None:
    [request] = uploaded.requests
    assert not request.given
    assert uploaded.uploads == 5 + 1 + 1, "the first answer was lost"
    job = uploaded.declare()
    array = given_job(LARGE_ROWS).tables[0].init.array
    table = job.table("rows")
    assert array is not None
    assert len(table.init.more_keys) == 4
    store = uploaded.store.under("large")
    found = read_initial(store, table, np.arange(table.blocks, dtype=np.uint32))
    np.testing.assert_array_equal(found, array.reshape(-1))
    small = read_initial(store, job.table("small"), np.arange(3, dtype=np.uint32))
    np.testing.assert_array_equal(small, [1, 2, 3])
    named = {one for t in job.tables for one in t.init.part_keys}
    assert set(store.list("init/")) == named, "nothing else is left"


def test_only_parts_that_have_some_of_the_blocks_are_read(uploaded: Coordinator) -> None:
    table = uploaded.declare().table("rows")
    store = uploaded.store.under("large")
    array = given_job(LARGE_ROWS).tables[0].init.array
    assert array is not None
    keys = table.init.part_keys
    within = {f"large/{keys[part]}": store.get(keys[part]) for part in (1, 4)}
    ids = np.array([17_000, 17_001, 32_767, LARGE_ROWS - 1], np.uint32)  # 16,384 rows in a part
    found = read_initial(MemoryStore(within).under("large"), table, ids)
    np.testing.assert_array_equal(table.initial(0, ids, found), array[ids].reshape(-1))
    with pytest.raises(ObjectNotFound):
        read_initial(MemoryStore(within).under("large"), table, np.array([16_383], np.uint32))


@pytest.mark.parametrize("part", [0, 4])
def test_a_part_that_is_not_what_was_uploaded_is_known(uploaded: Coordinator, part: int) -> None:
    table = uploaded.declare().table("rows")
    keys = table.init.part_keys
    whole = uploaded.store.under("large").get(keys[part])
    ids = np.array([0 if part == 0 else LARGE_ROWS - 1], np.uint32)
    for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        with pytest.raises(CorruptCheckpoint, match=re.escape(keys[part])):
            read_initial(MemoryStore({keys[part]: damaged}), table, ids)


def test_a_job_whose_parts_are_not_all_there_is_not_started(uploaded: Coordinator) -> None:
    request = uploaded.requests[-1]
    keys = uploaded_from_proto(request)
    rows = keys["rows"]
    job = job_from_proto(request.job)
    for wrong in ((), rows[:-1], rows[1:], (*rows, rows[0]), keys["small"], ("objects/x",) * 5):
        given = GivenArrays({}, {**keys, "rows": wrong})
        with pytest.raises(InvalidRequest, match="table rows: the given initial array is missing"):
            JobRegistry(MemoryStore(), "scar").declare_job(job, given, resume=False)
    for key in (rows[0], rows[-1]):
        lacking = MemoryStore(dict(uploaded.store.objects))
        lacking.objects[f"large/{key}"] = lacking.objects[f"large/{key}"][:-1]
        lacking.objects.pop("large/job", None)
        with pytest.raises(InvalidRequest, match="table rows: the given initial array is missing"):
            JobRegistry(lacking, "scar").declare_job(job, GivenArrays({}, keys), resume=False)
        assert "large/job" not in lacking.objects


def test_what_nobody_may_upload() -> None:
    store = MemoryStore()
    registry = JobRegistry(store, "scar")
    for job, table, data in (
        ("../other", "w", b"x"),
        ("a/b", "w", b"x"),
        ("job", "../w", b"x"),
        ("job", "w", b""),
        ("job", "w", bytes(INITIAL_PART_BYTES + 1)),
    ):
        with pytest.raises((ConfigError, TooLarge)):
            registry.upload_initial(job, table, data)
    create_record(store.under("job"), "epochs/00000001", types_pb2.Epoch(number=1, job="job"))
    with pytest.raises(JobExists, match="has begun"):
        registry.upload_initial("job", "w", b"x")
    assert list(store.objects) == ["job/epochs/00000001"]


def test_those_that_just_fit_are_sent() -> None:
    coordinator = Coordinator()
    start_job(coordinator, given_job((1 << 16) - 1), resume=False)  # type: ignore[arg-type]
    assert {name: len(raw) for name, raw in coordinator.requests[0].given.items()} == {
        "rows": MAX_MESSAGE_BYTES - 1024,
        "small": 12,
    }


def test_a_job_that_is_resumed_keeps_its_own_however_large() -> None:
    coordinator = Coordinator()
    start_job(coordinator, given_job(1 << 16), resume=True)  # type: ignore[arg-type]
    assert not coordinator.requests[0].given


def test_a_request_that_is_sent_again_is_the_same_and_the_next_one_is_another() -> None:
    coordinator = Coordinator(Lost(), Lost())
    job = scar.Job("small", [scar.Table("w", 4)])
    start_job(coordinator, job, resume=False)  # type: ignore[arg-type]
    assert coordinator.requests == coordinator.requests[:1] * 3
    assert coordinator.requests[0].request_id
    start_job(coordinator, job, resume=False)  # type: ignore[arg-type]
    assert coordinator.requests[3].request_id != coordinator.requests[0].request_id
