"""Figures 11 to 14 and table 4 of Li, Tanimura, Nakada (2017): CKPT, PS and IGNR on both networks, when only workers fail.

The paper does not say how many iterations lie between checkpoints. Here it is 4 unless said otherwise; panel ``interval`` shows
what hangs on it. Panel ``all-fail`` goes past the paper: servers and backbones fail as well, all twelve times as often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.figures import Figure, Panel, Series
from experiments.records import Record
from experiments.runner import Batch, Options, Report
from experiments.simulate.cases import Case, batch, chosen, numbers, outcomes, recorded, seconds, spread
from experiments.simulate.faults import YEAR, Faults
from experiments.simulate.platform import GB, TABLE_2, TABLE_3, TB, Platform
from experiments.simulate.run import Outcome
from experiments.simulate.scenario import CKPT, PUBLISHED, STRATEGIES, Checkpoint, Scenario, baseline_seconds
from experiments.statistics import mean

NAME = "simulate"
NETWORKS: Mapping[str, Platform] = {"table-2": TABLE_2, "table-3": TABLE_3}
INTERVAL, ALL_FAIL = "interval", "all-fail"
PANELS = (*NETWORKS, INTERVAL, ALL_FAIL)
OFTEN = Faults(YEAR / 4, YEAR / 4, YEAR / 4)
SIZES = (1 * GB, 2 * GB, 4 * GB, 8 * GB)
STORAGE = (0.05 * TB, 0.1 * TB, 0.25 * TB, 0.5 * TB, 1 * TB)
NAMED = (4 * GB, 0.5 * TB)  # the point of CKPT in table 4
INTERVALS = (1, 2, 3, 4, 5, 8, 10, 15, 20, 25)

Found = Mapping[str, Sequence[Outcome]]


def batches(options: Options) -> list[Batch]:
    return [batch(panel, _cases(panel), options) for panel in chosen(options, PANELS)]


def _cases(panel: str) -> list[Case]:
    size, bandwidth = NAMED
    named = Scenario(NETWORKS.get(panel, TABLE_2).with_storage(bandwidth))
    if panel == INTERVAL:
        return [Case(str(every), replace(named, checkpoint=Checkpoint(size, every)), CKPT) for every in INTERVALS]
    if panel == ALL_FAIL:
        return [Case(strategy.name, replace(named, faults=OFTEN), strategy) for strategy in STRATEGIES]
    sweep = [Case(_point(size, bandwidth), _scenario(panel, size, bandwidth), CKPT) for size in SIZES for bandwidth in STORAGE]
    return [*(Case(strategy.name, named, strategy) for strategy in PUBLISHED), *sweep]


def _scenario(panel: str, size: float, bandwidth: float) -> Scenario:
    return Scenario(NETWORKS[panel].with_storage(bandwidth), checkpoint=Checkpoint(size))


def _point(size: float, bandwidth: float) -> str:
    return f"{size / GB:g} GB at {bandwidth / TB:g} TB/s"


def report(options: Options, records: Sequence[Record]) -> Report:
    """A row for each strategy on each network, the sweeps, and the figure."""
    rows = [["network", "strategy", "runs", "seconds", "standard deviation", "faults"]]
    strategies, sweeps, drawn = [], {}, []
    for panel in recorded(options, PANELS, records):
        found = outcomes(records, panel)
        names = [strategy.name for strategy in STRATEGIES if strategy.name in found]
        strategies += [{"network": panel, "strategy": name, **numbers(found[name])} for name in names]
        rows += [_row(panel, name, found[name]) for name in names]
        sweeps[panel] = {name: numbers(runs) for name, runs in found.items() if name not in names}
        drawn += _drawn(panel, found)
    baselines = {name: baseline_seconds(Scenario(platform)) for name, platform in NETWORKS.items()}
    summary = {
        "baseline_seconds": baselines["table-2"],
        "baselines": baselines,
        "strategies": strategies,
        "sweeps": {panel: points for panel, points in sweeps.items() if points},
    }
    return Report(
        summary, rows, Figure(drawn, "10,000 workers, 200 iterations; but for the last panel, each fails every 3 years")
    )


def _row(panel: str, name: str, found: Sequence[Outcome]) -> list[str]:
    time, faults = seconds(found), mean([one.worker_faults for one in found])
    shown = f"{time.value:,.0f} [{time.low:,.0f}, {time.high:,.0f}]"
    return [panel, name, str(len(found)), shown, f"{spread(found):.0f}", str(faults)]


def _drawn(panel: str, found: Found) -> list[Panel]:
    if panel == ALL_FAIL:
        return [_everything(found)]
    return [_interval(found)] if panel == INTERVAL else [_time(panel, found), _deviation(panel, found)]


def _everything(found: Found) -> Panel:
    means = [seconds(runs) for runs in found.values()]
    places = list(range(len(means)))
    ends = [m.low for m in means], [m.high for m in means]
    marks = Series("mean", places, [m.value for m in means], *ends, style="marks")
    ticks = [(float(place), name) for place, name in enumerate(found)]
    return Panel("all fail every 3 months", "strategy", "seconds", [marks], ticks)


def _time(panel: str, found: Found) -> Panel:
    lines, x = [], [bandwidth / TB for bandwidth in STORAGE]
    for size in SIZES:
        means = [seconds(found[_point(size, bandwidth)]) for bandwidth in STORAGE]
        ends = [m.low for m in means], [m.high for m in means]
        lines.append(Series(f"ckpt, {size / GB:g} GB", x, [m.value for m in means], *ends))
    level = seconds(found["ps"]).value  # ignr is too near to be drawn beside it
    lines.append(Series("ps, ignr", [x[0], x[-1]], [level] * 2, style="dashed"))
    return Panel(f"{panel}: time", "storage bandwidth, TB/s", "seconds", lines, scale="log")


def _deviation(panel: str, found: Found) -> Panel:
    lines, x = [], [bandwidth / TB for bandwidth in STORAGE]
    for size in SIZES:
        lines.append(Series(f"ckpt, {size / GB:g} GB", x, [spread(found[_point(size, bandwidth)]) for bandwidth in STORAGE]))
    lines.append(Series("ps", [x[0], x[-1]], [spread(found["ps"])] * 2, style="dashed"))
    return Panel(f"{panel}: spread", "storage bandwidth, TB/s", "standard deviation, seconds", lines, scale="log")


def _interval(found: Found) -> Panel:
    means = [seconds(found[str(every)]) for every in INTERVALS]
    line = Series(
        "ckpt, 4 GB at 0.5 TB/s", INTERVALS, [m.value for m in means], [m.low for m in means], [m.high for m in means]
    )
    return Panel("the interval that the paper leaves open", "iterations between checkpoints", "seconds", [line])
