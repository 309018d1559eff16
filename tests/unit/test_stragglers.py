"""Who holds the others up."""

from __future__ import annotations

import pytest

from scar.v1.worker_pb2 import TimeSplit, WorkerStatus
from scar_admin.stragglers import find_stragglers


def worker(compute: float, wait: float = 0.0, state: str = "training") -> WorkerStatus:
    return WorkerStatus(state=state, per_clock=TimeSplit(pull=0.001, compute=compute, push=0.001, wait=wait))


@pytest.mark.parametrize(
    ("workers", "slow"),
    [
        ({}, set()),
        ({"a": worker(9.0)}, set()),
        ({"a": worker(0.01, wait=0.04), "b": worker(0.05)}, {"b"}),
        ({"a": worker(0.01), "b": worker(0.012), "c": worker(0.05), "d": worker(0.06)}, {"c", "d"}),
        ({"a": worker(0.0001), "b": worker(0.0009)}, set()),  # of a millisecond less nobody has anything
        ({"a": worker(0.01, wait=5.0), "b": worker(0.011)}, set()),  # who waits holds nobody up
        ({"a": worker(0.01), "b": worker(9.0, state="leaving")}, set()),
        ({"a": worker(0.01), "b": WorkerStatus(state="training")}, set()),  # has not told yet
    ],
)
def test_who_needs_far_longer_than_the_others_is_one(
    workers: dict[str, WorkerStatus], slow: set[str]
) -> None:
    assert find_stragglers(workers) == slow
