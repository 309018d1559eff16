"""Figures 7 and 8 with every source of lost blocks: x(0), the running checkpoint, workers, a replica.

Cases strike at the same states and lose the same blocks. "x(0)" is what comes back before the first round;
the running checkpoint is figure 8's at its best (priority, r = 1/8). More cases say what slots are worth:
exact values with those that a worker pulled along; with slots out of the checkpoint, or none, which no
strategy does. Half of the servers of real
clusters die, too, with workers as sources (as in :mod:`experiments.real`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from experiments import real, recovery_trials, trial_plan
from experiments.panels import PANELS, chosen_panels, load_workload, panel_title
from experiments.recovery_trials import RecoveryCase, TrajectoryTrials
from scar.tables import Checkpoint
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate
from scar_compare.trial_plans import recorded_as

NAME = "sources"
LOST = (0.25, 0.5, 0.75)
NEVER = 1_000_000  # a period in which no round is due
FULL = "full"
INITIAL = "x(0)"
SAVED = "checkpoint"
WORKERS = "workers"
REPLICA = "workers and replica"
PULLED = "slots pulled"
OLD_SLOTS = "slots as saved"
NO_SLOTS = "slots reset"
BY_LOST = (SAVED, WORKERS, REPLICA)  # the others are shown at one lost fraction
KILLED = 5  # clusters of a panel whose servers die

Costs = Mapping[str, Sequence[float]]  # of the trials of a panel, by case


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    return [*trial_plan.trial_batches(options, recovery_cases(options)), *_killed_batches(options)]


def recovery_cases(options: ExperimentOptions) -> tuple[RecoveryCase, ...]:
    """Full recovery, and each source; what costs as much as a training is done for one lost fraction."""
    fractions = trial_plan.lost_fractions(options, LOST)
    running = Checkpoint("priority", 1 / 8, options.period)
    middle = _middle_of(fractions)
    by_lost = tuple(
        RecoveryCase(case_name(source, lost), running, recovery, lost)
        for lost in fractions
        for source, recovery in zip(BY_LOST, ("partial", "partial-workers", "partial-missing"), strict=True)
    )
    return (
        RecoveryCase(FULL, trial_plan.full_checkpoints(options.period), "full", 1.0),
        RecoveryCase(case_name(INITIAL, middle), trial_plan.full_checkpoints(NEVER), "partial", middle),
        *by_lost,
        RecoveryCase(case_name(PULLED, middle), running, "partial-slots", middle),
        RecoveryCase(case_name(OLD_SLOTS, middle), running, "partial", middle, slots="saved"),
        RecoveryCase(case_name(NO_SLOTS, middle), running, "partial", middle, slots="reset"),
    )


def _middle_of(fractions: Sequence[float]) -> float:
    return fractions[len(fractions) // 2]


def case_name(source: str, lost: float) -> str:
    """How records name a case."""
    return f"{source} lost={lost:g}"


def _killed_batches(options: ExperimentOptions) -> list[TrialBatch]:
    count = options.trials or (1 if options.quick else KILLED)
    case = RecoveryCase(WORKERS, Checkpoint("priority", 1 / 8, options.period), "partial-workers", 0.5)
    found = []
    for panel in chosen_panels(options.panels, real.PANELS, ("mlr", "mf")):
        for number in range(count):
            trials = trial_plan.trials_of(options, panel, 1, (case,), number)
            found.append(TrialBatch(_killed(panel), (number,), partial(_run_killed, trials), alone=True))
    return found


def _killed(panel: str) -> str:
    return f"{panel} killed"


@recorded_as("_killed")
def _run_killed(trials: TrajectoryTrials, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    """One cluster for each trial."""
    model = load_workload(trials.panel)
    job, criterion = recovery_trials.prepare_job(model, trials)
    for number in numbers:
        yield real.run_killed(trials, number, job, criterion, real.iteration_clocks(model))


# --- the report


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """A table for each lost fraction, one of slots, one of real clusters; what each source saves."""
    fractions = trial_plan.lost_fractions(options, LOST)
    costs = {
        panel: {name: [record["costs"][name] for record in found] for name in found[0]["costs"]}
        for panel in chosen_panels(options.panels, PANELS)
        if (found := records_of_panel(records, panel))
    }
    middle = _middle_of(fractions)
    measured = {
        f"lost-{100 * lost:.0f}": {panel: _measure_lost(one, lost, middle) for panel, one in costs.items()}
        for lost in fractions
    }
    slots = {panel: _measure_slots(one, middle) for panel, one in costs.items() if panel.startswith("cnn")}
    killed = {
        panel: _measure_killed(found)
        for panel in chosen_panels(options.panels, real.PANELS, ("mlr", "mf"))
        if (found := records_of_panel(records, _killed(panel)))
    }
    tables = {name: one for name, one in (measured | {"slots": slots, "killed": killed}).items() if one}
    figure = Figure(
        [_draw_panel(panel, one, fractions) for panel, one in costs.items()],
        f"Where lost blocks come from; C = {options.period}",
    )
    return ExperimentReport({"panels": _table_documents(tables)}, _report_rows(tables), figure)


Measures = dict[str, Estimate]


def _measure_lost(costs: Costs, lost: float, middle: float) -> Measures:
    names = {source: case_name(source, lost) for source in (*BY_LOST, *([INITIAL] if lost == middle else []))}
    found = {"trials": _count(costs[FULL]), "full": statistics.mean_estimate(costs[FULL])}
    for source, name in names.items():
        found[source] = statistics.mean_estimate(costs[name])
        found[f"% saved: {source}"] = _saved_percent(costs, name)
    return found


def _measure_slots(costs: Costs, lost: float) -> Measures:
    found = {"trials": _count(costs[FULL])}
    for source in (SAVED, OLD_SLOTS, NO_SLOTS, PULLED, REPLICA):
        name = case_name(source, lost)
        found[source] = statistics.mean_estimate(costs[name])
        found[f"% saved: {source}"] = _saved_percent(costs, name)
    return found


def _measure_killed(records: Sequence[TrialRecord]) -> Measures:
    """Of clusters half of whose servers died."""
    blocks = sum(sum(record["sources"].values()) for record in records)
    workers = sum(record["sources"].get("worker", 0) for record in records)
    return {
        "runs": _count(records),
        "% of blocks lost": statistics.mean_estimate([100 * float(record["lost"]) for record in records]),
        "% of them from workers": _exactly(100 * workers / max(1, blocks)),
        "lost pushes": _exactly(sum(record["lost_pushes"] for record in records)),
        "cost": statistics.mean_estimate([float(record["cost"]) for record in records]),
    }


def _saved_percent(costs: Costs, name: str) -> Estimate:
    saved = statistics.reduction_estimate(costs[name], costs[FULL])
    return Estimate(100 * saved.value, 100 * saved.low, 100 * saved.high)


def _count(trials: Sequence[object]) -> Estimate:
    return _exactly(len(trials))


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


def _table_documents(tables: Mapping[str, Mapping[str, Measures]]) -> dict[str, object]:
    """As :mod:`experiments.tables` reads them; nothing is in bold."""
    return {
        table: {
            "modes": {
                panel: {name: one.document for name, one in measures.items()}
                for panel, measures in found.items()
            },
            "winners": {name: [] for measures in found.values() for name in measures},
        }
        for table, found in tables.items()
    }


def _report_rows(tables: Mapping[str, Mapping[str, Measures]]) -> list[list[str]]:
    rows = [["table", "panel", "measure", "value"]]
    for table, found in tables.items():
        for panel, measures in found.items():
            rows += [[table, panel, name, str(one)] for name, one in measures.items()]
    return rows


def _draw_panel(panel: str, costs: Costs, fractions: Sequence[float]) -> Panel:
    middle = _middle_of(fractions)
    shown = [(source, fractions) for source in BY_LOST]
    shown.append((INITIAL, [middle]))
    series = []
    for place, (source, lost) in enumerate(shown):
        found = [statistics.mean_estimate(costs[case_name(source, one)]) for one in lost]
        x = [one + 0.01 * (place - 1) for one in lost]  # intervals side by side
        style = "line" if source in BY_LOST else "marks"
        numbers = ([one.value for one in found], [one.low for one in found], [one.high for one in found])
        series.append(Series(source, x, *numbers, style))
    level = statistics.mean_estimate(costs[FULL]).value
    ends = [fractions[0], fractions[-1]]
    series.append(Series("full recovery", ends, [level] * 2, style="dashed"))
    ticks = [(one, f"{one:g}") for one in fractions]
    return Panel(panel_title(panel), "lost fraction", "rework iterations", series, ticks, zero=True)
