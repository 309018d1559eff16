"""Rows of tables with several rows a block: the same as blocks of one row each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar._client.core.pull_buffer import PullBuffer, unpack_result
from scar._client.core.push_shares import split_by_owner
from scar._client.core.pushes import ShardPush, TablePush, cut_blocks, merge_pushes
from scar._client.core.shard_map import ShardMap
from scar._client.pull_requests import PullRequest
from scar._client.push_requests import pack_tables
from scar.errors import BlockOutOfRange, InvalidRequest, NonFinite, ShapeMismatch
from scar.tables import Job, Rule, Table
from scar.v1.ps_pb2 import TensorHeader
from scar.wire import codec
from scar.wire.codec import Chunk, decode_chunk
from scar_ps.core import ownership
from scar_ps.core.block_data import BlockContents
from scar_ps.core.events import BlocksLoaded
from scar_ps.core.pushes import PulledBlocks
from scar_ps.core.requests import MustWait, WantedRows
from scar_ps.wire import migration, pull_encoder
from scar_ps.wire.push_decoder import PushStaging
from scar_runtime.checkpoint.block_records import block_format, pack_records, unpack_records
from tests.unit.ps_support import ME, DrivenShard, every_rule, first_epoch, ids, job, sender, started

ROWS, WIDTH = 11, 3
CUTS = [tables.rows(2), tables.rows(4), tables.layer(), tables.ragged([0, 1, 5, 6, 11])]
ROWWISE = tables.adagrad(0.5, rowwise=True)
BY_ROW = [rule for rule in every_rule() if not rule.counts_steps] + [ROWWISE]


def spec_of(rule: Rule, cut: tables.Blocks | None = None, **options: str) -> Job:
    return job(Table("w", (ROWS, WIDTH), rule=rule, blocks=cut), **options)


def owned_blocks(spec: Job, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {"w": np.unique(spec.table("w").find_blocks(rows.astype(np.uint32)))}


def push_rows(
    shard: DrivenShard, rank: int, seq: int, clock: int, rows: np.ndarray, values: np.ndarray
) -> None:
    """As it comes over the wire."""
    header = TensorHeader(
        table="w",
        dtype="float32",
        rows=codec.ids_to_bytes(rows.astype(np.uint32)),
        bytes=values.nbytes,
        epoch=shard.number,
        worker=sender(rank).name,
        incarnation=sender(rank).incarnation,
        seq=seq,
        push_id=seq,
        clock=clock,
    )
    with PushStaging(1 << 20, lambda: 0).open_push(shard.view) as place:
        for chunk in codec.chunks(header, values.reshape(-1)):
            place.read_chunk(chunk)
        shard.push(place.finish())


def pull_rows(shard: DrivenShard, clock: int, rows: np.ndarray) -> np.ndarray:
    parts = shard.pull(sender(0), shard.number, clock, [("w", WantedRows(rows.astype(np.uint32)))])
    found = PulledBlocks(parts, shard.number, clock, None, [None])
    chunks = [decode_chunk(raw) for raw in map(b"".join, pull_encoder.encode_pulled(found))]
    assert chunks[0].header is not None
    assert chunks[0].header.bytes == len(rows) * WIDTH * 4
    raw = b"".join(bytes(chunk.data) for chunk in chunks)
    return np.frombuffer(raw, np.float32).reshape(-1, WIDTH)


@settings(max_examples=150, deadline=None)
@given(
    rule=st.sampled_from(BY_ROW),
    cut=st.sampled_from(CUTS),
    consistency=st.sampled_from(["asp", "bsp"]),
    seed=st.integers(0, 10_000),
)
def test_rows_take_the_steps_that_blocks_of_one_row_take(
    rule: Rule, cut: tables.Blocks, consistency: str, seed: int
) -> None:
    drawn = np.random.default_rng(seed)
    one, several = spec_of(rule, consistency=consistency), spec_of(rule, cut, consistency=consistency)
    blocks = np.unique(drawn.integers(0, several.table("w").blocks, 3)).astype(np.uint32)
    offsets = several.table("w").row_offsets
    mine = np.concatenate([np.arange(offsets[block], offsets[block + 1]) for block in blocks])
    shards = [
        started(one, {"w": mine.astype(np.uint32)}, workers=2)[0],
        started(several, {"w": blocks}, workers=2)[0],
    ]
    for clock in range(3):
        for rank in range(2):
            rows = np.unique(drawn.choice(mine, 4))
            values = drawn.normal(size=(len(rows), WIDTH)).astype(np.float32)
            for shard in shards:
                push_rows(shard, rank, clock + 1, clock, rows, values)
        for shard in shards:
            for rank in range(2):
                shard.mark(sender(rank), 1, clock + 1)
        rows = np.unique(drawn.choice(mine, 3))
        expected, found = (pull_rows(shard, clock + 1, rows) for shard in shards)
        np.testing.assert_array_equal(found, expected)
    expected, found = (shard.ownership.tables["w"] for shard in shards)
    np.testing.assert_array_equal(found.values, expected.values)
    for name, slot in expected.slots.items():
        np.testing.assert_array_equal(found.slots[name], slot)


def test_rowwise_adagrad_is_what_torchrec_and_fbgemm_do() -> None:
    """One sum a row, of the mean of its squares."""
    drawn = np.random.default_rng(0)
    shard, _ = started(spec_of(ROWWISE, tables.rows(4), consistency="asp"))
    values, sums = np.zeros((ROWS, WIDTH)), np.zeros(ROWS)
    for step in range(1, 101):
        rows = np.unique(drawn.integers(0, ROWS, 5))
        gradient = drawn.normal(size=(len(rows), WIDTH)).astype(np.float32)
        push_rows(shard, 0, step, 0, rows, gradient)
        sums[rows] += (gradient.astype(np.float64) ** 2).mean(axis=1)
        values[rows] -= 0.5 * gradient / (np.sqrt(sums[rows])[:, None] + 1e-8)
    np.testing.assert_allclose(shard.ownership.tables["w"].values, values.reshape(-1), rtol=2e-5, atol=2e-6)
    assert shard.ownership.tables["w"].slots["squares"].shape == (ROWS,)


# --- what does not fit
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "fields", "error", "words"),
    [
        ([4, 11], {}, BlockOutOfRange, "row 11|block 11 is out of range"),
        ([8], {}, BlockOutOfRange, "block 2 of table w is not on this shard"),
        ([5, 4], {}, InvalidRequest, "ascending"),
        ([4], {"block_ids": b"\0\0\0\0"}, InvalidRequest, "rows or of blocks"),
        ([4], {"dense": True}, InvalidRequest, "rows or of blocks"),
        ([4, 5], {"bytes": 12}, ShapeMismatch, "24 bytes"),
    ],
)
def test_a_push_of_rows_that_do_not_fit_is_refused(
    rows: list[int], fields: dict[str, object], error: type[Exception], words: str
) -> None:
    shard, _ = started(spec_of(tables.add(), tables.rows(4)), {"w": ids(0, 1)})
    header = TensorHeader(
        table="w", dtype="float32", rows=np.array(rows, "<u4").tobytes(), bytes=12 * len(rows), epoch=1
    )
    header.MergeFrom(TensorHeader(worker="worker-0", incarnation="x", seq=1, push_id=1, **fields))
    with PushStaging(1 << 20, lambda: 0).open_push(shard.view) as place, pytest.raises(error, match=words):
        place.read_chunk(Chunk(header, b""))


def test_a_push_names_the_row_that_is_not_finite() -> None:
    shard, _ = started(spec_of(tables.add(), tables.rows(4)), {"w": ids(1)})
    with pytest.raises(NonFinite, match="row 6"):
        push_rows(shard, 0, 1, 0, np.array([4, 6]), np.array([[1, 2, 3], [4, np.nan, 6]], np.float32))


def test_a_rule_that_counts_steps_of_blocks_takes_no_rows_of_them() -> None:
    spec = spec_of(tables.adam(0.1), tables.rows(4))
    with pytest.raises(InvalidRequest, match="counts the steps of a block"):
        pack_tables(spec, "w", np.ones((2, WIDTH)), rows=[1, 2])
    shard, _ = started(spec)
    with pytest.raises(InvalidRequest, match="counts steps of whole blocks"):
        push_rows(shard, 0, 1, 0, np.array([1, 2]), np.ones((2, WIDTH), np.float32))


def test_a_pull_of_rows_that_are_not_there_is_refused() -> None:
    shard, _ = started(spec_of(tables.add(), tables.rows(4)), {"w": ids(0, 2)})
    with pytest.raises(BlockOutOfRange, match="row 11 is out of range"):
        pull_rows(shard, 0, np.array([8, 11]))
    with pytest.raises(BlockOutOfRange, match="not on this shard"):
        pull_rows(shard, 0, np.array([3, 4]))


# --- at the worker
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, *CUTS])
@pytest.mark.parametrize("rule", [tables.sgd(1.0), tables.assign()], ids=["sum", "last"])
def test_what_is_pushed_by_rows_is_split_merged_and_cut_without_loss(
    rule: Rule, cut: tables.Blocks | None
) -> None:
    drawn = np.random.default_rng(3)
    spec = spec_of(rule, cut)
    table = spec.table("w")
    shards = ShardMap(first_epoch(spec, {"w": np.arange(0, table.blocks, 2, dtype=np.uint32)}))
    expected = np.zeros((ROWS, WIDTH))
    pushes: dict[str, list[ShardPush]] = {}
    for number in range(3):
        rows = drawn.integers(0, ROWS, 6)
        values = drawn.integers(-9, 9, (6, WIDTH)).astype(np.float32)
        packed = pack_tables(spec, "w", values, rows=rows)
        for key, parts in split_by_owner(spec, shards, packed).items():
            pushes.setdefault(key, []).append(ShardPush(number + 1, 0, parts))
        for row, value in zip(rows, values, strict=True):
            expected[row] = value if rule.kind == "assign" else expected[row] + value
    found = np.zeros_like(expected)
    for sent in pushes.values():
        merged = merge_pushes(spec, sent).tables["w"]
        for block in range(len(merged.ids)):
            one = cut_blocks(spec, "w", merged, np.array([block]))
            rows = one.rows if one.rows is not None else table.row_counts.indices(one.ids.astype(np.int64))
            found[rows] += one.values.reshape(-1, WIDTH)
    np.testing.assert_array_equal(found, expected)


def test_whole_blocks_and_rows_merge_to_rows() -> None:
    spec = spec_of(tables.add(), tables.rows(4))
    whole = TablePush(ids(1), np.arange(12, dtype=np.float32))
    some = TablePush(ids(0, 1), np.full(6, 100, np.float32), ids(2, 5))
    merged = merge_pushes(spec, [ShardPush(n, 0, {"w": push}) for n, push in ((1, whole), (2, some))])
    push = merged.tables["w"]
    assert push.ids.tolist() == [0, 1]
    assert push.rows is not None
    assert push.rows.tolist() == [2, 4, 5, 6, 7]
    assert push.values.reshape(-1, WIDTH)[:, 0].tolist() == [100, 0, 103, 6, 9]


def test_a_pull_gives_rows_in_the_users_order() -> None:
    spec = spec_of(tables.add(), tables.rows(4))
    request = PullRequest(spec, "w", rows=[9, 0, 9, 4])
    [wanted] = request.wants
    assert wanted.ids is not None
    assert (wanted.ids.tolist(), wanted.rows.tolist()) == ([0, 1, 2], [0, 4, 9])
    positions, blocks = wanted.missing_blocks()
    assert blocks.tolist() == [0, 1, 2]
    wanted.fill_blocks(positions, np.repeat(np.float32([0, 4, 9]), WIDTH))
    assert request.values()[:, 0].tolist() == [9, 0, 9, 4]


def test_a_later_pull_of_rows_is_filled_from_the_last_where_that_had_all() -> None:
    table = spec_of(tables.add(), tables.rows(4)).table("w")
    known = PullBuffer(table, rows=ids(1, 5, 9))
    known.fill_blocks(np.arange(3), np.repeat(np.float32([1, 5, 9]), WIDTH))
    wanted = PullBuffer(table, rows=ids(5, 9))
    wanted.fill_from(known)
    assert unpack_result(wanted, wanted.rows)[:, 0].tolist() == [5, 9]
    other = PullBuffer(table, rows=ids(5, 6))
    other.fill_from(known)
    assert not other.complete


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"rows": [11]}, BlockOutOfRange, "row 11 is out of range, table w has 11"),
        ({"rows": [-1]}, BlockOutOfRange, "row -1"),
        ({"rows": [0.5]}, InvalidRequest, "rows must be one axis of integers"),
        ({"rows": [1], "ids": [1]}, InvalidRequest, "both ids= and rows="),
        ({"ids": [3]}, BlockOutOfRange, "has 3 of its 11 rows, and ids are blocks.* Address rows by rows="),
    ],
)
def test_what_a_user_may_get_wrong_is_said(
    asked: dict[str, list[int]], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        PullRequest(spec_of(tables.add(), tables.rows(4)), "w", **asked)


def test_where_every_block_is_a_row_both_names_mean_the_same() -> None:
    spec = spec_of(tables.adam(0.1))
    by_rows = pack_tables(spec, "w", np.ones((2, WIDTH)), rows=[4, 2])["w"]
    by_ids = pack_tables(spec, "w", np.ones((2, WIDTH)), ids=[4, 2])["w"]
    assert by_rows.rows is None
    assert by_rows.ids is not None
    assert by_rows.ids.tolist() == by_ids.ids.tolist()


# --- at rest and on the way
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, *CUTS])
def test_a_slot_of_one_element_a_row_comes_back_from_records(cut: tables.Blocks | None) -> None:
    table = spec_of(ROWWISE, cut).table("w")
    sizes = table.layout.sizes
    arrays = [np.arange(ROWS * WIDTH, dtype=np.float32), np.arange(ROWS, dtype=np.float32)]
    steps = np.arange(table.blocks)
    raw = pack_records(block_format(table), sizes, arrays, steps)
    assert (
        len(raw) == block_format(table).record_sizes(sizes).sum() == 4 * ROWS * (WIDTH + 1) + 8 * table.blocks
    )
    found, counted = unpack_records(block_format(table), sizes, raw, np.arange(table.blocks))
    for array, expected in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(array.reshape(-1), expected)
    assert counted.tolist() == steps.tolist()


def test_pushes_of_rows_go_with_blocks_that_move() -> None:
    spec = spec_of(ROWWISE, tables.rows(4))
    shard, _ = started(spec, {"w": ids(0, 1)}, workers=2)
    push_rows(shard, 0, 1, 0, np.array([2, 4, 6]), np.arange(9, dtype=np.float32).reshape(3, WIDTH))
    shard.freeze(1, [("w", ids(1))])
    stream = [*migration.encode_frozen(shard.offer(1, [("w", ids(1))]), 1)]
    [incoming] = migration.decode_frozen(stream, spec, "ps-0@aaaaaaaaaaaa", 1)
    [push] = incoming.pushes
    assert push.ids.tolist() == [1]
    assert push.rows is not None
    assert push.rows.tolist() == [4, 6]
    assert push.values.tolist() == [3, 4, 5, 6, 7, 8]
    assert incoming.contents.slots["squares"].shape == (4,)


def test_a_large_share_of_a_table_is_loaded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed at once holds up everything else."""
    monkeypatch.setattr(ownership, "LOAD_BYTES", 4 * WIDTH * 4)
    spec = spec_of(tables.add(), tables.rows(2))
    shard, epoch = DrivenShard(ME), first_epoch(spec)
    loads = shard.adopt(epoch, spec)
    assert [load.ids.tolist() for load in loads] == [[0, 1], [2, 3], [4, 5]]
    shard.handle(BlocksLoaded(loads[1], BlockContents(np.ones(4 * WIDTH, np.float32))))
    assert shard.ownership.loading_blocks == 4
    with pytest.raises(MustWait):
        pull_rows(shard, 0, np.array([3]))
    assert pull_rows(shard, 0, np.array([4, 7])).tolist() == [[1, 1, 1], [1, 1, 1]]
