"""``scar experiment``: the paper's figures, made again. They are part of the repository, not of the package."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from scar.errors import ConfigError

if TYPE_CHECKING:
    from experiments.runner import Options


def options(
    trials: int,
    seed: int,
    out: Path,
    jobs: int,
    quick: bool,
    panels: list[str],
    lost: list[float],
    period: int,
) -> Options:
    """Raises :class:`ConfigError` outside of the repository, or without what the experiments need."""
    if find_spec("experiments") is None and (Path.cwd() / "experiments" / "runner.py").is_file():
        sys.path.insert(0, str(Path.cwd()))
    try:
        from experiments.runner import Options
    except ImportError as error:
        raise ConfigError(
            f"the experiments cannot be run: {error}",
            "Run in a copy of the repository, after: pip install -e '.[experiments]'",
        ) from error
    return Options(trials, seed, out, jobs, quick, tuple(panels), tuple(lost), period)


def run(name: str, wanted: Options) -> None:
    """One experiment, or ``all``. Raises :class:`ConfigError` for a name that is unknown."""
    from experiments import suite
    from experiments.runner import run as run_one

    console = Console()
    for experiment in suite.named(name):
        run_one(experiment, wanted, console)
