"""The convolutional network of the paper: two convolutions with max pooling, three fully connected layers,
ReLU. Plain numpy.

    parameters = worker.pull(list(cnn.SHAPES))
    loss, gradients = cnn.loss_and_gradients(parameters, images, labels)

LeNet's sizes, for grey images of 28 x 28 and ten classes. First axes are outputs: a shard of a layer is a set
of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch

Float32Array = NDArray[np.float32]
Parameters = Mapping[str, Float32Array]
ImageLabels = NDArray[np.integer]

SIDE = 28
KERNEL = 5
CLASSES = 10
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
PIECE = 100  # images that are evaluated at once: what is unfolded of them fits a core's cache


def deviation(name: str) -> float:
    """Standard deviation of the initial values (He et al.: keeps the size of activations through ReLU); 0
    for biases.
    """
    shape = SHAPES[name]
    return math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.0


def loss_and_gradients(
    parameters: Parameters, images: Float32Array, labels: ImageLabels
) -> tuple[float, dict[str, Float32Array]]:
    """Cross-entropy, **mean** over the images, in nats, and its gradients. ``images`` float32 (n, 28, 28)
    or (n, 784).
    """
    first = _convolve(_images(images), parameters, "conv1")
    second = _convolve(first.pooled, parameters, "conv2")
    activations = [second.pooled.reshape(-1, len(images))]
    for layer in FULL:
        activations.append(_full(activations[-1], parameters, layer, last=layer == FULL[-1]))
    loss, delta = _softmax(activations.pop(), labels)
    gradients: dict[str, Float32Array] = {}
    for layer, given in zip(reversed(FULL), reversed(activations), strict=True):
        gradients[f"{layer}.w"] = delta @ given.T
        gradients[f"{layer}.b"] = delta.sum(axis=1)
        delta = (parameters[f"{layer}.w"].T @ delta) * (given > 0)
    spread = _unpool(delta, second)
    gradients |= _kernel_gradients(spread, second, "conv2")
    back = _fold(parameters["conv2.w"].reshape(len(spread), -1).T @ spread, first.pooled.shape)
    gradients |= _kernel_gradients(_unpool(back * (first.pooled > 0), first), first, "conv1")
    return loss, {name: gradients[name] for name in SHAPES}


def loss(parameters: Parameters, images: Float32Array, labels: ImageLabels, piece: int = PIECE) -> float:
    """Mean cross-entropy alone, ``piece`` images at a time."""
    return evaluate(parameters, images, labels, piece)[0]


def evaluate(
    parameters: Parameters, images: Float32Array, labels: ImageLabels, piece: int = PIECE
) -> tuple[float, float]:
    """Mean cross-entropy, and the share of the images that are told right."""
    total = 0.0
    right = 0
    for start in range(0, len(labels), piece):
        part = slice(start, start + piece)
        scores = _scores(parameters, _images(images[part]))
        right += int(np.count_nonzero(scores.argmax(axis=0) == labels[part]))
        total += _softmax(scores, labels[part])[0] * len(labels[part])
    return total / len(labels), right / len(labels)


def _images(images: Float32Array) -> Float32Array:
    """(1, 28, 28, n): channels first and images last, so that all steps below run over long rows."""
    if images.size != len(images) * SIDE * SIDE:
        raise ShapeMismatch(f"images {images.shape} are not of {SIDE} x {SIDE} pixels")
    return np.ascontiguousarray(images.reshape(len(images), -1).T).reshape(1, SIDE, SIDE, -1)


def _scores(parameters: Parameters, x: Float32Array) -> Float32Array:
    for layer in ("conv1", "conv2"):
        x = _convolve(x, parameters, layer).pooled
    x = x.reshape(-1, x.shape[-1])
    for layer in FULL:
        x = _full(x, parameters, layer, last=layer == FULL[-1])
    return x


def _full(x: Float32Array, parameters: Parameters, layer: str, last: bool) -> Float32Array:
    out: Float32Array = parameters[f"{layer}.w"] @ x
    out += parameters[f"{layer}.b"][:, None]
    return out if last else np.maximum(out, 0, out=out)


@dataclass(frozen=True, eq=False, slots=True)
class _Convolved:
    """``columns``: the unfolded input (channels * 25, out * out * n). ``cells``: what was pooled, n values
    for each place, as (outputs, out / 2, 2, out / 2, 2, n). ``largest`` of each four, and ``pooled``, the
    same after ReLU: without the twos.
    """

    columns: Float32Array
    cells: Float32Array
    largest: Float32Array
    pooled: Float32Array


def _convolve(x: Float32Array, parameters: Parameters, layer: str) -> _Convolved:
    """Convolution, 2 x 2 max pooling, ReLU on ``x`` (channels, side, side, n)."""
    w = parameters[f"{layer}.w"]
    b = parameters[f"{layer}.b"]
    side = x.shape[1] - KERNEL + 1
    n = x.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(x, (KERNEL, KERNEL), axis=(1, 2))
    columns = windows.transpose(0, 4, 5, 1, 2, 3).reshape(-1, side * side * n)
    out = w.reshape(len(w), -1) @ columns
    out += b[:, None]
    cells = out.reshape(len(w), side // 2, 2, side // 2, 2, n)
    largest = np.maximum(
        np.maximum(cells[:, :, 0, :, 0], cells[:, :, 0, :, 1]),
        np.maximum(cells[:, :, 1, :, 0], cells[:, :, 1, :, 1]),
    )
    return _Convolved(columns, cells, largest, np.maximum(largest, 0))


def _unpool(delta: Float32Array, of: _Convolved) -> Float32Array:
    """Gradient by the values before pooling, (outputs, out * out * n).

    Equal ones share it: blank parts of an image give equal cells, and each of them with the whole would count
    four times.
    """
    chosen = of.cells == of.largest[:, :, None, :, None]
    one = chosen.view(np.uint8)
    sharing = one[:, :, 0, :, 0] + one[:, :, 0, :, 1] + one[:, :, 1, :, 0] + one[:, :, 1, :, 1]
    share = delta.reshape(of.largest.shape) / sharing
    spread: Float32Array = share[:, :, None, :, None] * chosen
    return spread.reshape(len(spread), -1)


def _kernel_gradients(delta: Float32Array, of: _Convolved, layer: str) -> dict[str, Float32Array]:
    return {
        f"{layer}.w": (delta @ of.columns.T).reshape(SHAPES[f"{layer}.w"]),
        f"{layer}.b": delta.sum(axis=1),
    }


def _fold(columns: Float32Array, shape: tuple[int, ...]) -> Float32Array:
    """Sum of unfolded columns at the places that they were taken from."""
    channels, side, _, n = shape
    out = side - KERNEL + 1
    back = np.zeros(shape, columns.dtype)
    patches = columns.reshape(channels, KERNEL, KERNEL, out, out, n)
    for down, right in np.ndindex(KERNEL, KERNEL):
        back[:, down : down + out, right : right + out] += patches[:, down, right]
    return back


def _softmax(scores: Float32Array, labels: ImageLabels) -> tuple[float, Float32Array]:
    """Mean loss, and its gradient by the scores (classes, n)."""
    each = np.arange(len(labels))
    scores = scores - scores.max(axis=0)
    right = scores[labels, each]
    np.exp(scores, out=scores)
    totals = scores.sum(axis=0)
    scores /= totals
    scores[labels, each] -= 1
    scores /= len(labels)
    return float(np.mean(np.log(totals) - right, dtype=np.float64)), scores
