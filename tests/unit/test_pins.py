"""Who reads a checkpoint for long keeps it from being deleted, as long as he lives."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scar.errors import StoreUnavailable
from scar.v1.checkpoint_pb2 import Pin
from scar_runtime.store import Store
from scar_runtime.store import pins as module
from scar_runtime.store.layout import MANIFESTS, PINS, numbered
from scar_runtime.store.pins import PIN_SECONDS, Pins, pinned
from scar_runtime.store.records import get_record, put_record
from tests.framework.recovery import MemoryStore
from tests.unit.checkpoint_play import job_with
from tests.unit.test_checkpoint_compactor import collector_of, store, write

__all__ = ["store"]


def test_what_is_pinned_stays_until_nobody_renews_the_pin(store: Store) -> None:
    job, clock = job_with(), [0.0]
    for number in range(1, 7):
        write(store, job, number, [number])
    collector = collector_of(store, job, clock)
    for count in range(1, 9):  # renewed for two minutes
        put_record(store, f"{PINS}/a", Pin(manifests=[2], holder="export", count=count))
        collector.collect_garbage(set())
        clock[0] += 15.0
    assert store.list("manifests/") == [numbered(MANIFESTS, number) for number in (2, 4, 5, 6)]
    collector.collect_garbage(set())  # the pin does not change any more
    clock[0] += PIN_SECONDS + 1
    collector.collect_garbage(set())
    assert store.list(f"{PINS}/") == []
    clock[0] += 31.0
    collector.collect_garbage(set())
    assert store.list("manifests/") == [numbered(MANIFESTS, number) for number in (4, 5, 6)]


def test_a_pin_that_cannot_be_read_expires_too() -> None:
    store, clock = MemoryStore(), [0.0]
    store.put(f"{PINS}/a", b"damaged")
    pins = Pins(store, lambda: clock[0])
    assert pins.manifests() == set()
    clock[0] = PIN_SECONDS + 1
    pins.manifests()
    assert store.list() == []


def test_pins_are_bounded() -> None:
    store = MemoryStore()
    for number in range(2 * module.MOST):
        put_record(store, f"{PINS}/{number:03d}", Pin(manifests=[number], count=1))
    assert len(Pins(store, lambda: 0.0).manifests()) == module.MOST


def test_a_pin_is_renewed_while_its_holder_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.01)
    store, renewed = MemoryStore(), threading.Event()
    put = MemoryStore.put

    def seen(self: MemoryStore, key: str, data: bytes) -> None:
        put(self, key, data)
        if get_record(self, key, Pin).count > 3:
            renewed.set()

    monkeypatch.setattr(MemoryStore, "put", seen)
    with pinned(store, [7, 8], "me@here") as problem:
        assert problem == ""
        assert renewed.wait(10)
        (key,) = store.list(f"{PINS}/")
        assert list(get_record(store, key, Pin).manifests) == [7, 8]
    assert store.list() == []


def test_a_store_that_may_only_be_read_says_so_and_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(MemoryStore, "put", lambda *_: (_ for _ in ()).throw(StoreUnavailable("read only")))
    with pinned(store, [1], "me@here") as problem:
        assert problem == "read only"
