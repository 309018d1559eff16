"""One run: a job, its faults, the verdict after each group of them, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from scar.errors import ScarError
from scar_chaos.checkers import Violation
from scar_chaos.faults import Fault, groups
from scar_chaos.measures import Cost, cost, lives, pace
from scar_chaos.play import play
from scar_chaos.scene import NotHealed, Scene, staged
from scar_chaos.schedule import Schedule
from scar_chaos.targets import Target
from scar_chaos.verdict import Verdict

CALM = 2.0  # seconds without faults, to know what is normal

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Faults that happened together. ``missed``: how many did not hit their moment. ``healed``: seconds until all was well."""

    faults: tuple[str, ...]
    missed: int
    healed: float
    cost: Cost
    verdict: Verdict


@dataclass(frozen=True)
class Run:
    """``workers``: how many lives each had. ``error``: why it could not go on: the cluster did not heal, or does not answer."""

    schedule: Schedule
    groups: tuple[Group, ...] = ()
    workers: dict[str, int] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    @property
    def violations(self) -> list[str]:
        return [text for group in self.groups for text in group.verdict.violations]

    @property
    def passed(self) -> bool:
        return not self.violations and not self.error


def run(target: Target, schedule: Schedule, folder: Path, tell: Tell = lambda _: None, name: str = "counting") -> Run:
    """Never raises for what the cluster does: that is in the result. ``folder``: for the history. ``name``: of the job."""
    started, made = time.monotonic(), Run(schedule)
    try:
        with staged(target, folder, name=name, **schedule.options) as scene:
            calm = _calm(scene)
            for faults in groups(schedule.faults):
                made = replace(made, groups=(*made.groups, _group(scene, faults, calm, tell)))
                if made.violations:
                    break
            made = replace(made, workers=lives(scene.history()))
    except (ScarError, NotHealed, Violation) as error:
        made = replace(made, error=str(error))
    return replace(made, seconds=time.monotonic() - started)


def _calm(scene: Scene) -> float:
    """Clocks a second of one worker when nothing is broken."""
    scene.wait_healed()
    begin = time.monotonic()
    time.sleep(CALM)
    return pace(scene.history(), begin, time.monotonic() - CALM / 10)


def _group(scene: Scene, faults: list[Fault], calm: float, tell: Tell) -> Group:
    scene.advance(faults[0].clock)
    epochs, failures = len(scene.epochs()), len(scene.ledger())
    struck = play(scene, faults)
    healed = time.monotonic() - struck[0].at
    scene.wait_saved(scene.status())
    verdict = scene.verdict()
    spent = cost(scene.job, scene.epochs()[epochs:], scene.ledger()[failures:], scene.history(), struck[0].at, calm)
    texts = tuple(str(one.fault) for one in struck)
    tell(f"{' + '.join(texts)}: well again after {healed:.1f} s" + "".join(f"; VIOLATION: {v}" for v in verdict.violations))
    return Group(texts, sum(not one.met for one in struck), healed, spent, verdict)
