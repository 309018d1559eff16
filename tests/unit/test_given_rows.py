"""Tables with keys that begin with rows: their bytes, where they lie, and what shards do with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import scar
from scar.errors import ConfigError, CorruptCheckpoint, InvalidRequest
from scar.given_rows import pack_rows, unpack_rows
from scar.keyed_rows import mix_keys
from scar.wire.codec import job_arrays, job_from_proto, job_to_proto
from scar_ps.core.block_data import BlockContents
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_runtime.checkpoint.initial_arrays import read_initial
from tests.framework.recovery import MemoryStore

WIDTH = 3
KEYS = np.random.default_rng(4).integers(-(2**63), 2**63 - 1, 60)
VALUES = np.arange(len(KEYS) * WIDTH, dtype=np.float32).reshape(-1, WIDTH) / 7
OTHERS = scar.constant(0.5)


def make_table(init: scar.Init | None = None, capacity: int = 400, **options: object) -> scar.Table:
    init = init or scar.given_rows(KEYS, VALUES, OTHERS)
    return scar.Table("k", keys="int64", dim=WIDTH, capacity=capacity, init=init, **options)  # type: ignore[arg-type]


def every(table: scar.Table) -> np.ndarray:
    return np.arange(table.blocks, dtype=np.uint32)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_store_has_the_rows_and_other_keys_begin_as_declared(parts: int) -> None:
    table = make_table()
    store = KeyedBlockStore(table, every(table))
    given = unpack_rows(table, job_arrays(scar.Job("keyed", [table]))["k"])
    for mine in np.array_split(every(table), parts):
        contents = BlockContents(table.initial(0, mine, given), table.initial_slots(mine, given))
        store.install_blocks(mine.astype(np.int64), contents)
    asked = np.append(KEYS, [5])
    images = mix_keys(asked)
    found = store.read_rows(np.sort(images), unknown_zero=False).reshape(-1, WIDTH)
    expected = np.concatenate((VALUES, np.full((1, WIDTH), 0.5, np.float32)))
    np.testing.assert_array_equal(found, expected[np.argsort(images)])
    assert store.live_rows == len(KEYS)


def test_the_description_names_the_rows_and_what_others_begin_with() -> None:
    job = scar.Job("keyed", [make_table()])
    registry, store = JobRegistry(MemoryStore(), "scar"), MemoryStore()
    known = registry.declare_job(job, GivenArrays(job_arrays(job)), resume=False)
    [table] = job_from_proto(job_to_proto(known)).tables
    assert (table.init.kind, table.init.others, table.init.low) == ("given", "constant", 0.5)
    raw = bytes(job_arrays(job)["k"])
    store.put(table.init.key, raw)
    given = read_initial(store, table, every(table))
    assert isinstance(given, scar.initial_values.GivenRows)
    assert pack_rows(given, table.dtype) == raw
    again = registry.declare_job(scar.Job("keyed", [make_table(OTHERS)]), GivenArrays(), resume=True)
    assert again.tables[0].init.key == table.init.key
    for wrong in ({}, {"k": raw[:-1]}, {"k": raw[8:16] + raw[:8] + raw[16:]}):
        with pytest.raises((InvalidRequest, ConfigError), match="table k: "):
            JobRegistry(MemoryStore(), "scar").declare_job(job, GivenArrays(wrong), resume=False)


def test_damaged_rows_are_no_rows() -> None:
    job = scar.Job("keyed", [make_table()])
    raw = bytes(job_arrays(job)["k"])
    registry = JobRegistry(MemoryStore(), "scar")
    [table] = registry.declare_job(job, GivenArrays({"k": raw}), resume=False).tables
    for damaged in (raw[:-1], raw[:8] * (len(raw) // 8), raw * 50):
        with pytest.raises(CorruptCheckpoint):
            read_initial(MemoryStore({table.init.key: damaged}), table, every(table))


@pytest.mark.parametrize(
    ("keys", "values", "words"),
    [
        ([1, 2], np.ones((1, WIDTH)), "are 2 keys with values of shape"),
        ([1, 1], np.ones((2, WIDTH)), "Give each key once"),
        ([1.5], np.ones((1, WIDTH)), "keys must be one axis of int64"),
        ([1], np.ones((1, WIDTH + 1)), "given rows have"),
        (range(500), np.ones((500, WIDTH)), "Use a larger capacity"),
    ],
)
def test_rows_that_do_not_fit_are_refused(keys: list[int], values: np.ndarray, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_table(scar.given_rows(keys, values))


def test_a_table_without_keys_has_no_such_rows() -> None:
    with pytest.raises(ConfigError, match="has no keys, and so no given rows"):
        scar.Table("w", (60, WIDTH), init=scar.given_rows(KEYS, VALUES))


def test_they_come_from_a_file_that_was_exported(tmp_path: Path) -> None:
    job = scar.Job("keyed", [make_table(OTHERS)])
    save_file({"k.keys": KEYS, "k.values": VALUES}, tmp_path / "k.safetensors")
    begun = scar.init_from(job, tmp_path / "k.safetensors")
    assert job_arrays(begun) == job_arrays(scar.Job("keyed", [make_table()]))
    assert begun.tables[0].init.others == "constant"
    save_file({"k.keys": KEYS, "k.values": VALUES[:, :2].copy()}, tmp_path / "k.safetensors")
    with pytest.raises(ConfigError, match=r"k has shape \(60, 2\) in"):
        scar.init_from(job, tmp_path / "k.safetensors")
    save_file({"k.values": VALUES}, tmp_path / "k.safetensors")
    with pytest.raises(ConfigError, match=r"has no k\.keys"):
        scar.init_from(job, tmp_path / "k.safetensors")
