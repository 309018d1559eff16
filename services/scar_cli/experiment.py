"""``scar experiment``: the paper's figures, made again. The experiments are not in the installed package."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scar.errors import ConfigError
from scar_cli.output import OutputFormat, json_value, make_console
from scar_cli.requests import ExperimentRequest

if TYPE_CHECKING:
    from scar_compare.experiment import ExperimentOptions

NEXT_STEP = "Run: pip install -e '.[experiments]'"


def experiment_options(**given: Any) -> ExperimentOptions:
    """Fields of :class:`scar_compare.experiment.ExperimentOptions`; a list becomes a tuple, None the default.

    Raises :class:`ConfigError` outside of a checkout, or without the packages that the experiments need.
    """
    _find_checkout()
    try:
        import_module("experiments.suite")  # all of them, so that a missing package is named now
        from scar_compare.experiment import ExperimentOptions
    except ImportError as error:
        raise ConfigError(f"the experiments cannot be run: {error}", NEXT_STEP) from error
    known = {name: value for name, value in given.items() if value is not None}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in known.items()
    }
    return ExperimentOptions(**fields)


def _find_checkout() -> None:
    """Make the folder `experiments` importable where the command runs in a checkout."""
    if find_spec("experiments") is None and (Path.cwd() / "experiments" / "suite.py").is_file():
        sys.path.insert(0, str(Path.cwd()))
    if find_spec("experiments") is None:
        raise ConfigError(
            "`scar experiment` needs a checkout: the experiments are part of the repository, not of the"
            " installed package",
            "Run it in a checkout of the repository, after: pip install -e '.[experiments]'",
        )


def run_requested(request: ExperimentRequest) -> None:
    """Run what the command line asks for. Raises :class:`ConfigError` as the two functions below."""
    fields = asdict(request)
    name = fields.pop("name")
    output = fields.pop("output")
    panels = fields.pop("panel")
    fractions = fields.pop("fraction")
    run_experiments(name, experiment_options(panels=panels, fractions=fractions, **fields), output)


def run_experiments(name: str, options: ExperimentOptions, output: OutputFormat = OutputFormat.text) -> None:
    """Run one experiment, or ``all`` that show some of the wanted panels.

    As JSON, its summary is printed; for ``all``, a list of them.
    Raises :class:`ConfigError` for an unknown name.
    """
    from experiments import suite
    from scar_cli.experiment_pages import write_page
    from scar_compare.runner import run_experiment

    experiments = [one for one in suite.find_experiments(name) if name != "all" or one.plan_batches(options)]
    screen = Console() if output is OutputFormat.text else make_console(stderr=True)
    summaries = []
    for experiment in experiments:
        report = run_experiment(experiment, options, screen)
        summaries.append(write_page(experiment.NAME, report, options.out, screen))
    if output is OutputFormat.json:
        sys.stdout.write(
            json.dumps(json_value(summaries if name == "all" else summaries[0]), indent=2) + "\n"
        )
