"""``scar compare``: strategies side by side on real processes or pods. Like the experiments it is part of the repository."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scar_cli import experiment
from scar_cli.output import Output, console, plain
from scar_cli.places import Place


def run(
    place: Place,
    strategies: Sequence[str],
    kills: Sequence[str],
    goal: float,
    seeds: int,
    seed: int,
    out: Path,
    recorded: bool,
    output: Output,
) -> None:
    """Raises :class:`scar.errors.ConfigError` for a strategy or a kill that cannot be, or outside of the repository."""
    options = experiment.options(trials=seeds, seed=seed, out=out, recorded=recorded)
    from experiments.compare import choices
    from experiments.compare.comparison import Comparison
    from experiments.runner import run as run_one

    chosen = tuple(strategies) or choices.USUAL
    comparison = Comparison(chosen, choices.schedule(kills or choices.SCHEDULE), goal, place.release)
    run_one(comparison, options, Console() if output is Output.text else console(stderr=True))
    if output is Output.json:
        summary = json.loads((out / f"{comparison.NAME}.json").read_text(encoding="utf-8"))
        sys.stdout.write(json.dumps(plain(summary), indent=2) + "\n")
