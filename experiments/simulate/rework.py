"""What a partial recovery costs in iterations: trials of figure 8's experiment as input of the simulator.

A simulator of events cannot know how a training reacts to parameters that are a few iterations old. So it
draws the answer from measured trials, of the fraction of the blocks that a server held.

    scar experiment fig8 --panel mlr-mnist --lost 0.01 --lost 0.1 --lost 0.5 --lost 1 --fraction 0.125
    --trials 100 --out OUT python -m experiments.simulate.rework OUT              # writes rework.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from scar.errors import ConfigError

FILE = Path(__file__).with_name("rework.json")
PRIORITY = "priority r=0.125 lost="  # the name that figure 8 gives to such a cost
DECIMALS = 3


@dataclass(frozen=True)
class Rework:
    """``costs``: for each of the lost ``fractions``, which ascend, the iterations that each trial cost."""

    fractions: tuple[float, ...]
    costs: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in zip((0.0, *self.fractions), self.fractions, strict=False))
        if (
            not self.fractions
            or len(self.fractions) != len(self.costs)
            or not ascending
            or not all(self.costs)
        ):
            raise ConfigError(
                "measured costs do not match their lost fractions",
                "Give trials for each, fractions ascending",
            )

    def cost_of(self, fraction: float, luck: float) -> float:
        """Iterations for a lost ``fraction``, at quantile ``luck`` of the trials.

        Linear between measured fractions, from 0.
        """
        found = [float(np.quantile(trials, luck)) for trials in self.costs]
        return float(np.interp(fraction, (0.0, *self.fractions), (0.0, *found)))


@lru_cache
def measured_rework(panel: str) -> Rework:
    """Raises :class:`ConfigError` for a panel that was not measured."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    if panel not in known:
        raise ConfigError(
            f"no cost of recovery was measured for {panel!r}", f"Use {', '.join(sorted(known))}"
        )
    costs = known[panel]["costs"]
    return Rework(
        tuple(float(fraction) for fraction in costs), tuple(tuple(trials) for trials in costs.values())
    )


def read_costs(folder: Path) -> dict[str, dict[str, Any]]:
    """By panel: the costs of partial recovery from priority rounds of 1/8, and the command for them."""
    command = json.loads((folder / "fig8.json").read_text(encoding="utf-8"))["command"]
    found: dict[str, dict[str, Any]] = {}
    for record in map(json.loads, (folder / "fig8.jsonl").read_text(encoding="utf-8").splitlines()):
        costs = found.setdefault(record["panel"], {"command": command, "costs": {}})["costs"]
        for name, cost in record["costs"].items():
            if name.startswith(PRIORITY):
                costs.setdefault(name.removeprefix(PRIORITY), []).append(round(cost, DECIMALS))
    return found


if __name__ == "__main__":
    known = json.loads(FILE.read_text(encoding="utf-8"))
    for folder in sys.argv[1:]:
        known |= read_costs(Path(folder))
    FILE.write_text(json.dumps(known, sort_keys=True) + "\n", encoding="utf-8")
