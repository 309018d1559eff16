"""A shard that gains blocks waits for the kernel's memory on another thread than the one that has to move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar_ps import epoch_sync
from scar_runtime.process.memory import touch_pages
from tests.component.processes import eventually
from tests.component.ps_scene import SECONDS, Running, declared, first, run_pair


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[Running]]:
    yield from run_pair(f"file://{tmp_path}")


def test_the_apply_thread_moves_while_an_epoch_waits_for_memory(
    shards: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    taking, go = threading.Event(), threading.Event()
    made: list[np.ndarray] = []

    def touch_slowly(arrays: list[np.ndarray]) -> None:
        taking.set()
        assert go.wait(SECONDS)
        touch_pages(arrays)
        made.extend(arrays)

    monkeypatch.setattr(epoch_sync, "touch_pages", touch_slowly)
    shard = shards[0]
    spec = declared()
    adopting = threading.Thread(target=lambda: shard.adopt(first(spec, shards), spec))
    adopting.start()
    assert taking.wait(SECONDS / 2)
    moved = shard.process.liveness.progress
    eventually(lambda: shard.process.liveness.progress > moved + 2)
    go.set()
    adopting.join(SECONDS)
    store = shard.service.state.ownership.tables["w"]
    for array, given in zip((store.values, store.saved), made, strict=True):
        assert np.shares_memory(array, given)
        assert len(array) == len(given), "no more than what is needed was touched"
