"""Images of digits to train on: MNIST, and a set of the same shape that needs no download.

    data = datasets.load()  # MNIST where it can be had, else digits; data.origin says which and from where
    x, y = data.examples(slice(0, 1000))  # float32 (1000, 785) with a bias column, int64 (1000,)

MNIST comes from the folder that ``SCAR_DATA`` names (``mnist/*.gz``), from the user's cache, or is downloaded
into the cache. Every file is checked against its SHA-256 before it is read.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
import zlib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scar.errors import ConfigError

SIDE = 28
FEATURES = SIDE * SIDE + 1  # pixels and the bias
CLASSES = 10

MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
CONNECT_SECONDS = 2.0
SMALLEST = "t10k-labels-idx1-ubyte.gz"
SMALLEST_SECONDS = 4.0  # an offline machine knows after this that nothing will come
MAX_PIXELS = 60_000 * SIDE * SIDE


@dataclass(frozen=True)
class Dataset:
    """Labelled images. ``images`` uint8 (n, 784), ``labels`` int64 (n,) from 0 to 9; ``origin`` in words,
    for people.
    """

    name: str
    origin: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    _last: dict[tuple[int, int, int], NDArray[np.float32]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.labels)

    def examples(self, part: slice = slice(None)) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Pixels from 0 to 1 and a bias column of ones, float32 (n, 785), and the labels (n,) of a part of
        the set.

        The pixels are read-only, and remembered: the same part costs nothing the next time, so ask in every
        clock.
        """
        known = part.indices(len(self))
        x = self._last.get(known)
        if x is None:
            images = self.images[part]
            self._last.clear()  # before the next one takes its memory
            x = np.ones((len(images), FEATURES), dtype=np.float32)
            np.multiply(images, np.float32(1 / 255), out=x[:, :-1])
            x.flags.writeable = False
            self._last[known] = x
        return x, self.labels[part]


def load(name: str = "auto") -> Dataset:
    """``"mnist"``, ``"digits"``, or ``"auto"``: MNIST when it is here or can be downloaded, else digits.

    Raises :class:`ConfigError` when the set cannot be had.
    """
    if name == "digits":
        return digits()
    if name == "mnist":
        return mnist()
    if name != "auto":
        raise ConfigError(f"data set {name!r} is unknown", "Use mnist, digits or auto")
    folder = _mnist_folder()
    return digits() if folder is None else mnist(folder)


def mnist(folder: Path | None = None, *, test: bool = False) -> Dataset:
    """MNIST: 60,000 training images, or 10,000 test images. Raises :class:`ConfigError` when it cannot be
    had.
    """
    folder = folder or _mnist_folder()
    if folder is None:
        raise ConfigError(
            "MNIST is not here and cannot be downloaded",
            f"Put its four .gz files, from {MNIST_MIRRORS[0]}, into $SCAR_DATA/mnist, or use digits",
        )
    prefix = "t10k" if test else "train"
    images, labels = (
        _verify_file(folder / f"{prefix}-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1")
    )
    pixels = read_idx(images)
    return Dataset(
        "mnist", f"MNIST from {folder}", pixels.reshape(len(pixels), -1), read_idx(labels).astype(np.int64)
    )


def digits() -> Dataset:
    """The 1,797 handwritten digits of the UCI repository's test set, in MNIST's format: 44,925 images.

    They come with this package, so they need no network. Each 8x8 image is enlarged to 28x28 and moved by up
    to two pixels in both directions, so that an iteration takes about as long as on MNIST.
    """
    with (
        (resources.files("scar") / "data" / "digits.csv.gz").open("rb") as packed,
        gzip.open(packed, "rt") as file,
    ):
        table = np.loadtxt(file, delimiter=",")  # 64 pixels from 0 to 16, and the label
    pixels = (table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    margin = (SIDE - 3 * pixels.shape[1]) // 2
    large = np.pad(
        np.kron(pixels, np.ones((1, 3, 3), dtype=np.uint8)), ((0, 0), (margin, margin), (margin, margin))
    )
    moves = range(-margin, margin + 1)
    moved = np.concatenate([np.roll(large, (down, right), axis=(1, 2)) for down in moves for right in moves])
    labels = np.tile(table[:, -1].astype(np.int64), len(moves) ** 2)
    # Mixed once, or a worker's part would hold only some of the moves.
    order = np.random.default_rng(0).permutation(len(labels))
    origin = "UCI's handwritten digits, enlarged to 28x28 and moved by up to 2 pixels"
    return Dataset("digits", origin, moved.reshape(len(moved), -1)[order], labels[order])


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A gzipped IDX file of unsigned bytes. Raises :class:`ConfigError` when it is anything else."""
    try:
        with gzip.open(path) as file:
            header = file.read(4)
            if len(header) < 4 or header[:3] != b"\0\0\x08" or not 1 <= header[3] <= 3:
                raise ConfigError(f"{path} is not an IDX file of bytes")
            shape = tuple(int(n) for n in np.frombuffer(file.read(4 * header[3]), dtype=">u4"))
            size = int(np.prod(shape, dtype=object))
            raw = file.read(min(size, MAX_PIXELS) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if len(shape) != header[3] or len(raw) != size:
        raise ConfigError(f"{path} does not hold the {shape} bytes that its header announces")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _verify_file(path: Path) -> Path:
    """The same path. Raises :class:`ConfigError` unless it is the official file."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if found != MNIST_FILES[path.name]:
        raise ConfigError(
            f"{path} is not the official MNIST file: its SHA-256 is {found}", "Delete it, or copy it again"
        )
    return path


def _mnist_folder() -> Path | None:
    """Where all files of MNIST lie, after a download when that is needed; None when they cannot be had."""
    if data := os.environ.get("SCAR_DATA"):
        folder = Path(data) / "mnist"
        if all((folder / name).is_file() for name in MNIST_FILES):
            return folder
    return _download_file()


def _download_file() -> Path | None:
    """The cache folder with all files; None without pooch or a network."""
    try:
        import pooch
    except ImportError:
        return None
    pooch.get_logger().setLevel("WARNING")
    cache = Path(pooch.os_cache("scar")) / "mnist"
    came: list[bool] = []
    # A dead name server can hold a look-up for long, so the smallest file comes by a thread that may be left
    # behind.
    first = threading.Thread(
        target=lambda: came.append(_fetch_file(cache, SMALLEST)), name="mnist", daemon=True
    )
    first.start()
    first.join(SMALLEST_SECONDS)
    return cache if came == [True] and all(_fetch_file(cache, name) for name in MNIST_FILES) else None


def _fetch_file(cache: Path, name: str) -> bool:
    """True when the file is in the cache, checked, from there or from a mirror."""
    import pooch

    downloader = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
    for mirror in MNIST_MIRRORS:
        try:
            pooch.retrieve(
                mirror + name, f"sha256:{MNIST_FILES[name]}", fname=name, path=cache, downloader=downloader
            )
            return True
        except (OSError, ValueError):  # no connection; a wrong checksum
            continue
    return False
