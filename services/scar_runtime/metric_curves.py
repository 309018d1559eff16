"""The metrics of a run that stand beside its loss, thinned as it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scar.losses import EARLY_STOPPING, EVALUATIONS
from scar_runtime.loss_curve import LossCurve

MAX_METRICS = 8  # by name, those that came first
INTERVALS = 60  # of each curve
INTERNAL = (EARLY_STOPPING, EVALUATIONS)


class MetricCurves:
    """``curves``: by name, at most :data:`MAX_METRICS`."""

    def __init__(self) -> None:
        self.curves: dict[str, LossCurve] = {}

    def add_metrics(self, metrics: Mapping[int, Mapping[str, float]]) -> dict[str, int]:
        """``metrics``: by clock and name, known ones again, too.

        Returns from which clock on which curves have changed.
        """
        by_name: dict[str, dict[int, float]] = {}
        for clock, found in metrics.items():
            for name, value in found.items():
                by_name.setdefault(name, {})[clock] = value
        since = {name: self.add_values(name, by_name[name]) for name in sorted(by_name)}
        return {name: clock for name, clock in since.items() if clock >= 0}

    def add_values(self, name: str, values: Mapping[int, float]) -> int:
        """By clock. Returns from which clock on the curve has changed; -1: it has not, or is not kept."""
        if name in INTERNAL or (name not in self.curves and len(self.curves) >= MAX_METRICS):
            return -1
        return self.curves.setdefault(name, LossCurve(INTERVALS)).add_losses(values)

    def add_curves(self, other: MetricCurves) -> dict[str, int]:
        """What somebody else has seen. Returns as :meth:`add_metrics`."""
        since = {
            name: self.add_values(name, dict(curve.points_from())) for name, curve in other.curves.items()
        }
        return {name: clock for name, clock in since.items() if clock >= 0}
