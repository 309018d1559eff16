"""Runs an experiment: its missing trials in processes, then its table, figure and summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scar.errors import ConfigError
from scar_compare.experiment import Experiment, ExperimentOptions, ExperimentReport
from scar_compare.figures import save_figure
from scar_compare.records import TrialJournal, TrialRecord
from scar_compare.report_table import print_table
from scar_compare.trial_plans import panel_plans
from scar_compare.trial_pool import run_missing_trials


def run_experiment(experiment: Experiment, options: ExperimentOptions, console: Console) -> ExperimentReport:
    """Run and report. Writes ``NAME.jsonl`` (records), ``.json``, ``.png`` and ``.svg`` to ``options.out``.

    Raises :class:`ConfigError` when there is nothing to run or to report.
    """
    batches = experiment.plan_batches(options)
    if not batches:
        raise ConfigError(f"{experiment.NAME} shows none of these panels: {', '.join(options.panels)}")
    journal = TrialJournal(options.out / f"{experiment.NAME}.jsonl", panel_plans(options, batches))
    if not options.recorded:
        jobs = 1 if any(batch.alone for batch in batches) else options.jobs
        run_missing_trials(experiment.NAME, batches, journal, jobs, console)
    wanted = {(batch.panel, trial) for batch in batches for trial in batch.trials}
    records = [record for record in journal.read() if (record["panel"], record["trial"]) in wanted]
    if not records:
        raise ConfigError(f"{journal.path} holds no trial of this", "Run it without --recorded")
    report = experiment.make_report(options, records)
    figures = save_figure(report.figure, options.out / experiment.NAME)
    missing = _missing_counts(wanted, records)
    summary = _write_summary(experiment, options, report, missing)
    print_table(experiment.NAME, report.rows, console)
    written = ", ".join(str(file) for file in (journal.path, summary, *figures))
    console.print(f"Written: {written}", highlight=False)
    return report


def _missing_counts(wanted: set[tuple[str, int]], records: Sequence[TrialRecord]) -> dict[str, int]:
    """Trials of each panel that are not recorded; panels that are complete are left out."""
    missing = Counter(panel for panel, _ in wanted)
    missing.subtract(record["panel"] for record in records)
    return {panel: count for panel, count in sorted(missing.items()) if count}


def _write_summary(
    experiment: Experiment, options: ExperimentOptions, report: ExperimentReport, missing: dict[str, int]
) -> Path:
    summary: dict[str, Any] = {
        "experiment": experiment.NAME,
        "command": command_line(experiment.NAME, options),
        "missing": missing,
        **report.summary,
        "table": report.rows,
    }
    path = options.out / f"{experiment.NAME}.json"
    path.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def command_line(name: str, options: ExperimentOptions) -> str:
    """The command that makes these numbers again."""
    words = ["scar", "experiment", name, "--seed", str(options.seed)]
    if options.trials:
        words += ["--trials", str(options.trials)]
    words += [f"--{flag}" for flag in ("quick", "pending", "unweighted") if getattr(options, flag)]
    for field in ("period", "mean", "gain", "horizon", "block_rows"):
        value = getattr(options, field)
        if value != getattr(ExperimentOptions, field):
            words += [f"--{field.replace('_', '-')}", f"{value:g}"]
    repeated: dict[str, Sequence[str | float]] = {
        "--panel": options.panels,
        "--lost": options.lost,
        "--fraction": options.fractions,
    }
    for option, values in repeated.items():
        for value in values:
            words += [option, str(value)]
    return " ".join(words)
