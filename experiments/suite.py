"""All experiments by name."""

from __future__ import annotations

from experiments import budget, calibration, fig3, fig5, fig6, fig7, fig8, fig9, real, sources, sweep
from experiments.simulate import choice, paper
from experiments.through_failure import comparison
from scar.errors import ConfigError
from scar_compare.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    fig3,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    real,
    sources,
    sweep,
    budget,
    calibration,
    paper,
    choice,
    comparison,
)


def find_experiments(name: str) -> list[Experiment]:
    """Those to run. Raises :class:`ConfigError`."""
    found = [experiment for experiment in EXPERIMENTS if name in ("all", experiment.NAME)]
    if not found:
        known = ", ".join(experiment.NAME for experiment in EXPERIMENTS)
        raise ConfigError(f"experiment {name!r} is unknown", f"Use {known} or all")
    return found
