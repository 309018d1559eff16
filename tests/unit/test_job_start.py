"""What is sent to start a job: initial values that fit, none where the job has its own, one request however
often it is sent.
"""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import numpy as np
import pytest

import scar
from scar.errors import TooLarge
from scar.v1 import recovery_pb2
from scar.wire.codec import MAX_MESSAGE_BYTES
from scar_runtime.job_start import start_job


class Coordinator:
    """Takes what the wire takes. ``failures``: what it answers first."""

    def __init__(self, *failures: Exception) -> None:
        self.requests: list[recovery_pb2.StartJobRequest] = []
        self._failures = list(failures)

    def StartJob(self, request: recovery_pb2.StartJobRequest, **_: object) -> SimpleNamespace:
        assert request.ByteSize() <= MAX_MESSAGE_BYTES
        self.requests.append(request)
        if self._failures:
            raise self._failures.pop(0)
        return SimpleNamespace(changes="")


class Lost(grpc.RpcError):
    """The connection broke, with the answer or without."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def given_job(rows: int) -> scar.Job:
    """With rows of 1 KiB, and another table beside."""
    values = np.ones((rows, 256), np.float32)
    small = scar.Table("small", (3,), init=scar.given([1, 2, 3]))
    return scar.Job("large", [scar.Table("rows", values.shape, init=scar.given(values)), small])


def test_initial_values_that_do_not_go_into_one_message_are_refused_before_they_are_sent() -> None:
    coordinator = Coordinator()
    with pytest.raises(TooLarge, match=r"64\.0 MiB of initial values.* rows, .*at most 64 MiB") as refused:
        start_job(coordinator, given_job(1 << 16), resume=False)  # type: ignore[arg-type]
    assert "scar.normal" in refused.value.next_step
    assert not coordinator.requests


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
