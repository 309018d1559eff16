"""Which modules the parent of a training file's workers imports beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_local.preload import TORCH, modules_to_preload
from tests.repo.sources import ROOT


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import torch", TORCH),
        ("import torch.nn as nn", TORCH),
        ("from torch import nn", TORCH),
        ("from scar import torch as scar_torch", TORCH),
        ("import scar.torch", TORCH),
        ("from scar.torch import initialize", TORCH),
        ("def train(worker):\n    import torch\n", TORCH),
        ("import torchvision, scar", ()),
        ("from . import torch", ()),
        ("import numpy\n'import torch'", ()),
        ("import torch torch", ()),
        ("\0", ()),
    ],
)
def test_torch_is_seen(text: str, modules: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    assert modules_to_preload(file) == modules


def test_a_file_that_is_not_there_names_none(tmp_path: Path) -> None:
    assert modules_to_preload(tmp_path / "train.py") == ()


def test_of_the_examples_those_of_torch_do() -> None:
    found = {file.name for file in (ROOT / "examples").glob("*.py") if modules_to_preload(file)}
    assert found == {file.name for file in (ROOT / "examples").glob("torch_*.py")}
