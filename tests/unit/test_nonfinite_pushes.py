"""NaN and infinity are found before a push counts, wherever they are and whichever way values are copied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import scar
from scar._client.core.push_shares import split_by_owner
from scar._client.core.shard_map import ShardMap
from scar._client.push_requests import pack_tables
from scar.blocks import Array
from scar.errors import NonFinite
from scar.tables import Job, Table
from tests.unit.ps_support import first_epoch, ids, job

CUTS = {"rows": scar.rows(1), "groups": scar.rows(3), "ragged": scar.ragged([0, 1, 4, 10])}
OWNED = {"all": lambda table: ids(*range(table.blocks)), "some": lambda table: ids(0)}
ASKED = {"whole": None, "ascending": np.array([2, 3, 7]), "repeated": np.array([7, 2, 2])}
MEMORY = {"own": lambda key, size: None, "borrowed": lambda key, size: np.zeros(size, np.uint8)}


def share_out(spec: Job, owned: str, rows: Array | None, values: Array, memory: str) -> None:
    table = spec.tables[0]
    shards = ShardMap(first_epoch(spec, {"w": OWNED[owned](table)}))
    borrow: Callable[[str, int], Array | None] = MEMORY[memory]
    split_by_owner(spec, shards, pack_tables(spec, "w", values, rows=rows), borrow)


@pytest.mark.parametrize(("cut", "owned", "asked", "memory"), list(product(CUTS, OWNED, ASKED, MEMORY)))
def test_one_is_found_anywhere(cut: str, owned: str, asked: str, memory: str) -> None:
    rows = ASKED[asked]
    spec = job(Table("w", (10, 2), blocks=CUTS[cut]))
    values = np.ones((10 if rows is None else 3, 2), np.float32)
    share_out(spec, owned, rows, values, memory)
    for at, odd in product(np.ndindex(values.shape), (np.nan, np.inf)):
        wrong = values.copy()
        wrong[at] = odd
        with pytest.raises(NonFinite, match="table w: the push contains NaN"):
            share_out(spec, owned, rows, wrong, memory)


@pytest.mark.parametrize("memory", MEMORY)
def test_large_finite_values_are_not_taken_for_infinity(memory: str) -> None:
    spec = job(Table("w", (10, 2)))
    share_out(spec, "some", None, np.full((10, 2), np.finfo(np.float32).max, np.float32), memory)


@pytest.mark.parametrize("asked", ASKED)
def test_where_they_are_allowed_nobody_looks(asked: str) -> None:
    rows = ASKED[asked]
    spec = job(Table("w", (10, 2), allow_nonfinite=True))
    share_out(spec, "all", rows, np.full((10 if rows is None else 3, 2), np.nan, np.float32), "borrowed")


def test_a_sum_of_finite_values_that_is_too_large_is_found_here_too() -> None:
    spec = job(Table("w", (10, 2)))
    with pytest.raises(NonFinite, match="contains NaN or infinity"):
        share_out(spec, "all", np.array([1, 1]), np.full((2, 2), 3e38, np.float32), "own")


def test_nan_is_not_called_too_large_for_bfloat16() -> None:
    spec = job(Table("w", (10, 2)))
    with pytest.raises(NonFinite, match="contains NaN"):
        pack_tables(spec, "w", np.full((10, 2), np.nan, np.float32), None, ["w"])
