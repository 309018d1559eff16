"""Which strategy for which MTBF, model, bandwidth and number of servers, when workers, servers and backbones fail.

This goes past the paper, which lets only workers fail. Everything fails equally often; CKPT saves as often as Young's formula
says is best for it; the others save all parameters in eight iterations. SCAR's rework comes from measured trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.figures import Figure, Panel, Series
from experiments.records import Record
from experiments.runner import Batch, Options, Report
from experiments.simulate.cases import Case, batch, chosen, numbers, outcomes, recorded
from experiments.simulate.faults import YEAR, Faults
from experiments.simulate.platform import GB, TABLE_2, Cluster
from experiments.simulate.run import Outcome
from experiments.simulate.scenario import STRATEGIES, Checkpoint, Scenario, baseline_seconds, young
from experiments.statistics import Estimate, mean

NAME = "which-strategy"
MTBF, MODEL, BANDWIDTH, SERVERS = "mtbf", "model", "bandwidth", "servers"
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

Found = Mapping[str, Sequence[Outcome]]


def scenario(mtbf: float, model: float, bandwidth: float, servers: float) -> Scenario:
    """``mtbf`` in years, ``model`` in GB, ``bandwidth`` in those of table 2; the servers share the bandwidth of table 2's."""
    platform = TABLE_2.scaled(bandwidth)
    changed = replace(platform, servers=_shared(platform.servers, int(servers)))
    wide = changed.with_storage(TABLE_2.storage.backbone * bandwidth)
    faults = Faults(mtbf * YEAR, mtbf * YEAR, mtbf * YEAR)
    usual = Scenario(wide, replace(Scenario().training, model_bytes=model * GB), faults, Checkpoint(STATE * model * GB))
    return replace(usual, checkpoint=replace(usual.checkpoint, interval=young(usual)))


def _shared(cluster: Cluster, nodes: int) -> Cluster:
    return replace(cluster, nodes=nodes, bandwidth=cluster.bandwidth * cluster.nodes / nodes)


def batches(options: Options) -> list[Batch]:
    return [batch(axis, _cases(axis), options) for axis in chosen(options, tuple(AXES))]


def _cases(axis: str) -> list[Case]:
    points = {at: _at(axis, at) for at in AXES[axis][1]}
    return [Case(_name(at, strategy.name), point, strategy) for at, point in points.items() for strategy in STRATEGIES]


def _at(axis: str, at: float) -> Scenario:
    return scenario(**{**USUAL, axis: at})


def _name(at: float, strategy: str) -> str:
    return f"{strategy} at {at:g}"


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each point: what each strategy adds to the time without faults, and which adds least."""
    names = [strategy.name for strategy in STRATEGIES]
    rows = [["", "at", *names, "least time", "and no gradient missing"]]
    summary, drawn = {}, []
    for axis in recorded(options, tuple(AXES), records):
        found = outcomes(records, axis)
        points = {at: {name: _overhead(axis, at, found[_name(at, name)]) for name in names} for at in AXES[axis][1]}
        summary[axis] = [_point(axis, at, overheads, found) for at, overheads in points.items()]
        rows += [[axis, f"{at:g}", *(f"{one.value:.1%}" for one in points[at].values()), *_best(points[at])] for at in points]
        drawn.append(_panel(axis, points))
    return Report({"usual": USUAL, "points": summary}, rows, Figure(drawn, "What failures and saving add to the time"))


def _overhead(axis: str, at: float, found: Sequence[Outcome]) -> Estimate:
    baseline = baseline_seconds(_at(axis, at))
    return mean([one.seconds / baseline - 1 for one in found])


def _best(overheads: Mapping[str, Estimate]) -> tuple[str, str]:
    """Of all strategies, and of those that apply every gradient."""
    return _least(overheads), _least({name: overheads[name] for name in EXACT})


def _least(overheads: Mapping[str, Estimate]) -> str:
    least = min(one.value for one in overheads.values())
    return " or ".join(name for name, one in overheads.items() if one.value <= least + ALIKE)


def _point(axis: str, at: float, overheads: Mapping[str, Estimate], found: Found) -> dict[str, Any]:
    usual, (least, exact) = _at(axis, at), _best(overheads)
    return {
        "at": at,
        "baseline_seconds": baseline_seconds(usual),
        "ckpt_interval": usual.checkpoint.interval,
        "least_time": least,
        "least_time_with_all_gradients": exact,
        "strategies": {
            name: {"overhead": overhead.document, **numbers(found[_name(at, name)])} for name, overhead in overheads.items()
        },
    }


def _panel(axis: str, points: Mapping[float, Mapping[str, Estimate]]) -> Panel:
    lines = []
    for strategy in STRATEGIES:
        found = [max(at[strategy.name].value, LEAST_SHOWN) for at in points.values()]
        lines.append(Series(strategy.name, list(points), [100 * value for value in found]))
    return Panel(axis, AXES[axis][0], "time added, %", lines, scale="log", y_scale="log")
