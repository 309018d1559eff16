"""Data sets: what is read is what was written, and nothing unknown is read."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from scar import datasets
from scar.errors import ConfigError


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with four small files in MNIST's format, taken for the official ones."""
    draw = np.random.default_rng(5)
    folder = tmp_path / "mnist"
    for prefix, n in (("train", 12), ("t10k", 4)):
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", draw.integers(0, 256, (n, 28, 28)))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", draw.integers(0, 10, n))
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setattr(datasets, "MNIST_FILES", sums)
    monkeypatch.setenv("SCAR_DATA", str(tmp_path))
    return folder


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAR_DATA", raising=False)
    monkeypatch.setattr(datasets, "_fetch_file", lambda cache, name: False)


def test_the_folder_that_scar_data_names_comes_first(tiny: Path) -> None:
    data = datasets.load()
    assert (data.name, len(data)) == ("mnist", 12)
    assert str(tiny) in data.origin
    assert len(datasets.mnist(test=True)) == 4


def test_examples_are_scaled_and_have_a_bias(tiny: Path) -> None:
    data = datasets.load("mnist")
    x, y = data.examples(slice(3, 8))
    assert x.shape == (5, datasets.FEATURES)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[:, -1], 1)
    np.testing.assert_allclose(x[:, :-1], data.images[3:8] / 255, atol=1e-6)
    np.testing.assert_array_equal(y, data.labels[3:8])


def test_the_same_part_is_made_once_and_cannot_be_changed(tiny: Path) -> None:
    data = datasets.load("mnist")
    first, _ = data.examples(slice(0, 6))
    assert data.examples(slice(6))[0] is first
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
    other, labels = data.examples(slice(6, 12))
    assert (len(other), len(labels)) == (6, 6)
    assert not np.array_equal(other, first)
    assert data.examples(slice(6, 12))[0] is other


def test_a_file_with_another_checksum_is_refused(tiny: Path) -> None:
    write_idx(tiny / "train-labels-idx1-ubyte.gz", np.zeros(12))
    with pytest.raises(ConfigError, match="SHA-256"):
        datasets.load()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(b"\0\0\x0d\x01\0\0\0\0"), id="floats"),
        pytest.param(gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"), id="shorter than announced"),
        pytest.param(gzip.compress(b"\0\0\x08\x01\0\0\0\x02abc"), id="longer"),
        pytest.param(gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), id="a size that nobody has"),
        pytest.param(gzip.compress(b"\0\0\x08\x02\0\0\0\x02"), id="a cut header"),
        pytest.param(b"not gzip", id="not gzip"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gz"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        datasets.read_idx(path)


def test_without_mnist_and_network_the_digits_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch)
    data = datasets.load()
    assert data.name == "digits"
    assert data.images.shape == (44_925, 784)
    assert np.bincount(data.labels).min() > 4_000
    np.testing.assert_array_equal(datasets.load("digits").images, data.images)
    with pytest.raises(ConfigError):
        datasets.load("mnist")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="mnist, digits or auto"):
        datasets.load("cifar")
