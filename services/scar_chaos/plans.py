"""From what was asked for to runs on a target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scar_chaos.counting import strategy_options
from scar_chaos.faults import Fault
from scar_chaos.gate import Plan, play_all
from scar_chaos.schedule import Kinds, Room, spelled


@dataclass(frozen=True)
class Wish:
    """The command line's options; None: drawn, or what the release has."""

    seed: int = 1
    runs: int = 1
    groups: int = 3
    workers: int | None = None
    shards: int | None = None
    report: Path | None = None
    output: str = "text"
    faults: Sequence[str] = ()
    strategy: str = ""

    def plan(self, again: str) -> Plan:
        """``again``: the command without seed and options of the draw."""
        given: dict[str, object] = {
            "groups": self.groups if self.groups != 3 else None,
            "workers": self.workers,
            "shards": self.shards,
            "strategy": self.strategy or None,
        }
        options = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
        options += "".join(f" --fault {fault}" for fault in self.faults)
        return Plan(self.seed, self.runs, f"{again}{options} --seed {{seed}}", self.report, self.output)

    def chosen(self, kinds: Kinds) -> list[Fault]:
        return [fault for text in self.faults for fault in spelled(text, kinds)]

    def room(self, kinds: Kinds, shards: tuple[int, ...] = (2, 3)) -> Room:
        workers = (1, 2) if self.workers is None else (self.workers,)
        fixed = strategy_options(self.strategy) if self.strategy else {}
        return Room(kinds, shards if self.shards is None else (self.shards,), workers, self.groups, fixed)


def on_this_machine(wish: Wish) -> bool:
    """True: every run passed."""
    from scar_chaos.local import KINDS, LocalTarget

    return play_all(wish.plan("scar chaos"), LocalTarget, wish.room(KINDS), wish.chosen(KINDS))


def inside_pod(environment: Mapping[str, str]) -> bool:
    """Whether this is the pod of a chaos job."""
    return "KUBERNETES_SERVICE_HOST" in environment and "SCAR_FULLNAME" in environment


def on_release(wish: Wish, nodes: str) -> bool:
    """In a pod of the release. ``nodes``: ConfigMap in which to ask somebody outside to stop and start nodes; empty: nobody."""
    from scar_chaos.inside import save
    from scar_chaos.kube import KubeTarget, Place
    from scar_chaos.nodes import Nodes
    from scar_kube.pods import COMPONENT, INSTANCE

    place = Place.here()
    target = KubeTarget(place)
    owner = f"{place.fullname}-worker-template"
    if nodes:
        target.use(Nodes(target.api, nodes, owner, place.node))
    labels = {"app.kubernetes.io/name": "scar", INSTANCE: place.release, COMPONENT: "chaos"}

    def keep(seed: int, report: dict[str, Any]) -> None:
        text = json.dumps(report, indent=2)
        save(target.api, f"{place.fullname}-chaos-report-{seed}", owner, labels, {"report.json": text})

    again = f"scar chaos --on kubernetes --namespace {place.namespace} --release {place.release}"
    return play_all(
        wish.plan(again), lambda _folder: target, wish.room(target.kinds, (target.shards,)), wish.chosen(target.kinds), keep
    )
