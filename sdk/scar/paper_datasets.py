"""The published data sets of the paper's experiments, beside MNIST (:mod:`scar.datasets`), out of the folder
``SCAR_DATA``.

    labelled("covtype")       examples with a class each: covtype, or any folder with the four files of MNIST
    ratings("movielens")      movielens, jester
    corpus("20newsgroups")    20newsgroups, reuters

Nothing is downloaded here: docs/datasets.md says where they come from. A set of the same format in the same
place is as good: names of files are fixed, contents are not.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scar import datasets
from scar.errors import ConfigError
from scar.models.lda import Corpus
from scar.models.mf import Ratings

WHENCE = (
    "In a checkout `python -m scripts.get_datasets FOLDER` fetches most of them, docs/datasets.md has the"
    " rest"
)
COVTYPE_MEASURED = 10  # the other 44 columns are indicators
JESTER_UNRATED = 99.0


@dataclass(frozen=True, eq=False)
class Labelled:
    """``x`` float32 (n, features), ``y`` int64 (n,) from 0."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


def labelled(name: str) -> Labelled:
    """Training examples. Raises :class:`ConfigError` when they are not there."""
    if name == "covtype":
        return _read_covtype()
    if name == "digits":
        digits = datasets.digits()
        return Labelled(_read_pixels(digits.images), digits.labels)
    images, labels = (
        datasets.read_idx(_find_file(name, f"train-{part}-ubyte.gz"))
        for part in ("images-idx3", "labels-idx1")
    )
    return Labelled(_read_pixels(images.reshape(len(images), -1)), labels.astype(np.int64))


def ratings(name: str) -> Ratings:
    """Known ratings; users and items without any are left out. Raises :class:`ConfigError`."""
    if name == "movielens":
        return _read_movielens()
    if name == "jester":
        return _read_jester()
    raise ConfigError(f"there are no ratings called {name!r}", "Use movielens or jester")


def corpus(name: str) -> Corpus:
    """Bags of words; empty documents are left out. Raises :class:`ConfigError`."""
    if name == "20newsgroups":
        return _read_newsgroups()
    if name == "reuters":
        return _read_reuters()
    raise ConfigError(f"there is no corpus called {name!r}", "Use 20newsgroups or reuters")


def newsgroup_words() -> list[str]:
    """The word of each number in ``corpus("20newsgroups")``. Raises :class:`ConfigError`."""
    with np.load(_find_file("20newsgroups", "20news-train-bow.npz"), allow_pickle=False) as bag:
        return str(bag["vocab"].tobytes(), "utf-8").split("\n")


def _read_pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return images * np.float32(1 / 255)


def _read_covtype() -> Labelled:
    """Forest cover types: measured columns standardised, indicators as they are, and a bias."""
    with gzip.open(_find_file("covtype", "covtype.data.gz")) as file:
        table = _read_integers(file.read()).reshape(-1, 55)
    x = table[:, :-1].astype(np.float32)
    y = table[:, -1].astype(np.int64) - 1
    measured = x[:, :COVTYPE_MEASURED]
    measured -= measured.mean(axis=0, dtype=np.float64).astype(np.float32)
    measured /= measured.std(axis=0, dtype=np.float64).astype(np.float32)
    return Labelled(np.concatenate((x, np.ones((len(x), 1), np.float32)), axis=1), y)


def _read_integers(text: bytes) -> NDArray[np.int32]:
    """Whole numbers of up to nine digits between commas and line ends: numpy's readers need ten times as
    long.
    """
    raw = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero((raw == ord(",")) | (raw == ord("\n")))
    numbers = np.zeros(len(ends), dtype=np.int32)
    lengths = np.diff(ends, prepend=-1) - 1
    for place in range(int(lengths.max(initial=0))):
        there = np.flatnonzero(lengths > place)
        character = raw[ends[there] - 1 - place]
        negative = character == ord("-")
        numbers[there[~negative]] += (character[~negative] - ord("0")).astype(np.int32) * 10**place
        numbers[there[negative]] *= -1
    return numbers


def _read_movielens() -> Ratings:
    raw = _read_member("movielens", "ml-latest-small-2016.zip", "ratings.csv")
    user, item, value = np.loadtxt(io.BytesIO(raw), delimiter=",", skiprows=1, usecols=(0, 1, 2)).T
    users, rows = np.unique(user, return_inverse=True)
    items, columns = np.unique(item, return_inverse=True)
    shape = len(users), len(items)
    return Ratings(rows.astype(np.int32), columns.astype(np.int32), value.astype(np.float32), shape)


def _read_jester() -> Ratings:
    """Ratings moved from [-10, 10] to [0, 10] (seed 000, appendix C)."""
    raw = _read_member("jester", "jester-data-1.csv.zip", "jester-data-1.csv")
    table = np.loadtxt(io.BytesIO(raw), delimiter=",", dtype=np.float32)[:, 1:]
    table = table[(table != JESTER_UNRATED).any(axis=1)]
    rows, columns = np.nonzero(table != JESTER_UNRATED)
    return Ratings(
        rows.astype(np.int32), columns.astype(np.int32), (table[rows, columns] + 10) / 2, table.shape
    )


def _read_newsgroups() -> Corpus:
    with np.load(_find_file("20newsgroups", "20news-train-bow.npz"), allow_pickle=False) as bag:
        counts = bag["counts"].astype(np.int64)
        words = np.repeat(bag["indices"].astype(np.int32), counts)
        ends = np.append(0, np.cumsum(counts))[bag["indptr"]]
        return _make_corpus(words, np.diff(ends), bag["vocab"].tobytes().count(b"\n") + 1)


def _read_reuters() -> Corpus:
    lines = _read_member("reuters", "reuters-lda395.zip", "reuters.ldac").decode().splitlines()
    pairs = [
        np.array([entry.split(":") for entry in line.split()[1:]], dtype=np.int64).reshape(-1, 2)
        for line in lines
    ]
    words = np.concatenate([np.repeat(pair[:, 0], pair[:, 1]) for pair in pairs]).astype(np.int32)
    lengths = np.array([pair[:, 1].sum() for pair in pairs])
    return _make_corpus(words, lengths, int(words.max()) + 1)


def _make_corpus(words: NDArray[np.int32], lengths: NDArray[np.int64], vocabulary: int) -> Corpus:
    return Corpus(words, np.append(0, np.cumsum(lengths[lengths > 0])).astype(np.int64), vocabulary)


def _read_member(folder: str, archive: str, name: str) -> bytes:
    path = _find_file(folder, archive)
    try:
        with zipfile.ZipFile(path) as zipped:
            found = next(entry for entry in zipped.namelist() if entry.rsplit("/", 1)[-1] == name)
            return zipped.read(found)
    except (StopIteration, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} holds no {name}") from error


def _find_file(folder: str, name: str) -> Path:
    root = os.environ.get("SCAR_DATA")
    if not root:
        raise ConfigError(
            f"the data set {folder}/{name} is not here", f"Set SCAR_DATA to the folder that has it. {WHENCE}"
        )
    path = Path(root) / folder / name
    if not path.is_file():
        raise ConfigError(f"{path} does not exist", f"Put the data set there. {WHENCE}")
    return path
