"""The convolutional network of the paper: two convolutions with max pooling, three fully connected layers, ReLU. Plain numpy.

    parameters = worker.pull(list(cnn.SHAPES))
    loss, gradients = cnn.loss_and_gradients(parameters, images, labels)

LeNet's sizes, for grey images of 28 x 28 and ten classes. First axes are outputs: a shard of a layer is a set of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch

Array = NDArray[np.float32]
Parameters = Mapping[str, Array]
Labels = NDArray[np.integer]

SIDE, KERNEL, CLASSES = 28, 5, 10
SHAPES: Mapping[str, tuple[int, ...]] = {
    "conv1.w": (8, 1, KERNEL, KERNEL),
    "conv1.b": (8,),
    "conv2.w": (16, 8, KERNEL, KERNEL),
    "conv2.b": (16,),
    "full1.w": (120, 256),
    "full1.b": (120,),
    "full2.w": (84, 120),
    "full2.b": (84,),
    "full3.w": (CLASSES, 84),
    "full3.b": (CLASSES,),
}
FULL = ("full1", "full2", "full3")


def deviation(name: str) -> float:
    """Standard deviation of the initial values (He et al.: keeps the size of activations through ReLU); 0 for biases."""
    shape = SHAPES[name]
    return math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.0


def loss_and_gradients(parameters: Parameters, images: Array, labels: Labels) -> tuple[float, dict[str, Array]]:
    """Cross-entropy, **mean** over the images, in nats, and its gradients. ``images`` float32 (n, 28, 28) or (n, 784)."""
    x = _images(images)
    columns1, first, chosen1 = _convolve(x[..., None], parameters, "conv1")
    columns2, second, chosen2 = _convolve(first, parameters, "conv2")
    activations = [second.reshape(len(x), -1)]
    for layer in FULL:
        activations.append(_full(activations[-1], parameters, layer, last=layer == FULL[-1]))
    loss, delta = _softmax(activations.pop(), labels)
    gradients: dict[str, Array] = {}
    for layer, given in zip(reversed(FULL), reversed(activations), strict=True):
        gradients[f"{layer}.w"], gradients[f"{layer}.b"] = delta.T @ given, delta.sum(axis=0)
        delta = (delta @ parameters[f"{layer}.w"]) * (given > 0)
    spread2 = _unpool(delta.reshape(second.shape), chosen2)
    gradients |= _kernel_gradients(spread2, columns2, "conv2")
    back = _scatter(spread2 @ parameters["conv2.w"].reshape(len(parameters["conv2.w"]), -1), first.shape)
    gradients |= _kernel_gradients(_unpool(back * (first > 0), chosen1), columns1, "conv1")
    return loss, {name: gradients[name] for name in SHAPES}


def loss(parameters: Parameters, images: Array, labels: Labels, piece: int = 500) -> float:
    """Mean cross-entropy alone, ``piece`` images at a time."""
    total = 0.0
    for start in range(0, len(labels), piece):
        part = slice(start, start + piece)
        scores = _scores(parameters, _images(images[part]))
        total += _softmax(scores, labels[part])[0] * len(scores)
    return total / len(labels)


def evaluate(parameters: Parameters, images: Array, labels: Labels) -> tuple[float, float]:
    """Mean cross-entropy, and the share of the images that are told right."""
    scores = _scores(parameters, _images(images))
    right = float(np.mean(scores.argmax(axis=1) == labels))
    return _softmax(scores, labels)[0], right


def _images(images: Array) -> Array:
    if images.size != len(images) * SIDE * SIDE:
        raise ShapeMismatch(f"images {images.shape} are not of {SIDE} x {SIDE} pixels")
    return images.reshape(-1, SIDE, SIDE)


def _scores(parameters: Parameters, x: Array) -> Array:
    hidden = x[..., None]
    for layer in ("conv1", "conv2"):
        hidden = _convolve(hidden, parameters, layer)[1]
    hidden = hidden.reshape(len(x), -1)
    for layer in FULL:
        hidden = _full(hidden, parameters, layer, last=layer == FULL[-1])
    return hidden


def _full(x: Array, parameters: Parameters, layer: str, last: bool) -> Array:
    out: Array = x @ parameters[f"{layer}.w"].T
    out += parameters[f"{layer}.b"]
    return out if last else np.maximum(out, 0, out=out)


def _convolve(x: Array, parameters: Parameters, layer: str) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Convolution, 2 x 2 max pooling, ReLU on ``x`` (n, side, side, channels).

    Returns the unfolded input (n * out * out, channels * 25), the result (n, out / 2, out / 2, outputs), and which of the
    pooled values was the largest (n, out / 2, 2, out / 2, 2, outputs).
    """
    w, b = parameters[f"{layer}.w"], parameters[f"{layer}.b"]
    n, side = len(x), x.shape[1] - KERNEL + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (KERNEL, KERNEL), axis=(1, 2))
    columns = windows.reshape(n * side * side, -1)
    out = columns @ w.reshape(len(w), -1).T
    out += b
    cells = out.reshape(n, side // 2, 2, side // 2, 2, len(w))
    largest = np.maximum(
        np.maximum(cells[:, :, 0, :, 0], cells[:, :, 0, :, 1]), np.maximum(cells[:, :, 1, :, 0], cells[:, :, 1, :, 1])
    )
    return columns, np.maximum(largest, 0), cells == largest[:, :, None, :, None]


def _unpool(delta: Array, chosen: NDArray[np.bool_]) -> Array:
    """Gradient by the values before pooling, (n * out * out, outputs)."""
    spread: Array = delta[:, :, None, :, None] * chosen
    return spread.reshape(-1, chosen.shape[-1])


def _kernel_gradients(delta: Array, columns: Array, layer: str) -> dict[str, Array]:
    return {f"{layer}.w": (delta.T @ columns).reshape(SHAPES[f"{layer}.w"]), f"{layer}.b": delta.sum(axis=0)}


def _scatter(columns: Array, shape: tuple[int, ...]) -> Array:
    """Sum of unfolded columns at the places that they were taken from."""
    n, side, _, channels = shape
    out = side - KERNEL + 1
    back = np.zeros(shape, columns.dtype)
    patches = columns.reshape(n, out, out, channels, KERNEL, KERNEL)
    for down, right in np.ndindex(KERNEL, KERNEL):
        back[:, down : down + out, right : right + out] += patches[..., down, right]
    return back


def _softmax(scores: Array, labels: Labels) -> tuple[float, Array]:
    """Mean loss, and its gradient by the scores (n, classes)."""
    rows = np.arange(len(labels))
    scores = scores - scores.max(axis=1, keepdims=True)
    right = scores[rows, labels]
    np.exp(scores, out=scores)
    totals = scores.sum(axis=1)
    scores /= totals[:, None]
    scores[rows, labels] -= 1
    scores /= len(labels)
    return float(np.mean(np.log(totals) - right, dtype=np.float64)), scores
