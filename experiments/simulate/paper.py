"""Figures 11 to 14 and table 4 of Li, Tanimura, Nakada (2017): CKPT, PS and IGNR when workers fail.

The paper does not say how many iterations lie between checkpoints. Here it is 4 unless said otherwise; panel
``interval`` shows what hangs on it. Panel ``all-fail`` goes past the paper: servers and backbones fail as
well, all twelve times as often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.simulate.faults import YEAR, Faults
from experiments.simulate.platform import GB, TABLE_2, TABLE_3, TB, Platform
from experiments.simulate.scenario import (
    CKPT,
    PUBLISHED,
    STRATEGIES,
    Scenario,
    WorkerCheckpoint,
    baseline_seconds,
)
from experiments.simulate.simulated_run import RunOutcome
from experiments.simulate.simulation_cases import (
    OutcomesByCase,
    SimulatedCase,
    case_outcomes,
    mean_seconds,
    outcome_numbers,
    recorded_panels,
    seconds_spread,
    simulation_batch,
    wanted_panels,
)
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord
from scar_compare.statistics import mean_estimate

NAME = "simulate"
NETWORKS: Mapping[str, Platform] = {"table-2": TABLE_2, "table-3": TABLE_3}
INTERVAL = "interval"
ALL_FAIL = "all-fail"
PANELS = (*NETWORKS, INTERVAL, ALL_FAIL)
OFTEN = Faults(YEAR / 4, YEAR / 4, YEAR / 4)
SIZES = (1 * GB, 2 * GB, 4 * GB, 8 * GB)
STORAGE = (0.05 * TB, 0.1 * TB, 0.25 * TB, 0.5 * TB, 1 * TB)
NAMED = (4 * GB, 0.5 * TB)  # the point of CKPT in table 4
INTERVALS = (1, 2, 3, 4, 5, 8, 10, 15, 20, 25)


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    return [simulation_batch(panel, _panel_cases(panel), options) for panel in wanted_panels(options, PANELS)]


def _panel_cases(panel: str) -> list[SimulatedCase]:
    size, bandwidth = NAMED
    named = Scenario(NETWORKS.get(panel, TABLE_2).with_storage(bandwidth))
    if panel == INTERVAL:
        return [
            SimulatedCase(str(every), replace(named, checkpoint=WorkerCheckpoint(size, every)), CKPT)
            for every in INTERVALS
        ]
    if panel == ALL_FAIL:
        return [
            SimulatedCase(strategy.name, replace(named, faults=OFTEN), strategy) for strategy in STRATEGIES
        ]
    sweep = [
        SimulatedCase(_point_name(size, bandwidth), _checkpoint_scenario(panel, size, bandwidth), CKPT)
        for size in SIZES
        for bandwidth in STORAGE
    ]
    return [*(SimulatedCase(strategy.name, named, strategy) for strategy in PUBLISHED), *sweep]


def _checkpoint_scenario(panel: str, size: float, bandwidth: float) -> Scenario:
    return Scenario(NETWORKS[panel].with_storage(bandwidth), checkpoint=WorkerCheckpoint(size))


def _point_name(size: float, bandwidth: float) -> str:
    return f"{size / GB:g} GB at {bandwidth / TB:g} TB/s"


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """A row for each strategy on each network, the sweeps, and the figure."""
    rows = [["network", "strategy", "runs", "seconds", "standard deviation", "faults"]]
    strategies = []
    sweeps = {}
    drawn = []
    for panel in recorded_panels(options, PANELS, records):
        found = case_outcomes(records, panel)
        names = [strategy.name for strategy in STRATEGIES if strategy.name in found]
        strategies += [{"network": panel, "strategy": name, **outcome_numbers(found[name])} for name in names]
        rows += [_strategy_row(panel, name, found[name]) for name in names]
        sweeps[panel] = {name: outcome_numbers(runs) for name, runs in found.items() if name not in names}
        drawn += _draw_panels(panel, found)
    baselines = {name: baseline_seconds(Scenario(platform)) for name, platform in NETWORKS.items()}
    summary = {
        "baseline_seconds": baselines["table-2"],
        "baselines": baselines,
        "strategies": strategies,
        "sweeps": {panel: points for panel, points in sweeps.items() if points},
    }
    return ExperimentReport(
        summary,
        rows,
        Figure(drawn, "10,000 workers, 200 iterations; but for the last panel, each fails every 3 years"),
    )


def _strategy_row(panel: str, name: str, found: Sequence[RunOutcome]) -> list[str]:
    time = mean_seconds(found)
    faults = mean_estimate([one.worker_faults for one in found])
    shown = f"{time.value:,.0f} [{time.low:,.0f}, {time.high:,.0f}]"
    return [panel, name, str(len(found)), shown, f"{seconds_spread(found):.0f}", str(faults)]


def _draw_panels(panel: str, found: OutcomesByCase) -> list[Panel]:
    if panel == ALL_FAIL:
        return [_all_fail_panel(found)]
    return (
        [_interval_panel(found)]
        if panel == INTERVAL
        else [_time_panel(panel, found), _spread_panel(panel, found)]
    )


def _all_fail_panel(found: OutcomesByCase) -> Panel:
    means = [mean_seconds(runs) for runs in found.values()]
    places = list(range(len(means)))
    ends = [m.low for m in means], [m.high for m in means]
    marks = Series("mean", places, [m.value for m in means], *ends, style="marks")
    ticks = [(float(place), name) for place, name in enumerate(found)]
    return Panel("all fail every 3 months", "strategy", "seconds", [marks], ticks)


def _time_panel(panel: str, found: OutcomesByCase) -> Panel:
    lines = []
    x = [bandwidth / TB for bandwidth in STORAGE]
    for size in SIZES:
        means = [mean_seconds(found[_point_name(size, bandwidth)]) for bandwidth in STORAGE]
        ends = [m.low for m in means], [m.high for m in means]
        lines.append(Series(f"ckpt, {size / GB:g} GB", x, [m.value for m in means], *ends))
    level = mean_seconds(found["ps"]).value  # ignr is too near to be drawn beside it
    lines.append(Series("ps, ignr", [x[0], x[-1]], [level] * 2, style="dashed"))
    return Panel(f"{panel}: time", "storage bandwidth, TB/s", "seconds", lines, scale="log")


def _spread_panel(panel: str, found: OutcomesByCase) -> Panel:
    lines = []
    x = [bandwidth / TB for bandwidth in STORAGE]
    for size in SIZES:
        lines.append(
            Series(
                f"ckpt, {size / GB:g} GB",
                x,
                [seconds_spread(found[_point_name(size, bandwidth)]) for bandwidth in STORAGE],
            )
        )
    lines.append(Series("ps", [x[0], x[-1]], [seconds_spread(found["ps"])] * 2, style="dashed"))
    return Panel(
        f"{panel}: spread", "storage bandwidth, TB/s", "standard deviation, seconds", lines, scale="log"
    )


def _interval_panel(found: OutcomesByCase) -> Panel:
    means = [mean_seconds(found[str(every)]) for every in INTERVALS]
    line = Series(
        "ckpt, 4 GB at 0.5 TB/s",
        INTERVALS,
        [m.value for m in means],
        [m.low for m in means],
        [m.high for m in means],
    )
    return Panel(
        "the interval that the paper leaves open", "iterations between checkpoints", "seconds", [line]
    )
