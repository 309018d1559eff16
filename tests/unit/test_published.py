"""Data sets in their published formats, made small."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scar import paper_datasets
from scar.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCAR_DATA", str(tmp_path))
    for name in ("covtype", "movielens", "jester", "20newsgroups", "reuters", "letters"):
        (tmp_path / name).mkdir()
    return tmp_path


def zipped(path: Path, name: str, text: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"inner/{name}", text)


def test_covtype_is_standardised_and_has_a_bias(folder: Path) -> None:
    rows = np.random.default_rng(1).integers(-200, 3000, (40, 55))
    rows[:, -1] = np.arange(40) % 7 + 1
    text = "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())
    (folder / "covtype" / "covtype.data.gz").write_bytes(gzip.compress(text.encode()))
    data = paper_datasets.labelled("covtype")
    assert data.x.shape == (40, 55)
    assert data.classes == 7
    np.testing.assert_allclose(data.x[:, :10].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(data.x[:, :10].std(axis=0), 1, rtol=1e-5)
    assert (data.x[:, 10:54] == rows[:, 10:54]).all()
    assert (data.x[:, 54] == 1).all()
    assert (data.y == rows[:, 54] - 1).all()


def test_any_folder_with_files_like_those_of_mnist(folder: Path) -> None:
    images = np.arange(3 * 784, dtype=np.uint32).astype(np.uint8)
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 28, 28)
    (folder / "letters" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([4, 0, 9])
    (folder / "letters" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    data = paper_datasets.labelled("letters")
    assert data.y.tolist() == [4, 0, 9]
    np.testing.assert_allclose(data.x, images.reshape(3, 784) / 255, rtol=1e-6)


def test_ratings_are_numbered_without_gaps(folder: Path) -> None:
    text = "userId,movieId,rating,timestamp\r\n7,50,3.5,1\r\n9,10,1,2\r\n7,10,5,3\r\n"
    zipped(folder / "movielens" / "ml-latest-small-2016.zip", "ratings.csv", text)
    found = paper_datasets.ratings("movielens")
    assert found.shape == (2, 2)
    assert list(zip(found.rows, found.columns, found.values, strict=True)) == [
        (0, 1, 3.5),
        (1, 0, 1.0),
        (0, 0, 5.0),
    ]


def test_jester_is_moved_to_ten_and_users_without_ratings_are_left_out(folder: Path) -> None:
    zipped(
        folder / "jester" / "jester-data-1.csv.zip",
        "jester-data-1.csv",
        "2,-10,99,10\n0,99,99,99\n1,99,0,99\n",
    )
    found = paper_datasets.ratings("jester")
    assert found.shape == (2, 3)
    assert list(zip(found.rows, found.columns, found.values, strict=True)) == [
        (0, 0, 0.0),
        (0, 2, 10.0),
        (1, 1, 5.0),
    ]


def test_bags_of_words_become_tokens_without_empty_documents(folder: Path) -> None:
    bag = {
        "indptr": np.array([0, 2, 2, 3], np.int32),
        "indices": np.array([4, 1, 0], np.uint16),
        "counts": np.array([2, 1, 3], np.uint16),
        "vocab": np.frombuffer(b"a\nb\nc\nd\ne", np.uint8),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **bag)
    (folder / "20newsgroups" / "20news-train-bow.npz").write_bytes(buffer.getvalue())
    found = paper_datasets.corpus("20newsgroups")
    assert (found.documents, found.tokens, found.vocabulary) == (2, 6, 5)
    assert found.words.tolist() == [4, 4, 1, 0, 0, 0]
    assert found.offsets.tolist() == [0, 3, 6]


def test_reuters(folder: Path) -> None:
    zipped(folder / "reuters" / "reuters-lda395.zip", "reuters.ldac", "2 0:1 3:2\n1 1:4\n")
    found = paper_datasets.corpus("reuters")
    assert found.words.tolist() == [0, 3, 3, 1, 1, 1, 1]
    assert found.offsets.tolist() == [0, 3, 7]


def test_what_is_not_there_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(folder / "jester" / "jester-data-1.csv.zip", "another.csv", "")
    for load, name in (
        (paper_datasets.labelled, "mnist"),
        (paper_datasets.ratings, "netflix"),
        (paper_datasets.ratings, "jester"),
        (paper_datasets.corpus, "wikipedia"),
        (paper_datasets.corpus, "reuters"),
    ):
        with pytest.raises(ConfigError):
            load(name)
    monkeypatch.delenv("SCAR_DATA")
    with pytest.raises(ConfigError):
        paper_datasets.labelled("covtype")
