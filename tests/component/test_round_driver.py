"""The checkpoint coordinator's thread, with a real store."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import scar
from scar.errors import CorruptCheckpoint, NotServing, ObjectNotFound
from scar_checkpoint import round_driver
from scar_checkpoint.core.coordinator import RESIGNED
from scar_checkpoint.round_driver import RoundDriver
from scar_checkpoint.shard_calls import ShardCalls
from scar_runtime.checkpoint import lost_checkpoint
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.store import Store, open_store


def test_a_round_asked_for_while_a_term_ends_is_refused_at_once(tmp_path: Path) -> None:
    """The end of a term may take seconds: shards that are gone are told of it."""
    job = scar.Job("first", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    driver = RoundDriver(job, "0" * 12, store, HeaderCache(store, job), 1.0)
    driver.run(lambda: True, lambda: None)
    with pytest.raises(NotServing, match=RESIGNED):
        driver.trigger_round("full", 1.0, timeout=60.0)


def test_who_asked_for_a_round_that_was_never_begun_hears_of_the_end(tmp_path: Path) -> None:
    job = scar.Job("second", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    driver = RoundDriver(job, "0" * 12, store, HeaderCache(store, job), 1.0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(driver.trigger_round, "full", 1.0, 5.0)
        while not driver._tickets:
            time.sleep(0.001)
        driver.run(lambda: True, lambda: None)
        assert asked.result().error == RESIGNED


def test_what_is_read_wrongly_ends_the_term_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody expects, in a thread of the pool: the coordinator must not go on half-dead."""

    def fail(*_: object) -> None:
        raise RuntimeError("nobody expects this")

    monkeypatch.setattr(round_driver, "load_readable", fail)
    job = scar.Job("third", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    driver = RoundDriver(job, "0" * 12, store, HeaderCache(store, job), 1.0)
    deadline = time.monotonic() + 10
    with pytest.raises(RuntimeError, match="nobody expects this"):
        driver.run(lambda: time.monotonic() > deadline, lambda: None)


def test_a_manifest_that_appears_while_the_newest_is_read_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery seals the checkpoint while a new leader reads it: the next round continues the seal."""
    job = scar.Job("fourth", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    create_manifest(store, Manifest(1, 0, job.name))
    driver = RoundDriver(job, "0" * 12, store, HeaderCache(store, job), 1.0)
    list_keys = type(store).list
    sealed: list[bool] = []

    def list_and_seal(self: Store, prefix: str = "") -> list[str]:
        found = list_keys(self, prefix)
        if not sealed:
            sealed.append(True)
            create_manifest(store, Manifest(2, 1, job.name))
        return found

    monkeypatch.setattr(type(store), "list", list_and_seal)
    running, number = driver._read_newest()
    assert number <= running.manifest.number or running.passed_over, "manifest 3 would continue manifest 1"


def test_where_nothing_can_be_read_for_long_it_goes_on_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may be ill for a while; a checkpoint that is lost must not keep all later ones away."""
    job = scar.Job("fifth", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    create_manifest(store, Manifest(1, 0, job.name, objects=(ObjectRef("objects/gone", bytes=9, owner="a"),)))
    driver = RoundDriver(job, "0" * 12, store, HeaderCache(store, job), 1.0)
    monkeypatch.setattr(round_driver, "DAMAGE_SECONDS", 0.0)
    clock = [100.0]
    monkeypatch.setattr(lost_checkpoint.time, "monotonic", lambda: clock[0])
    for _ in range(2):
        with pytest.raises((CorruptCheckpoint, ObjectNotFound)):
            driver._read_newest()
        clock[0] += lost_checkpoint.LOST_SECONDS / 2
    running, number = driver._read_newest()
    assert (running.manifest.number, running.objects, running.passed_over, number) == (0, [], [1], 1)


def test_calls_of_a_round_that_is_over_are_cancelled_and_those_of_others_go_on() -> None:
    calls, ended, other = ShardCalls(), Call(), Call()
    calls._open[1].add(ended)
    calls._open[2].add(other)
    calls.cancel_round(1)
    assert (ended.cancelled, other.cancelled) == (True, False)


class Call:
    """Stands in for a call that is under way."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
