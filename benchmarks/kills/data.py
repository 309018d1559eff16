"""The examples of a run as one file that every system reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scar import datasets, paper_datasets

HELD_OUT = 0.1


def write_data(model: str, file: Path, synthetic: bool = False) -> None:
    """MNIST where it is at hand, else SCAR's digits, for ``mlp``; MovieLens or, ``synthetic``, drawn ratings
    for ``deepfm``. Raises :class:`scar.errors.ConfigError` when MovieLens is not in ``SCAR_DATA``.
    """
    if model == "mlp":
        found = datasets.load("digits" if synthetic else "auto")
        x = (found.images.reshape(len(found), -1) / 255).astype(np.float32)
        y = found.labels.astype(np.int64)
    elif synthetic:
        x, y = _draw_ratings()
    else:
        known = paper_datasets.ratings("movielens")
        x = np.stack((known.rows, known.shape[0] + known.columns), axis=1).astype(np.int64)
        y = known.values.astype(np.float32)
    held_out = np.random.default_rng(0).random(len(y)) < HELD_OUT
    np.savez(file, x=x[~held_out], y=y[~held_out], test_x=x[held_out], test_y=y[held_out])


def _draw_ratings(users: int = 200, movies: int = 300, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Ratings that follow from two factors of user and movie, and noise."""
    draw = np.random.default_rng(1)
    user = draw.integers(users, size=count)
    movie = draw.integers(movies, size=count)
    factors = draw.normal(size=(users + movies, 2))
    value = 3.5 + (factors[user] * factors[users + movie]).sum(1) / 2 + draw.normal(size=count) / 4
    x = np.stack((user, users + movie), axis=1).astype(np.int64)
    return x, np.clip(value, 0.5, 5).astype(np.float32)
