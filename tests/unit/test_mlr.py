"""Multinomial logistic regression: the gradient is that of the loss, and parts add up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scar.errors import ShapeMismatch
from scar.models import mlr


def example(
    n: int = 40, features: int = 7, classes: int = 3, dtype: str = "float64"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    w = draw.normal(size=(features, classes)).astype(dtype)
    return w, draw.normal(size=(n, features)).astype(dtype), draw.integers(0, classes, n)


def test_gradient_is_the_derivative_of_the_loss() -> None:
    w, x, y = example()
    _, gradient = mlr.loss_and_gradient(w, x, y)
    numeric = np.empty_like(w)
    for index in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[index] = 1e-6
        numeric[index] = (
            mlr.loss_and_gradient(w + step, x, y)[0] - mlr.loss_and_gradient(w - step, x, y)[0]
        ) / 2e-6
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_loss_at_zero_is_the_logarithm_of_the_classes() -> None:
    w, x, y = example()
    loss, _ = mlr.loss_and_gradient(np.zeros_like(w), x, y)
    assert loss == pytest.approx(len(y) * np.log(3))


def test_parts_add_up_to_the_whole() -> None:
    w, x, y = example()
    loss, gradient = mlr.loss_and_gradient(w, x, y)
    first, second = mlr.loss_and_gradient(w, x[:15], y[:15]), mlr.loss_and_gradient(w, x[15:], y[15:])
    assert first[0] + second[0] == pytest.approx(loss)
    np.testing.assert_allclose(first[1] + second[1], gradient, rtol=1e-12)


def test_large_weights_do_not_overflow_and_the_dtype_stays() -> None:
    w, x, y = example(dtype="float32")
    loss, gradient = mlr.loss_and_gradient(w * 1e4, x, y)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()
    assert gradient.dtype == np.float32


def test_descent_learns_what_can_be_told_apart() -> None:
    w, x, _ = example()
    y = np.argmax(x @ w, axis=1)
    learned = np.zeros_like(w)
    losses = []
    for _ in range(200):
        loss, gradient = mlr.loss_and_gradient(learned, x, y)
        losses.append(loss)
        learned -= 0.05 * gradient
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert mlr.accuracy(learned, x, y) == 1.0
    assert mlr.accuracy(learned, x[:0], y[:0]) == 0.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    w, x, y = example()
    with pytest.raises(ShapeMismatch):
        mlr.loss_and_gradient(w[:-1], x, y)
    with pytest.raises(ShapeMismatch):
        mlr.loss_and_gradient(w, x, y[:-1])
