"""The network: gradients are those of the loss, and Adam on a shard learns with them."""

from __future__ import annotations

import numpy as np
import pytest

from scar.errors import ShapeMismatch
from scar.models import cnn


def parameters(seed: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        name: (draw.normal(size=shape) * (cnn.deviation(name) or 0.1)).astype(dtype)
        for name, shape in cnn.SHAPES.items()
    }


@pytest.mark.parametrize("blank", [0, 20], ids=["full", "blank"])
@pytest.mark.parametrize("name", list(cnn.SHAPES))
def test_gradients_are_the_derivative_of_the_loss(name: str, blank: int) -> None:
    """In the blank part of an image whole groups of four that are pooled are equal."""
    draw = np.random.default_rng(5)
    at, images, labels = parameters(4), draw.random((6, 28, 28)), draw.integers(0, 10, 6)
    images[:, :blank] = 0
    _, gradients = cnn.loss_and_gradients(at, images, labels)
    assert gradients[name].shape == cnn.SHAPES[name]
    direction = draw.normal(size=cnn.SHAPES[name])
    direction /= np.linalg.norm(direction)
    ahead, behind = ({**at, name: at[name] + step * direction} for step in (1e-6, -1e-6))
    numeric = (cnn.loss(ahead, images, labels) - cnn.loss(behind, images, labels)) / 2e-6
    assert float((gradients[name] * direction).sum()) == pytest.approx(numeric, rel=1e-4, abs=1e-7)


def test_loss_alone_is_the_same_loss_in_pieces() -> None:
    draw = np.random.default_rng(5)
    at, images, labels = parameters(4), draw.random((7, 28, 28)), draw.integers(0, 10, 7)
    assert cnn.loss(at, images, labels, piece=3) == pytest.approx(
        cnn.loss_and_gradients(at, images, labels)[0]
    )


def test_float32_stays_float32() -> None:
    draw = np.random.default_rng(5)
    images = draw.random((4, 784), dtype=np.float32)
    _, gradients = cnn.loss_and_gradients(parameters(1, "float32"), images, draw.integers(0, 10, 4))
    assert {gradient.dtype for gradient in gradients.values()} == {np.dtype(np.float32)}


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ShapeMismatch):
        cnn.loss(parameters(1), np.zeros((2, 27, 28)), np.zeros(2, int))
