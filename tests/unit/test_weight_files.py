"""Jobs that begin with the tensors of a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import scar
from scar.errors import ConfigError
from scar.wire.codec import job_arrays

W = np.arange(6, dtype=np.float32).reshape(3, 2) / 7


def job() -> scar.Job:
    tables = [
        scar.Table("w", (3, 2), init=scar.normal()),
        scar.Table("b", 2, dtype="float64"),
        scar.Table("n", 1, dtype="int64"),
    ]
    return scar.Job("pretrained", tables)


def tensors(**others: np.ndarray) -> dict[str, np.ndarray]:
    return {"w": W, "b": np.ones(2, np.float64), "n": np.array(7), **others}


def write(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    save_file(arrays, folder / "model.safetensors")
    return folder / "model.safetensors"


def test_tables_begin_with_the_tensors_of_their_names(tmp_path: Path) -> None:
    declared = job()
    begun = scar.init_from(declared, write(tmp_path, tensors()))
    assert job_arrays(begun) == {"w": W.tobytes(), "b": np.ones(2).tobytes(), "n": np.array([7]).tobytes()}
    assert [table.shape for table in begun.tables] == [(3, 2), (2,), (1,)]
    assert [table.init.kind for table in declared.tables] == ["normal", "zeros", "zeros"]


def test_values_grow_without_loss(tmp_path: Path) -> None:
    half = W.astype(np.float16)
    begun = scar.init_from(job(), write(tmp_path, tensors(w=half, b=np.ones(2, np.float32))))
    assert job_arrays(begun)["w"] == half.astype(np.float32).tobytes()
    assert job_arrays(begun)["b"] == np.ones(2).tobytes()


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"extra": W}, "model.safetensors has extra, which the model has not"),
        ({"w": W.T.copy()}, r"w has shape \(2, 3\) in .* and \(3, 2\) in"),
        ({"w": W.astype(np.float64)}, "w is float64 in .* and float32 in the job"),
        ({"n": np.array(7.0)}, "n is float64 in .* and int64 in the job"),
        ({"w": W.astype(np.uint8)}, "w is U8 in .* and float32 in the job"),
    ],
)
def test_what_does_not_fit_is_named(others: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write(tmp_path, tensors(**others))
    with pytest.raises(ConfigError, match=words):
        scar.init_from(job(), file)


def test_what_only_one_side_has_is_left_alone_if_that_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path, {"w": W, "head": W})
    with pytest.raises(ConfigError, match="has no b, n and has head, which the model has not"):
        scar.init_from(job(), file)
    begun = scar.init_from(job(), file, strict=False)
    assert job_arrays(begun).keys() == {"w"}
    with pytest.raises(ConfigError, match="has no b, n, w"):
        scar.init_from(job(), write(tmp_path, {"head": W}), strict=False)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path, tensors()).read_bytes()
    file = tmp_path / "other.safetensors"
    for raw in (b"", b"x" * 100, whole[:-1], whole + b"x", b"\xff" * 8 + whole[8:]):
        file.write_bytes(raw)
        with pytest.raises(ConfigError, match=r"other\.safetensors cannot be read as safetensors"):
            scar.init_from(job(), file)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read as safetensors"):
            scar.init_from(job(), missing)
