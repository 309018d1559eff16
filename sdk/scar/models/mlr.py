"""Multinomial logistic regression, the MLR of the paper: one row of the weights per feature, one column per class.

x, y = data.examples(worker.share(len(data)))
loss, gradient = mlr.loss_and_gradient(w, x, y)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch

Matrix = NDArray[np.float32]
Labels = NDArray[np.integer]


def loss_and_gradient(w: Matrix, x: Matrix, y: Labels) -> tuple[float, Matrix]:
    """Cross-entropy **summed** over the examples, in nats, and its gradient by ``w``.

    ``w`` (features, classes), ``x`` (n, features), ``y`` (n,) with classes from 0. The sums of parts of a data set add up to
    those of the whole, so each worker divides by the number of all examples. Raises :class:`ShapeMismatch`.
    """
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0] or len(x) != len(y):
        raise ShapeMismatch(f"w {w.shape}, x {x.shape} and y {y.shape} do not fit together")
    logits = x @ w
    logits -= logits.max(axis=1, keepdims=True)  # exp cannot overflow
    rows = np.arange(len(y))
    right = logits[rows, y]
    probabilities = np.exp(logits, out=logits)
    totals = probabilities.sum(axis=1)
    loss = float(np.sum(np.log(totals, dtype=np.float64) - right))
    probabilities /= totals[:, None]
    probabilities[rows, y] -= 1
    return loss, x.T @ probabilities


def accuracy(w: Matrix, x: Matrix, y: Labels) -> float:
    """Share of examples whose most probable class is the right one, 0 to 1."""
    return float(np.mean(np.argmax(x @ w, axis=1) == y)) if len(y) else 0.0
