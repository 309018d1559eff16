"""Tables with keys as they are declared, on the wire and at a worker."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scar
from scar._client.core.push_shares import split_by_owner
from scar._client.core.pushes import ShardPush, cut_blocks, merge_pushes
from scar._client.core.shard_map import ShardMap
from scar._client.pull_requests import PullRequest
from scar._client.push_requests import pack_tables
from scar.errors import BlockOutOfRange, ConfigError, InvalidRequest
from scar.keyed_rows import (
    KeyedValues,
    block_of_images,
    cut_capacity,
    draw_rows,
    mix_keys,
    pack_stored,
    row_seed,
    split_stored,
    unmix_keys,
)
from scar.snapshots import Snapshot
from scar.v1.ps_pb2 import TableBlocks, TensorHeader
from scar.wire.row_names import read_rows, set_rows
from scar.wire.table_messages import table_from_proto, table_to_proto
from scar_ps.core.bsp_buffer import sum_parts
from scar_recovery.core.strategy_choice import RunFacts, choose_strategy
from scar_runtime.checkpoint.block_records import block_format, pack_records, unpack_records
from tests.unit.keyed_support import WIDTH, keyed_job, push_keys, store_of
from tests.unit.ps_support import first_epoch, ids, started

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, unique=True))
def test_every_key_has_an_image_of_its_own(keys: list[int]) -> None:
    images = mix_keys(np.array(keys, np.int64))
    assert len(np.unique(images)) == len(keys)
    assert unmix_keys(images).tolist() == keys


@pytest.mark.parametrize("capacity", [1, 7, 100, 1000, 10_000, 10**6, 10**8])
def test_a_capacity_is_cut_into_blocks_of_one_size(capacity: int) -> None:
    blocks, rows = cut_capacity(capacity)
    assert blocks.bit_count() == 1
    assert capacity <= blocks * rows < capacity + blocks + 3
    table = scar.Table("w", keys="int64", dim=4, capacity=capacity)
    assert (table.blocks, table.shape) == (blocks, (blocks * rows, 4))


def test_keys_in_a_row_fall_to_all_blocks_evenly_and_their_images_ascend_with_them() -> None:
    images = np.sort(mix_keys(np.arange(64_000)))
    blocks = block_of_images(images, 64)
    assert (np.diff(blocks.astype(int)) >= 0).all()
    counts = np.bincount(blocks, minlength=64)
    assert 800 < counts.min() <= counts.max() < 1200


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"keys": "int64", "dim": 4}, "neither a shape nor all of keys=, dim= and capacity="),
        ({"keys": "int32", "dim": 4, "capacity": 9}, "neither a shape"),
        ({"dim": 4, "capacity": 9}, "neither a shape"),
        ({"shape": (4, 2), "keys": "str"}, "neither a shape"),
        ({}, "neither a shape"),
        ({"keys": "int64", "dim": 4, "capacity": 9, "rule": scar.adam()}, "counts the steps of a block"),
        ({"keys": "int64", "dim": 4, "capacity": 9, "init": scar.given(np.ones((10, 4)))}, "init given"),
        ({"keys": "int64", "dim": 4, "capacity": 9, "weights": [1, 2]}, "weights"),
        (
            {"keys": "int64", "dim": 4, "capacity": 9, "norm": "histogram", "dtype": "int32"},
            "norm histogram",
        ),
        ({"keys": "int64", "shape": (12, 4), "blocks": scar.rows(4)}, "a power of two, not 3"),
        ({"keys": "int64", "shape": (7, 4), "blocks": scar.rows(4)}, "blocks of one size"),
        ({"keys": "int64", "shape": (8, 4)}, "at least two rows"),
        ({"keys": "int64", "dim": 0, "capacity": 9}, "no elements"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        scar.Table("w", **declared)


@pytest.mark.parametrize(
    "policy", [{"evict": "lfu"}, {"admit_after": 0}, {"admit_after": 256}, {"max_age": -1}]
)
def test_a_policy_that_cannot_be_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        scar.keys(**policy)


def test_workers_cannot_give_rows_of_keys_back() -> None:
    with pytest.raises(ConfigError, match="table w has keys"):
        keyed_job(sources="workers")
    choice = choose_strategy(keyed_job(recovery="auto"), RunFacts(store=1e8))
    assert "from workers" not in choice.reason


def test_a_declaration_comes_back_from_the_jobs_record() -> None:
    table = scar.Table(
        "w",
        keys=scar.keys(admit_after=3, evict="never", max_age=50),
        dim=5,
        capacity=1000,
        rule=scar.adagrad(0.1, rowwise=True),
        init=scar.uniform(-1, 1),
    )
    again = table_from_proto(table_to_proto(table))
    assert (again.keys, again.shape, again.blocks) == (table.keys, table.shape, table.blocks)
    assert again.slots == ("squares", "@key", "@used", "@sightings")
    assert table_from_proto(table_to_proto(scar.Table("w", (4, 2)))).keys is None


def test_first_values_are_of_seed_table_and_key_alone() -> None:
    keys = mix_keys(np.array([3, 1, 4]))
    seed = row_seed(7, "w")
    for init in (scar.uniform(2, 3), scar.normal(1, 2), scar.constant(6)):
        together = draw_rows(init, seed, keys, 4, np.dtype("float32")).reshape(3, 4)
        alone = draw_rows(init, seed, keys[1:2], 4, np.dtype("float32"))
        np.testing.assert_array_equal(together[1], alone)
    drawn = [
        draw_rows(scar.uniform(), other, keys, 4, np.dtype("float64")) for other in (seed, row_seed(8, "w"))
    ]
    assert (drawn[0] != drawn[1]).all()
    assert (draw_rows(scar.uniform(), row_seed(7, "v"), keys, 4, np.dtype("float64")) != drawn[0]).all()


def test_first_values_are_drawn_from_the_declared_distribution() -> None:
    keys = mix_keys(np.arange(20_000))
    even = draw_rows(scar.uniform(-2, 4), 1, keys, 4, np.dtype("float64"))
    assert (even.min() >= -2, even.max() < 4) == (True, True)
    np.testing.assert_allclose([even.mean(), even.var()], [1, 3], atol=0.03)
    bell = draw_rows(scar.normal(3, 0.5), 1, keys, 4, np.dtype("float32"))
    np.testing.assert_allclose([bell.mean(), bell.std()], [3, 0.5], atol=0.01)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_stored_rows_give_keys_and_values_back(dtype: str) -> None:
    keys = np.array([5, -9, 2**63 - 1, 0])
    values = np.arange(8).reshape(4, 2).astype(dtype)
    found = split_stored(pack_stored(values, mix_keys(keys), np.array([1, 7, 0, 2], np.uint64)))
    assert found.keys.tolist() == [-9, 0, 5]
    np.testing.assert_array_equal(found.values, values[[1, 3, 0]])


def test_records_hold_what_a_block_keeps_of_its_keys() -> None:
    table = scar.Table("w", keys=scar.keys(admit_after=2), dim=3, capacity=128, rule=scar.momentum(0.1))
    sizes = table.layout.sizes[:2]
    arrays = [np.arange(table.slot_width(slot) * 2 * 64, dtype=np.float32) for slot in table.slots]
    raw = pack_records(
        block_format(table), sizes, [np.ones(2 * 64 * 3, np.float32), *arrays], np.zeros(2, np.int64)
    )
    assert len(raw) == block_format(table).record_sizes(sizes).sum() == 2 * (64 * (2 * 3 * 4 + 3 * 8) + 8)
    found, _ = unpack_records(block_format(table), sizes, raw, np.arange(2))
    for array, expected in zip(found[1:], arrays, strict=True):
        np.testing.assert_array_equal(array.reshape(-1), expected)


# --- on the wire
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [TensorHeader(), TableBlocks()], ids=["push", "pull"])
def test_rows_are_named_as_the_table_names_them(message: TensorHeader | TableBlocks) -> None:
    keyed = keyed_job().table("w")
    plain = scar.Table("w", (6, 2), blocks=scar.rows(2))
    assert read_rows(message, keyed) is None
    set_rows(message, np.array([3, 2**64 - 1], np.uint64))
    names = read_rows(message, keyed)
    assert names is not None
    assert names.tolist() == [3, 2**64 - 1]
    with pytest.raises(InvalidRequest, match="named by numbers"):
        read_rows(message, plain)
    message.rows = np.array([1], "<u4").tobytes()
    with pytest.raises(InvalidRequest, match="by nothing else"):
        read_rows(message, keyed)
    message.ClearField("rows")
    for wrong in (np.array([4, 4], "<u8").tobytes(), b"123"):
        message.keys = wrong
        with pytest.raises(InvalidRequest):
            read_rows(message, keyed)


def test_a_shard_takes_no_keys_for_numbers_and_no_whole_blocks() -> None:
    shard, _ = started(keyed_job())
    with pytest.raises(BlockOutOfRange, match="named by keys"):
        store_of(shard).locate_rows(ids(1))
    plain, _ = started(scar.Job("test", [scar.Table("w", (8, 2), blocks=scar.rows(2))]))
    with pytest.raises(BlockOutOfRange, match="not by keys"):
        plain.ownership.tables["w"].locate_rows(np.array([1], np.uint64))


# --- at a worker
# ------------------------------------------------------------------------------------------------------------


def test_what_is_pushed_by_keys_is_split_merged_and_cut_without_loss() -> None:
    drawn = np.random.default_rng(3)
    spec = keyed_job(scar.sgd(1.0), capacity=2000)
    table = spec.table("w")
    shards = ShardMap(first_epoch(spec, {"w": np.arange(0, table.blocks, 2, dtype=np.uint32)}))
    universe = drawn.integers(-(2**63), 2**63 - 1, 30)
    expected: dict[int, np.ndarray] = {}
    pushes: dict[str, list[ShardPush]] = {}
    for number in range(3):
        keys = drawn.choice(universe, 40)
        values = drawn.integers(-9, 9, (40, WIDTH)).astype(np.float32)
        packed = pack_tables(spec, "w", values, rows=keys)
        for owner, parts in split_by_owner(spec, shards, packed).items():
            pushes.setdefault(owner, []).append(ShardPush(number + 1, 0, parts))
        for key, value in zip(keys.tolist(), values, strict=True):
            expected[key] = expected.get(key, 0) + value
    found: dict[int, np.ndarray] = {}
    for sent in pushes.values():
        merged = merge_pushes(spec, sent).tables["w"]
        for block in range(len(merged.ids)):
            one = cut_blocks(spec, "w", merged, np.array([block]))
            assert one.rows is not None
            assert set(table.find_blocks(one.rows)) == {merged.ids[block]}
            found |= dict(zip(unmix_keys(one.rows).tolist(), one.values.reshape(-1, WIDTH), strict=True))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


def test_a_pull_gives_rows_in_the_users_order_of_keys() -> None:
    request = PullRequest(keyed_job(), "w", rows=[9, -4, 9])
    [wanted] = request.wants
    assert wanted.rows is not None
    keys = unmix_keys(wanted.rows)
    assert sorted(keys) == [-4, 9]
    wanted.fill_blocks(np.arange(2), np.repeat(keys.astype(np.float32), WIDTH))
    assert request.values()[:, 0].tolist() == [9, -4, 9]


@pytest.mark.parametrize(
    ("asked", "words"),
    [({"ids": [0]}, "no user's"), ({"rows": [0.5]}, "one axis of int64"), ({"rows": [[1]]}, "one axis")],
)
def test_what_a_user_of_keys_may_get_wrong_is_said(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        PullRequest(keyed_job(), "w", **asked)
    with pytest.raises(InvalidRequest, match="a push names them"):
        pack_tables(keyed_job(), "w", np.ones((3, WIDTH)))


def test_rows_of_keys_are_pulled_short_and_their_keys_are_not() -> None:
    assert PullRequest(keyed_job(), "w", rows=[1], short=["w"]).wants[0].short
    with pytest.raises(InvalidRequest, match="comes with its keys"):
        PullRequest(keyed_job(), "w", short=["w"])


def test_uint64_beyond_int64_is_no_key() -> None:
    with pytest.raises(InvalidRequest, match="one axis of int64"):
        PullRequest(keyed_job(), "w", rows=np.array([2**63], np.uint64))
    PullRequest(keyed_job(), "w", rows=np.array([2**63 - 1], np.uint64))


def test_a_part_without_rows_is_part_of_a_sum() -> None:
    """The part of a push whose blocks have all moved away."""
    shard, _ = started(keyed_job(), workers=2)
    push_keys(shard, 0, 1, 0, np.array([1, 2]), np.ones((2, WIDTH), np.float32))
    [kept] = shard.bsp_buffer.take_clock(0, {"worker-0": 0})
    part = kept.parts["w"]
    nothing = part.select_blocks(np.empty(0, np.int64))
    nothing.rows = None
    total = sum_parts([nothing, part])
    assert total.rows is not None
    assert (total.rows.dtype, len(total.rows)) == (np.dtype(np.uint64), 2)


def test_a_snapshot_is_saved_with_keys_and_values_by_name(tmp_path: Any) -> None:
    rows = KeyedValues(np.array([-1, 5]), np.ones((2, 3)))
    Snapshot("job", 4, 1, {"w": rows, "dense": np.zeros(2)}).save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as saved:
        assert saved["w.keys"].tolist() == [-1, 5]
        assert saved["w.values"].shape == (2, 3)
        assert saved["dense"].tolist() == [0, 0]
