"""``scar compare``: strategies side by side on real processes or pods."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from rich.console import Console

from scar_cli.output import OutputFormat, json_value, make_console
from scar_cli.requests import CompareRequest

NEEDED_AT_THE_END = ("matplotlib", "scipy")  # a missing one is named before hours of training


def run_comparison(request: CompareRequest) -> None:
    """Train and report. Raises :class:`scar.errors.ConfigError` for an invalid strategy or kill."""
    for package in NEEDED_AT_THE_END:
        import_module(package)
    from scar_cli.experiment_pages import write_page
    from scar_compare.comparison import StrategyComparison
    from scar_compare.experiment import ExperimentOptions
    from scar_compare.kill_schedule import DEFAULT_KILLS, parse_kills
    from scar_compare.runner import run_experiment
    from scar_compare.strategy_options import DEFAULT_STRATEGIES

    comparison = StrategyComparison(
        tuple(request.strategies or DEFAULT_STRATEGIES),
        parse_kills(request.kill or DEFAULT_KILLS),
        request.goal,
        request.ref.release,
    )
    options = ExperimentOptions(
        trials=request.seeds, seed=request.seed, out=request.out, recorded=request.recorded
    )
    screen = Console() if request.output is OutputFormat.text else make_console(stderr=True)
    report = run_experiment(comparison, options, screen)
    summary = write_page(comparison.NAME, report, request.out, screen)
    if request.output is OutputFormat.json:
        sys.stdout.write(json.dumps(json_value(summary), indent=2) + "\n")
