"""From a user's arrays to packed blocks and back; wrong calls are refused before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from scar import errors
from scar._client.core.pull_buffer import PullBuffer, unpack_result
from scar._client.core.pushes import (
    ShardPush,
    TablePush,
    check_ids,
    combine_repeats,
    count_rows,
    flatten_values,
    merge_pushes,
)
from scar._client.pull_requests import PullRequest
from scar.tables import Job, Table

SEEDED = settings(max_examples=60, derandomize=True)

ROWS = Table("rows", (8, 3))
RAGGED = Table("ragged", (10, 2), dtype="int64", blocks=scar.ragged([0, 1, 4, 6, 10]))
ASSIGN = Table("assign", (8, 3), rule=scar.assign())


def naive(table: Table, ids: np.ndarray, values: np.ndarray) -> dict[int, np.ndarray]:
    """Block by block, the slow and obvious way."""
    found: dict[int, np.ndarray] = {}
    at = 0
    for block in ids.tolist():
        rows = int(table.row_offsets[block + 1] - table.row_offsets[block])
        piece = values[at : at + rows]
        assign = table.rule.kind == "assign" or block not in found
        found[block] = piece.copy() if assign else found[block] + piece
        at += rows
    return found


@SEEDED
@given(st.sampled_from([ROWS, RAGGED, ASSIGN]), st.data())
def test_repeated_ids_are_combined(table: Table, data: st.DataObject) -> None:
    ids = check_ids(table, data.draw(st.lists(st.integers(0, table.blocks - 1), max_size=12)))
    values = (
        np.arange(count_rows(table, ids) * table.row_elements)
        .reshape(-1, *table.shape[1:])
        .astype(table.dtype)
    )
    piece = combine_repeats(table, ids, flatten_values(table, values, len(values)))
    expected = naive(table, ids, values)
    assert piece.ids.tolist() == sorted(expected)
    packed = np.concatenate(
        [expected[block].reshape(-1) for block in sorted(expected)] or [np.empty(0, table.dtype)]
    )
    np.testing.assert_array_equal(piece.values, packed)
    assert piece.values.dtype == table.dtype


@SEEDED
@given(st.sampled_from([ROWS, RAGGED]), st.data())
def test_pulled_rows_come_in_the_order_of_the_ids(table: Table, data: st.DataObject) -> None:
    whole = np.arange(table.elements, dtype=table.dtype).reshape(table.shape)
    asked = check_ids(table, data.draw(st.lists(st.integers(0, table.blocks - 1), max_size=12)))
    wanted = PullBuffer(table, np.unique(asked))
    while not wanted.complete:  # in two shares, as from two shards
        positions, ids = wanted.missing_blocks()
        share = positions[: max(1, len(positions) // 2)]
        buffer = wanted.receive_buffer(share)
        buffer[...] = table.layout.gather(whole.reshape(-1), ids[: len(share)].astype(np.int64))
        wanted.fill_blocks(share, buffer)
    rows = [whole[table.row_offsets[block] : table.row_offsets[block + 1]] for block in asked.tolist()]
    values = unpack_result(wanted, asked)
    np.testing.assert_array_equal(values, np.concatenate([*rows, whole[:0]]))
    assert not values.flags.writeable


def test_one_share_is_received_without_a_copy() -> None:
    wanted = PullBuffer(ROWS)
    positions, ids = wanted.missing_blocks()
    assert ids.tolist() == list(range(8))
    assert wanted.receive_buffer(positions) is wanted.flat
    assert wanted.receive_buffer(positions[:3]).size == 9


def test_a_rollback_starts_a_pull_again() -> None:
    wanted = PullBuffer(ROWS)
    wanted.fill_blocks(np.arange(8), wanted.flat)
    assert wanted.complete
    wanted.discard_blocks()
    assert len(wanted.missing_blocks()[0]) == 8


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.zeros((8, 4), np.float32), errors.ShapeMismatch),
        (np.zeros(24, np.float32), errors.ShapeMismatch),
        (np.zeros((8, 3), np.complex64), errors.ShapeMismatch),
    ],
)
def test_wrong_values_are_refused(values: np.ndarray, kind: type[errors.ScarError]) -> None:
    with pytest.raises(kind, match="rows"):
        flatten_values(ROWS, values, 8)


def test_integers_do_not_take_fractions() -> None:
    with pytest.raises(errors.ShapeMismatch, match="float64"):
        flatten_values(RAGGED, np.zeros((10, 2)), 10)


def test_ids_are_blocks_and_the_error_says_so_where_a_block_is_not_a_row() -> None:
    with pytest.raises(
        errors.BlockOutOfRange, match="7 is out of range, table w has 4 of its 16 rows, and ids are blocks"
    ):
        check_ids(Table("w", (16, 2), blocks=scar.rows(4)), [7])
    with pytest.raises(
        errors.BlockOutOfRange, match=r"block 16 is out of range, table w has 16\. ids are blocks"
    ):
        check_ids(Table("w", (16, 2)), [16])


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([-1], errors.BlockOutOfRange),
        ([8], errors.BlockOutOfRange),
        ([0.5], errors.InvalidRequest),
        ([[1]], errors.InvalidRequest),
    ],
)
def test_wrong_ids_are_refused(ids: list[object], kind: type[errors.ScarError]) -> None:
    with pytest.raises(kind):
        check_ids(ROWS, ids)


def test_requests_of_several_tables() -> None:
    job = scar.Job("j", [ROWS, RAGGED])
    request = PullRequest(job, ["rows", "ragged"], {"ragged": [3]})
    assert [wanted.layout.elements for wanted in request.wants] == [24, 8]
    with pytest.raises(errors.UnknownTable):
        PullRequest(job, "nothing", None)
    with pytest.raises(errors.InvalidRequest, match="dict"):
        PullRequest(job, ["rows", "ragged"], [1])


def test_parts_that_wait_are_summed_block_by_block() -> None:
    """Their sum has the number of the last, for who has it has all of them, and belongs to the clock of
    the first.
    """
    job = Job("test", [ROWS, ASSIGN])
    one, two = np.array([1, 4], np.uint32), np.array([4, 6], np.uint32)
    first = ShardPush(3, 7, {"rows": TablePush(one, np.arange(6, dtype=np.float32))})
    second = ShardPush(
        5,
        8,
        {
            "rows": TablePush(two, np.full(6, 10, np.float32)),
            "assign": TablePush(one, np.ones(6, np.float32)),
        },
        resent=True,
    )
    third = ShardPush(6, 8, {"assign": TablePush(two, np.full(6, 2, np.float32))}, merged=4)
    part = merge_pushes(job, [first, second, third])
    assert (part.push_id, part.clock, part.resent, part.merged) == (6, 7, True, 6)
    assert part.tables["rows"].ids.tolist() == [1, 4, 6]
    assert part.tables["rows"].values.tolist() == [0, 1, 2, 13, 14, 15, 10, 10, 10]
    assert part.tables["assign"].ids.tolist() == [1, 4, 6]
    assert part.tables["assign"].values.tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 2]
