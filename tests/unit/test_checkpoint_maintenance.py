"""What maintenance keeps from being deleted, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Lock
from types import SimpleNamespace
from typing import cast

import pytest

from scar.placement import Epoch
from scar_checkpoint import maintenance
from scar_checkpoint.compactor import Compactor
from scar_checkpoint.garbage_collector import GarbageCollector
from scar_checkpoint.maintenance import LOADING_SECONDS, StoreMaintenance
from scar_checkpoint.round_driver import RoundDriver
from scar_runtime.store import Store


@dataclass
class ProtectedSets:
    """A garbage collector that only remembers what it may not delete."""

    seen: list[set[int]] = field(default_factory=list)

    def collect_garbage(self, protected: set[int]) -> list[str]:
        self.seen.append(protected)
        return []


class OneTurn(Event):
    """Ends the loop after its first turn."""

    def __init__(self) -> None:
        super().__init__()
        self._waits: Iterator[bool] = iter((False, True))

    def wait(self, timeout: float | None = None) -> bool:
        return next(self._waits)


def epoch(manifest: int) -> Epoch:
    return cast(
        Epoch, SimpleNamespace(number=9, manifest=manifest, restoring=(), finished=0, shards=(), workers=())
    )


def test_a_manifest_is_kept_while_it_may_be_loaded_from_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(maintenance.time, "monotonic", lambda: now[0])
    chain = SimpleNamespace(running=SimpleNamespace(manifest=SimpleNamespace(number=7)), rewrite=object())
    driver = SimpleNamespace(lock=Lock(), core=SimpleNamespace(chain=chain, epoch=epoch(7)))
    protected = ProtectedSets()
    keeping = StoreMaintenance(
        cast(Store, None),
        cast(RoundDriver, driver),
        cast(Compactor, None),
        cast(GarbageCollector, protected),
    )
    for manifest in range(5):
        keeping.note_epoch(epoch(manifest))
        now[0] += LOADING_SECONDS / 2
    keeping.run(OneTurn())
    assert protected.seen == [{7, 4}]
    assert sorted(keeping.restoring) == [4]  # what no epoch needs any more takes no memory
