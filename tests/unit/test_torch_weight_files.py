"""Models of torch from safetensors files, of safetensors' own making and of `scar checkpoints export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scar.errors import ConfigError
from tests.unit.test_torch_models import build


def tied(seed: int) -> Any:
    """A shared weight, a scalar buffer, and a buffer of a dtype that no table has."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    model = nn.ModuleDict({"tokens": nn.Embedding(5, 3), "head": nn.Linear(3, 5), "norm": nn.BatchNorm1d(3)})
    model["head"].weight = model["tokens"].weight
    model.register_buffer("mask", torch.full((2,), bool(seed)))
    return model


def test_a_model_of_safetensors_own_comes_back_though_a_weight_is_shared(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_model

    import scar.torch

    saved, fresh = tied(1), tied(0)
    saved["norm"].num_batches_tracked += 3
    save_model(saved, tmp_path / "model.safetensors")
    scar.torch.import_safetensors(fresh, tmp_path / "model.safetensors")
    for name, value in saved.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name
    assert fresh["head"].weight is fresh["tokens"].weight


def test_tables_that_were_exported_make_the_model_again(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    import scar.torch

    made = {table.name: table.init.array for table in scar.torch.tables(tied(1), scar.adam(0.1))}
    assert made["norm.num_batches_tracked"].shape == (1,)
    save_file(made, tmp_path / "model.safetensors")
    fresh = tied(0)
    scar.torch.import_safetensors(fresh, tmp_path / "model.safetensors")
    for table in scar.torch.tables(fresh, scar.adam(0.1)):
        np.testing.assert_array_equal(table.init.array, made[table.name])


def test_short_values_are_the_models_dtype(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    import scar.torch

    short = {name: value.bfloat16() for name, value in build(1)[0].state_dict().items()}
    save_file(short, tmp_path / "model.safetensors")
    model = build(2)[0]
    scar.torch.import_safetensors(model, tmp_path / "model.safetensors")
    assert torch.equal(model.weight, short["weight"].double())


def test_another_model_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from torch import nn

    import scar.torch

    file = tmp_path / "model.safetensors"
    model = build(2)[0]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for tensors, words in (
        ({"bias": torch.ones(8)}, "has no weight"),
        ({**before, "lora": torch.ones(2)}, "has lora, which the model has not"),
        ({**before, "weight": torch.ones(6, 8)}, r"weight has shape \(6, 8\) in .* and \(8, 6\) in"),
    ):
        save_file(tensors, file)
        with pytest.raises(ConfigError, match=words):
            scar.torch.import_safetensors(model, file)
    save_file({"num_batches_tracked": torch.tensor(0.5)}, file)
    with pytest.raises(ConfigError, match=r"num_batches_tracked is torch\.float32 in .* and torch\.int64"):
        scar.torch.import_safetensors(nn.BatchNorm1d(3), file, strict=False)
    save_file({"weight": torch.ones(8, 6), "lora": torch.ones(2)}, file)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    scar.torch.import_safetensors(model, file, strict=False)
    assert torch.equal(model.weight, torch.ones(8, 6).double())
    assert torch.equal(model.bias, before["bias"])
