"""Multinomial logistic regression, the MLR of the paper: weights of shape (features, classes).

x, y = data.examples(worker.data_slice(len(data)))  # in every clock
loss, gradient = mlr.loss_and_gradient(w, x, y)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch

Matrix = NDArray[np.float32]
Labels = NDArray[np.integer]

PIECE_ELEMENTS = 1 << 20  # logits at once; more would leave the cache between the passes over them


def loss_and_gradient(w: Matrix, x: Matrix, y: Labels) -> tuple[float, Matrix]:
    """Cross-entropy **summed** over the examples, in nats, and its gradient by ``w``.

    ``w`` (features, classes), ``x`` (n, features), ``y`` (n,) with classes from 0. The sums of parts of a
    data set add up to those of the whole, so each worker divides by the number of all examples. Raises
    :class:`ShapeMismatch`.
    """
    losses, gradient = losses_and_gradients(w[..., None], x, y)
    return float(losses[0]), gradient[..., 0]


def losses_and_gradients(w: Matrix, x: Matrix, y: Labels) -> tuple[NDArray[np.float64], Matrix]:
    """The same for many models at once: ``w`` (features, classes, models) gives losses (models,) and
    gradients like ``w``.

    The examples are read once for all models, and one matrix product serves them all: many times faster than
    one by one.
    """
    if w.ndim != 3 or x.ndim != 2 or x.shape[1] != w.shape[0] or len(x) != len(y):
        raise ShapeMismatch(f"w {w.shape}, x {x.shape} and y {y.shape} do not fit together")
    features, classes, models = w.shape
    flat = np.ascontiguousarray(w).reshape(features, -1)
    losses = np.zeros(models)
    gradient = np.zeros(flat.shape, np.result_type(w, x))
    step = max(64, PIECE_ELEMENTS // max(1, classes * models))
    for start in range(0, len(y), step):
        part = x[start : start + step]
        labels = y[start : start + step]
        probabilities = (part @ flat).reshape(len(part), classes, models)
        losses += _softmax_losses(probabilities, labels)
        gradient += part.T @ probabilities.reshape(len(part), -1)
    return losses, gradient.reshape(w.shape)


def _softmax_losses(logits: Matrix, y: Labels) -> NDArray[np.float64]:
    """Replace logits (n, classes, models) by probabilities minus the one-hot labels; returns the losses
    (models,).
    """
    logits -= logits.max(axis=1, keepdims=True)  # exp cannot overflow
    rows = np.arange(len(y))
    right = logits[rows, y]
    np.exp(logits, out=logits)
    totals = logits.sum(axis=1)
    logits /= totals[:, None]
    logits[rows, y] -= 1
    losses: NDArray[np.float64] = (np.log(totals) - right).sum(axis=0, dtype=np.float64)
    return losses


def accuracy(w: Matrix, x: Matrix, y: Labels) -> float:
    """Share of examples whose most probable class is the right one, 0 to 1."""
    return float(np.mean(np.argmax(x @ w, axis=1) == y)) if len(y) else 0.0
