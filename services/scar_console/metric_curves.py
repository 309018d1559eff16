"""The metrics of a run that stand beside its loss, thinned as it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scar.losses import EARLY_STOPPING, EVALUATIONS
from scar_runtime.loss_curve import LossCurve

MAX_METRICS = 8  # by name, those that came first
INTERVALS = 60  # of each curve
INTERNAL = (EARLY_STOPPING, EVALUATIONS)


class MetricCurves:
    """At most :data:`MAX_METRICS` curves, by name."""

    def __init__(self) -> None:
        self._curves: dict[str, LossCurve] = {}
        self._changed: dict[str, int] = {}  # since the last look: from which clock on

    def note_look(self, metrics: Mapping[int, Mapping[str, float]]) -> None:
        """``metrics``: by clock and name, known ones again, too."""
        by_name: dict[str, dict[int, float]] = {}
        for clock, found in metrics.items():
            for name, value in found.items():
                by_name.setdefault(name, {})[clock] = value
        self._changed = {}
        for name in sorted(by_name):
            if name in INTERNAL or (name not in self._curves and len(self._curves) >= MAX_METRICS):
                continue
            since = self._curves.setdefault(name, LossCurve(INTERVALS)).add_losses(by_name[name])
            if since >= 0:
                self._changed[name] = since

    def whole(self) -> dict[str, Any]:
        return {name: curve_document(curve, 0) for name, curve in self._curves.items()}

    def step(self) -> dict[str, Any]:
        """What the last look has changed."""
        return {name: curve_document(self._curves[name], since) for name, since in self._changed.items()}


def curve_document(curve: LossCurve, clock: int) -> dict[str, Any]:
    """From this clock on."""
    points = curve.points_from(clock)
    return {"from": clock, "clocks": [one[0] for one in points], "losses": [one[1] for one in points]}
