"""What a worker tells Prometheus, beside what every service does: what its time goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from scar._client.pace import TimeSplit


class WorkerTime(Collector):
    """Reads when it is asked. ``spent``: sums of the worker's clocks so far, and how many those are."""

    def __init__(self, spent: Callable[[], tuple[TimeSplit, int]]) -> None:
        self._spent = spent

    def collect(self) -> Iterator[Metric]:
        spent, clocks = self._spent()
        seconds = CounterMetricFamily(
            "scar_worker_seconds", "Seconds of the worker's clocks, by what they went to", labels=["part"]
        )
        for part, value in asdict(spent).items():
            seconds.add_metric([part], value)
        yield seconds
        yield CounterMetricFamily(
            "scar_worker_clocks", "Clocks whose seconds scar_worker_seconds holds", value=clocks
        )


def register(spent: Callable[[], tuple[TimeSplit, int]]) -> None:
    """Make them part of this process's metrics."""
    REGISTRY.register(WorkerTime(spent))
