"""Factorisation: each half-sweep is the exact minimum, parts are the whole, and the objective never grows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("numba")

from scar.errors import ShapeMismatch
from scar.models import mf

RIDGE = 0.3


def ratings(seed: int = 1, users: int = 30, items: int = 700, known: int = 2500) -> mf.Ratings:
    draw = np.random.default_rng(seed)
    cells = draw.permutation(users * items)[:known]
    values = draw.uniform(1, 5, known).astype(np.float32)
    return mf.Ratings(
        (cells // items).astype(np.int32), (cells % items).astype(np.int32), values, (users, items)
    )


def loss(known: mf.Ratings, left: np.ndarray, right: np.ndarray) -> float:
    error = known.values - (left[known.rows] * right[known.columns]).sum(axis=1)
    return float((error**2).sum() + RIDGE * ((left**2).sum() + (right**2).sum()))


@pytest.mark.parametrize("factors", [1, 4, 7])
def test_rows_solve_their_normal_equations(factors: int) -> None:
    known = ratings(known=20_000)  # rows longer than a piece
    draw = np.random.default_rng(2)
    right = draw.random((700, factors), dtype=np.float32)
    left = np.empty((30, factors), np.float32)
    explained = mf.solve(known.by_row, right, RIDGE, left)
    for user in range(30):
        mine = known.rows == user
        others, values = right[known.columns[mine]].astype(np.float64), known.values[mine]
        exact = np.linalg.solve(others.T @ others + RIDGE * np.eye(factors), others.T @ values)
        np.testing.assert_allclose(left[user], exact, rtol=2e-3, atol=2e-3)
    assert mf.objective(known, explained, right, RIDGE) == pytest.approx(loss(known, left, right), rel=1e-4)


def test_parts_are_the_whole_and_rows_without_ratings_become_zero() -> None:
    known = ratings()
    silent = mf.Ratings(known.rows, known.columns, known.values, (32, 700))
    right = np.random.default_rng(3).random((700, 3), dtype=np.float32)
    whole, parts = np.empty((32, 3), np.float32), np.empty((32, 3), np.float32)
    total = mf.solve(silent.by_row, right, RIDGE, whole)
    shares = [slice(0, 11), slice(11, 32)]
    assert sum(
        mf.solve(silent.by_row, right, RIDGE, parts[share], share) for share in shares
    ) == pytest.approx(total)
    assert (whole == parts).all()
    assert not whole[30:].any()
    with pytest.raises(ShapeMismatch):
        mf.solve(silent.by_row, right, RIDGE, parts, slice(0, 3))


def test_sweeps_descend() -> None:
    known, draw = ratings(), np.random.default_rng(4)
    left, right = (draw.random((n, 3), dtype=np.float32) for n in known.shape)
    losses = []
    for _ in range(12):
        mf.solve(known.by_row, right, RIDGE, left)
        explained = mf.solve(known.by_column, left, RIDGE, right)
        losses.append(mf.objective(known, explained, left, RIDGE))
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
