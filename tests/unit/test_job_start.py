"""What is sent to start a job: initial values that fit, and none where the job has its own."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import scar
from scar.errors import TooLarge
from scar.v1 import recovery_pb2
from scar.wire.codec import MAX_MESSAGE_BYTES
from scar_runtime.job_start import start_job


class Coordinator:
    """Takes what the wire takes."""

    def __init__(self) -> None:
        self.requests: list[recovery_pb2.StartJobRequest] = []

    def StartJob(self, request: recovery_pb2.StartJobRequest, **_: object) -> SimpleNamespace:
        assert request.ByteSize() <= MAX_MESSAGE_BYTES
        self.requests.append(request)
        return SimpleNamespace(changes="")


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
