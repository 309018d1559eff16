"""The simulator next to SimGrid: small trainings that both play, and what SimGrid answered.

python -m experiments.simulate.reference          # asks SimGrid again and writes simgrid.json
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.simulate.faults import Faults, NodeFault
from experiments.simulate.platform import GB, MB, NodeCluster, Platform, TrainingLoad
from experiments.simulate.rework import Rework
from experiments.simulate.scenario import CKPT, IGNR, PS, Scenario, SimulatedStrategy, WorkerCheckpoint
from experiments.simulate.simulated_run import SimulatedRun
from scar.errors import ConfigError

PYTHON = "/usr/bin/python3"  # Debian's, which python3-simgrid is for
PLAY = Path(__file__).with_name("simgrid_play.py")
ANSWERS = Path(__file__).with_name("simgrid.json")
DEADLINE_SECONDS = 60.0
NO_REWORK = Rework((1.0,), ((0.0,),))  # no server fails here

STORAGE = NodeCluster(2, 200 * MB, 1e-4, 300 * MB, 5e-4)
SMALL = Platform(
    clusters=2,
    workers=NodeCluster(4, 125 * MB, 5e-5, 200 * MB, 5e-4),
    servers=NodeCluster(3, 200 * MB, 5e-4, 400 * MB, 5e-4),
    storage=STORAGE,
)


@dataclass(frozen=True)
class ReferenceCase:
    """Two iterations. In the second one ``failed`` workers fail, each so many seconds after its begin.

    ``cut``: a cluster of workers, or -1 for the servers, whose backbone is down from one second to another.
    """

    name: str
    platform: Platform = SMALL
    training: TrainingLoad = field(default_factory=lambda: TrainingLoad(2, 20.0, 0.3 * GB, 5.0))
    strategy: SimulatedStrategy = PS
    failed: tuple[tuple[int, float], ...] = ()
    cut: tuple[int, float, float] | None = None
    checkpoint: WorkerCheckpoint = field(default_factory=lambda: WorkerCheckpoint(0.5 * GB, 1))


def _changed_platform(which: str, **changes: float) -> Platform:
    return replace(SMALL, **{which: replace(getattr(SMALL, which), **changes)})


CASES = (
    ReferenceCase(
        "workers' backbones are narrow", _changed_platform("servers", bandwidth=2 * GB, backbone=9 * GB)
    ),
    ReferenceCase("workers' links are narrow", _changed_platform("workers", bandwidth=20 * MB)),
    ReferenceCase("the servers' backbone is narrow", _changed_platform("servers", backbone=50 * MB)),
    ReferenceCase("the servers' links are narrow", _changed_platform("servers", bandwidth=30 * MB)),
    ReferenceCase("latency is all", training=TrainingLoad(2, 1.0, 300.0, 5.0)),
    ReferenceCase(
        "windows are full", _changed_platform("workers", bandwidth=9 * GB, latency=0.2, backbone=90 * GB)
    ),
    ReferenceCase(
        "more nodes",
        replace(_changed_platform("workers", nodes=8), clusters=4, servers=replace(SMALL.servers, nodes=10)),
    ),
    ReferenceCase("ps, one worker", failed=((1, 12.0),)),
    ReferenceCase("ps, late at once with the others", failed=((5, 0.5),)),
    ReferenceCase("ps, two of one cluster", failed=((0, 3.0), (2, 17.0))),
    ReferenceCase("ps, two of two clusters", failed=((3, 9.0), (7, 9.5))),
    ReferenceCase(
        "ps, a backup that pulls while others push",
        training=TrainingLoad(2, 20.0, 0.3 * GB, 9.0),
        failed=((6, 19.0),),
    ),
    ReferenceCase("ignr, one worker", strategy=IGNR, failed=((4, 8.0),)),
    ReferenceCase(
        "ignr, servers limit",
        _changed_platform("servers", backbone=50 * MB),
        strategy=IGNR,
        failed=((4, 8.0), (5, 1.0)),
    ),
    ReferenceCase("ckpt, nothing fails", strategy=CKPT),
    ReferenceCase("ckpt, one worker", strategy=CKPT, failed=((2, 15.0),)),
    ReferenceCase("a worker cluster is cut off", cut=(1, 21.0, 40.0)),
    ReferenceCase("the servers are cut off", cut=(-1, 22.0, 31.0)),
    ReferenceCase("a cut and a fault", failed=((1, 12.0),), cut=(0, 21.5, 24.0)),
)


class _FaultScript:
    """Faults at given times."""

    def __init__(self, strikes: Sequence[NodeFault]) -> None:
        self._strikes = list(strikes)

    def take_due(self, until: float) -> list[NodeFault]:
        found = [one for one in self._strikes if one.second < until]
        self._strikes = [one for one in self._strikes if one.second >= until]
        return found


def simulated_seconds(case: ReferenceCase) -> float:
    """By the simulator."""
    cut = case.cut or (0, 0.0, 1.0)
    faults = Faults(repair_seconds=cut[2] - cut[1])
    scenario = Scenario(case.platform, case.training, faults, case.checkpoint, rework=NO_REWORK)
    # in the second iteration, wherever a checkpoint moves its begin
    second = scenario.times.iteration * (1 + 1e-6)
    workers = [
        NodeFault(second, worker, at / case.training.compute_seconds, 0.0) for worker, at in case.failed
    ]
    links = [NodeFault(cut[1], cut[0] + 1, 0.0, 0.0)] if case.cut else []
    return (
        SimulatedRun(scenario, case.strategy, (_FaultScript(workers), _FaultScript([]), _FaultScript(links)))
        .run_to_end()
        .seconds
    )


def simgrid_play(case: ReferenceCase) -> dict[str, Any]:
    """The same for SimGrid, as what each worker does between two barriers."""
    size = case.training.model_bytes
    compute = case.training.compute_seconds
    start = case.training.start_seconds
    iteration = [_make_phase(["sleep", compute], ["push", size]), _make_phase(["pull", size])]
    write = _make_phase(["write", case.checkpoint.bytes])
    read = ["read", case.checkpoint.bytes]
    second = [dict(one) for one in iteration]
    if case.strategy is CKPT:
        first_fault = min((at for _, at in case.failed), default=None)
        again = [] if first_fault is None else [_make_phase(["sleep", first_fault + start], read)]
        second = [write, *again, *second]
    elif case.strategy is IGNR:
        second[0]["others"] = {str(worker): [] for worker, _ in case.failed}
    else:
        redo = [["pull", size], ["sleep", compute], ["push", size]]
        second[0]["others"] = {str(worker): [["sleep", at + start], *redo] for worker, at in case.failed}
    return {
        "platform": asdict(case.platform),
        "phases": iteration + second,
        "cuts": [case.cut] if case.cut else [],
    }


def _make_phase(*steps: list[Any]) -> dict[str, Any]:
    return {"usual": list(steps), "others": {}}


def ask_simgrid(cases: Sequence[ReferenceCase]) -> list[float]:
    """Seconds by SimGrid. Raises :class:`ConfigError` where it is not installed."""
    plays = json.dumps([simgrid_play(case) for case in cases])
    try:
        done = subprocess.run(
            [PYTHON, str(PLAY)], input=plays, capture_output=True, text=True, timeout=DEADLINE_SECONDS
        )
    except OSError as error:
        raise ConfigError(
            f"{PYTHON} cannot be run: {error}", "SimGrid is asked by Debian's Python"
        ) from error
    if done.returncode:
        raise ConfigError(
            f"SimGrid gave no answer: {done.stderr.strip()}", "Install it: apt-get install python3-simgrid"
        )
    return [float(answer) for answer in json.loads(done.stdout)]


def recorded_answers() -> dict[str, float]:
    """What SimGrid answered, by the names of the cases."""
    answers: dict[str, float] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


if __name__ == "__main__":
    found = {case.name: answer for case, answer in zip(CASES, ask_simgrid(CASES), strict=True)}
    ANSWERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
