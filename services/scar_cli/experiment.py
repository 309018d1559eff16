"""``scar experiment``: the paper's figures, made again. They are part of the repository, not of the package."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scar.errors import ConfigError
from scar_cli.output import Output, console, plain

if TYPE_CHECKING:
    from experiments.runner import Options


def options(**given: Any) -> Options:
    """Fields of :class:`experiments.runner.Options`; a list is taken as a tuple, None as the default.

    Raises :class:`ConfigError` outside of the repository, or without what the experiments need.
    """
    if find_spec("experiments") is None and (Path.cwd() / "experiments" / "runner.py").is_file():
        sys.path.insert(0, str(Path.cwd()))
    try:
        from experiments.runner import Options
    except ImportError as error:
        raise ConfigError(
            f"the experiments cannot be run: {error}",
            "Run in a copy of the repository, after: pip install -e '.[experiments]'",
        ) from error
    known = {name: value for name, value in given.items() if value is not None}
    chosen: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    return Options(**chosen)


def run(name: str, wanted: Options, output: Output = Output.text) -> None:
    """One experiment, or ``all`` that show some of the wanted panels; as JSON, its summary, or a list of them.

    Raises :class:`ConfigError` for an unknown name.
    """
    from experiments import suite
    from experiments.runner import run as run_one

    experiments = [one for one in suite.named(name) if name != "all" or one.batches(wanted)]
    screen = Console() if output is Output.text else console(stderr=True)
    for experiment in experiments:
        run_one(experiment, wanted, screen)
    if output is Output.json:
        files = [wanted.out / f"{experiment.NAME}.json" for experiment in experiments]
        summaries = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        sys.stdout.write(json.dumps(plain(summaries if name == "all" else summaries[0]), indent=2) + "\n")
