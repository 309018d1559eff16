"""Which strategy for which MTBF, model, bandwidth and number of servers, when everything fails.

This goes past the paper, which lets only workers fail. Everything fails equally often; CKPT saves as often as
Young's formula says is best for it; the others save all parameters in eight iterations. SCAR's rework comes
from measured trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.simulate.faults import YEAR, Faults
from experiments.simulate.platform import GB, TABLE_2, NodeCluster
from experiments.simulate.scenario import (
    STRATEGIES,
    Scenario,
    WorkerCheckpoint,
    baseline_seconds,
    young_interval,
)
from experiments.simulate.simulated_run import RunOutcome
from experiments.simulate.simulation_cases import (
    OutcomesByCase,
    SimulatedCase,
    case_outcomes,
    outcome_numbers,
    recorded_panels,
    simulation_batch,
    wanted_panels,
)
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord
from scar_compare.statistics import Estimate, mean_estimate

NAME = "which-strategy"
MTBF = "mtbf"
MODEL = "model"
BANDWIDTH = "bandwidth"
SERVERS = "servers"
USUAL = {MTBF: 0.25, MODEL: 1.0, BANDWIDTH: 1.0, SERVERS: 100.0}  # years, GB, table 2's, nodes
AXES: Mapping[str, tuple[str, Sequence[float]]] = {
    MTBF: ("years between failures of a node", (1 / 24, 1 / 12, 0.25, 1.0, 3.0, 10.0)),
    MODEL: ("model, GB", (0.1, 0.3, 1.0, 3.0, 10.0)),
    BANDWIDTH: ("bandwidth, times that of table 2", (0.1, 0.3, 1.0, 3.0, 10.0)),
    SERVERS: ("servers", (10.0, 100.0, 1000.0, 4000.0)),
}
STATE = 4.0  # a worker's checkpoint, in sizes of the model: the paper's 4 GB for 1 GB
EXACT = ("ckpt", "ps", "scar")  # every gradient is applied
LEAST_SHOWN = 1e-4  # of the time without faults; the figure's axis is logarithmic
ALIKE = 0.001  # of the time without faults; strategies that differ by less are named together


def point_scenario(mtbf: float, model: float, bandwidth: float, servers: float) -> Scenario:
    """One point of the sweeps.

    ``mtbf`` in years, ``model`` in GB, ``bandwidth`` in those of table 2; the servers share the bandwidth
    of table 2's.
    """
    platform = TABLE_2.with_bandwidth(bandwidth)
    changed = replace(platform, servers=_share_bandwidth(platform.servers, int(servers)))
    wide = changed.with_storage(TABLE_2.storage.backbone * bandwidth)
    faults = Faults(mtbf * YEAR, mtbf * YEAR, mtbf * YEAR)
    usual = Scenario(
        wide,
        replace(Scenario().training, model_bytes=model * GB),
        faults,
        WorkerCheckpoint(STATE * model * GB),
    )
    return replace(usual, checkpoint=replace(usual.checkpoint, interval=young_interval(usual)))


def _share_bandwidth(cluster: NodeCluster, nodes: int) -> NodeCluster:
    return replace(cluster, nodes=nodes, bandwidth=cluster.bandwidth * cluster.nodes / nodes)


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    return [
        simulation_batch(axis, _axis_cases(axis), options) for axis in wanted_panels(options, tuple(AXES))
    ]


def _axis_cases(axis: str) -> list[SimulatedCase]:
    points = {at: _scenario_at(axis, at) for at in AXES[axis][1]}
    return [
        SimulatedCase(_case_name(at, strategy.name), point, strategy)
        for at, point in points.items()
        for strategy in STRATEGIES
    ]


def _scenario_at(axis: str, at: float) -> Scenario:
    return point_scenario(**{**USUAL, axis: at})


def _case_name(at: float, strategy: str) -> str:
    return f"{strategy} at {at:g}"


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each point: what each strategy adds to the time without faults, and which adds least."""
    names = [strategy.name for strategy in STRATEGIES]
    rows = [["", "at", *names, "least time", "and no gradient missing"]]
    summary = {}
    drawn = []
    for axis in recorded_panels(options, tuple(AXES), records):
        found = case_outcomes(records, axis)
        points = {
            at: {name: _mean_overhead(axis, at, found[_case_name(at, name)]) for name in names}
            for at in AXES[axis][1]
        }
        summary[axis] = [_point_document(axis, at, overheads, found) for at, overheads in points.items()]
        rows += [
            [
                axis,
                f"{at:g}",
                *(f"{one.value:.1%}" for one in points[at].values()),
                *_best_strategies(points[at]),
            ]
            for at in points
        ]
        drawn.append(_axis_panel(axis, points))
    return ExperimentReport(
        {"usual": USUAL, "points": summary}, rows, Figure(drawn, "What failures and saving add to the time")
    )


def _mean_overhead(axis: str, at: float, found: Sequence[RunOutcome]) -> Estimate:
    baseline = baseline_seconds(_scenario_at(axis, at))
    return mean_estimate([one.seconds / baseline - 1 for one in found])


def _best_strategies(overheads: Mapping[str, Estimate]) -> tuple[str, str]:
    """Of all strategies, and of those that apply every gradient."""
    return _least_overhead(overheads), _least_overhead({name: overheads[name] for name in EXACT})


def _least_overhead(overheads: Mapping[str, Estimate]) -> str:
    least = min(one.value for one in overheads.values())
    return " or ".join(name for name, one in overheads.items() if one.value <= least + ALIKE)


def _point_document(
    axis: str, at: float, overheads: Mapping[str, Estimate], found: OutcomesByCase
) -> dict[str, Any]:
    usual, (least, exact) = _scenario_at(axis, at), _best_strategies(overheads)
    return {
        "at": at,
        "baseline_seconds": baseline_seconds(usual),
        "ckpt_interval": usual.checkpoint.interval,
        "least_time": least,
        "least_time_with_all_gradients": exact,
        "strategies": {
            name: {"overhead": overhead.document, **outcome_numbers(found[_case_name(at, name)])}
            for name, overhead in overheads.items()
        },
    }


def _axis_panel(axis: str, points: Mapping[float, Mapping[str, Estimate]]) -> Panel:
    lines = []
    for strategy in STRATEGIES:
        found = [max(at[strategy.name].value, LEAST_SHOWN) for at in points.values()]
        lines.append(Series(strategy.name, list(points), [100 * value for value in found]))
    return Panel(axis, AXES[axis][0], "time added, %", lines, scale="log", y_scale="log")
