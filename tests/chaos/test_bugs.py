"""The faults that found a bug which is fixed now: they must find nothing any more.

Bugs that no run of some minutes can be sure to meet have their tests at lower layers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_chaos.core.schedule import draw_schedule
from scar_chaos.options import ChaosOptions
from scar_chaos.runner import run_schedule
from scar_chaos.targets.local import KINDS, LocalTarget

FAULTS = {
    "B2": ChaosOptions(
        seed=2, shards=3, faults=[f"kill:ps-0+outage:store~{lag}" for lag in (0.08, 0.12, 0.16, 0.2, 0.25)]
    ),
    "B4": ChaosOptions(seed=1, shards=3, faults=["corrupt:store+kill:ps-0", "truncate:store+kill:ps-1"]),
    "B5": ChaosOptions(seed=1, faults=["rival:job"]),
    "B8": ChaosOptions(seed=2, shards=3, workers=2, faults=["kill:ps-0+depose:recovery~0.3"] * 3),
    "B9": ChaosOptions(seed=22, faults=["freeze:worker-0"] * 2),
    "B10": ChaosOptions(seed=3, strategy="stateless", shards=2, faults=["garble:store+kill:ps-0~0.5"] * 3),
}
LONG = {
    "B7": ChaosOptions(seed=3, shards=3, faults=["kill:ps-0+outage:recovery/42~0.6"]),
    "B12": ChaosOptions(seed=3, shards=3, faults=["outage:store/75+kill:ps-0~1"]),
}


def play(folder: Path, options: ChaosOptions) -> None:
    schedule = draw_schedule(options.seed, options.fault_space(KINDS), options.parse_faults(KINDS))
    done = run_schedule(LocalTarget(folder, standby=schedule.standby), schedule, folder)
    assert done.passed, (
        f"{done.error or done.violations}\nto play it again:"
        f" {options.replay_command('scar chaos', options.seed)}"
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("label", FAULTS)
def test_faults_that_found_a_bug_find_nothing_any_more(tmp_path: Path, label: str) -> None:
    play(tmp_path, FAULTS[label])


@pytest.mark.timed
@pytest.mark.timeout(400)
@pytest.mark.parametrize("label", LONG)
def test_outages_of_a_minute(tmp_path: Path, label: str) -> None:
    play(tmp_path, LONG[label])
