"""How a run went: losses by clock and clocks by time, thinned so that a long run takes as little as a short
one. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from scar.errors import StoreError
from scar.v1.recovery_pb2 import HistoryRecord, HistorySample, MetricHistory
from scar_runtime.loss_curve import LossCurve
from scar_runtime.metric_curves import MetricCurves

FORMAT = 1
MAX_SAMPLES = 512


class ProgressHistory:
    """At most :data:`MAX_SAMPLES` samples, each at least ``spacing`` seconds after the one before; it doubles
    when there would be more.
    """

    def __init__(self) -> None:
        self.curve = LossCurve()
        self.metrics = MetricCurves()
        self.samples: list[HistorySample] = []  # ascending in time
        self.spacing = 1.0

    def add_losses(self, losses: Mapping[int, float]) -> bool:
        """Known ones again, too. False: nothing has changed."""
        return self.curve.add_losses(losses) >= 0

    def add_samples(self, samples: Iterable[HistorySample]) -> None:
        """The newest always stays, until a newer one comes."""
        by_time = {sample.time: sample for sample in (*self.samples, *samples)}
        self.samples = _spaced([by_time[time] for time in sorted(by_time)], self.spacing)
        while len(self.samples) > MAX_SAMPLES:
            self.spacing *= 2
            self.samples = _spaced(self.samples, self.spacing)

    def merge_record(self, record: HistoryRecord) -> None:
        """Take in what somebody has written. Raises :class:`StoreError` for a newer format."""
        if record.format != FORMAT:
            raise StoreError(
                f"the history is of format {record.format}",
                "Look at it with the version of SCAR that wrote it",
            )
        self.add_losses(dict(zip(record.clocks, record.losses, strict=False)))
        for one in record.metrics:
            self.metrics.add_values(one.name, dict(zip(one.clocks, one.values, strict=False)))
        self.add_samples(sample for sample in record.samples if math.isfinite(sample.time))

    def to_proto(self) -> HistoryRecord:
        points = self.curve.points_from()
        return HistoryRecord(
            format=FORMAT,
            clocks=[clock for clock, _ in points],
            losses=[loss for _, loss in points],
            samples=self.samples,
            metrics=[_metric_to_proto(name, curve) for name, curve in self.metrics.curves.items()],
        )

    def clock_at(self, time: float) -> int:
        """The open clock at this time, by the first look that is not before; -1: nobody looked any more."""
        return next((int(sample.clock) for sample in self.samples if sample.time >= time), -1)

    @property
    def clocks_per_second(self) -> float:
        """From the first look to the last one; 0: there were not two."""
        if len(self.samples) < 2:
            return 0.0
        first = self.samples[0]
        last = self.samples[-1]
        return max(0.0, (float(last.clock) - first.clock) / (last.time - first.time))


def _metric_to_proto(name: str, curve: LossCurve) -> MetricHistory:
    points = curve.points_from()
    return MetricHistory(
        name=name, clocks=[clock for clock, _ in points], values=[value for _, value in points]
    )


def _spaced(samples: list[HistorySample], spacing: float) -> list[HistorySample]:
    """Without those that follow another one too closely; the last one takes such a one's place."""
    kept: list[HistorySample] = []
    for sample in samples:
        if not kept or sample.time - kept[-1].time >= spacing:
            kept.append(sample)
    if samples and kept[-1] is not samples[-1]:
        kept = [*kept[:-1], samples[-1]] if len(kept) > 1 else [*kept, samples[-1]]
    return kept
