"""Matrix factorisation by alternating least squares (ALS): ratings (users x items) as L R with a few factors.

One sweep minimises ``sum over known ratings of (r - l_u . r_i)^2 + ridge (||L||^2 + ||R||^2)`` first over L,
then over R:

    known = mf.Ratings(users, items, values, (671, 9125))
    mf.solve(known.by_row, right, ridge, left)                 # every user from the items
    explained = mf.solve(known.by_column, left, ridge, right)  # every item from the users
    loss = mf.objective(known, explained, left, ridge)

Each row is the solution of a small linear system of its own, so workers share out rows (``part``). Needs
numba.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch
from scar.models.kernels import compile_loop

Factors = NDArray[np.float32]

PIECE = 512  # ratings of a row that are gathered at once, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class Known:
    """Ratings of each row, back to back: row ``i`` has ``others[starts[i]:starts[i + 1]]`` with these
    ``values``.
    """

    starts: NDArray[np.int64]
    others: NDArray[np.int32]
    values: NDArray[np.float32]

    @property
    def weights(self) -> NDArray[np.float32]:
        """For ``scar.Table(weights=...)``: the square root of each row's number of ratings, at least 1.

        Moved by d, a row changes the squared error by about n |d|^2, so weighted distances say what a row
        means to the loss.
        """
        return np.sqrt(np.maximum(np.diff(self.starts), 1)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Known entries of a matrix: ``values[n]`` at (``rows[n]``, ``columns[n]``)."""

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    shape: tuple[int, int]

    @cached_property
    def by_row(self) -> Known:
        return _sort_ratings(self.rows, self.columns, self.values, self.shape[0])

    @cached_property
    def by_column(self) -> Known:
        return _sort_ratings(self.columns, self.rows, self.values, self.shape[1])

    @cached_property
    def squares(self) -> float:
        """Sum of the squared ratings."""
        return float(np.sum(np.square(self.values, dtype=np.float64)))


def _sort_ratings(
    rows: NDArray[np.int32], others: NDArray[np.int32], values: NDArray[np.float32], count: int
) -> Known:
    order = np.lexsort((others, rows))
    starts = np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int64)
    return Known(starts, others[order].astype(np.int32), values[order].astype(np.float32))


def solve(known: Known, other: Factors, ridge: float, out: Factors, part: slice = slice(None)) -> float:
    """Best rows ``part`` for fixed ``other``, written to ``out`` (rows of the part, factors); rows without
    ratings become zero.

    Returns how much of the ratings' squared sum they explain: at the solution, objective = squares -
    explained (without the other side's ridge).
    """
    first, last, _ = part.indices(len(known.starts) - 1)
    if out.shape != (last - first, other.shape[1]):
        raise ShapeMismatch(
            f"rows {first} to {last} with {other.shape[1]} factors do not fit into {out.shape}"
        )
    return float(
        _solve_rows(known.starts[first : last + 1], known.others, known.values, other, np.float32(ridge), out)
    )


def objective(ratings: Ratings, explained: float, other: Factors, ridge: float) -> float:
    """What ALS minimises, after a half-sweep that explained this much with ``other`` fixed."""
    return ratings.squares - explained + ridge * float(np.sum(np.square(other, dtype=np.float64)))


@compile_loop(fastmath=True)
def _solve_rows(
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: NDArray[np.float32],
    other: Factors,
    ridge: np.float32,
    out: Factors,
) -> float:
    """Normal equations and their Cholesky factor, row by row; the right-hand side is carried along as one
    more row.

    Ratings are gathered with a factor per row, so that products run along the ratings and fill the vector
    units.
    """
    rows, factors = out.shape
    gathered = np.empty((factors + 1, PIECE), other.dtype)
    system = np.empty((factors + 1, factors), other.dtype)
    explained = 0.0
    for row in range(rows):
        system[:] = 0
        for a in range(factors):
            system[a, a] = ridge
        for start in range(starts[row], starts[row + 1], PIECE):
            length = min(PIECE, starts[row + 1] - start)
            for n in range(length):
                gathered[factors, n] = values[start + n]
                for a in range(factors):
                    gathered[a, n] = other[others[start + n], a]
            for a in range(factors + 1):
                for b in range(min(a + 1, factors)):
                    product = gathered[a, 0] * gathered[b, 0]
                    for n in range(1, length):
                        product += gathered[a, n] * gathered[b, n]
                    system[a, b] += product
        for a in range(factors + 1):
            for b in range(min(a, factors)):
                rest = system[a, b]
                for n in range(b):
                    rest -= system[a, n] * system[b, n]
                system[a, b] = rest * system[b, b]
            if a < factors:
                rest = system[a, a]
                for n in range(a):
                    rest -= system[a, n] * system[a, n]
                system[a, a] = 1 / np.sqrt(rest)  # reciprocals on the diagonal: divisions are slow
        for a in range(factors - 1, -1, -1):
            explained += system[factors, a] * system[factors, a]
            rest = system[factors, a]
            for n in range(a + 1, factors):
                rest -= system[n, a] * out[row, n]
            out[row, a] = rest * system[a, a]
    return explained
