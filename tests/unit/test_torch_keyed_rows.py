"""Rows of keyed embeddings in a ``state_dict``, in folders of DCP and in safetensors files, both ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError

KEYS = np.array([7, -(2**63), 2**62, -5])
WIDTH = 3


def build(seed: int = 0) -> Any:
    import torch
    from torch import nn

    import scar.torch

    torch.manual_seed(seed)
    init = scar.constant(0.5)
    return nn.ModuleDict(
        {
            "item": scar.torch.KeyedEmbedding(500, WIDTH, init=init),
            "words": scar.torch.KeyedEmbeddingBag(500, WIDTH, mode="sum", init=init),
            "out": nn.Linear(WIDTH, 2),
        }
    )


def trained() -> Any:
    """A model that knows rows of one of its two modules."""
    model = build(1)
    values = np.arange(len(KEYS) * WIDTH, dtype=np.float32).reshape(-1, WIDTH)
    order = np.argsort(KEYS)
    model["item"].row_declaration.known = scar.KeyedValues(KEYS[order], values[order])
    return model


class Source:
    """What :func:`scar.torch.load` reads from: the values with which a job of the model begins."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.job = scar.Job("keyed", scar.torch.tables(model, scar.adagrad(0.1)))

    def pull(self, names: Any) -> Any:
        if isinstance(names, str):
            module = self._model[names.partition(".")[0]]
            return module.row_declaration.known_rows(module.weight)
        return {name: self.job.table(name).init.array for name in names}


def by_state(saved: Any, fresh: Any, folder: Path) -> None:
    import torch

    torch.save(saved.state_dict(), folder / "model.pt")
    fresh.load_state_dict(torch.load(folder / "model.pt"))


def by_folder(saved: Any, fresh: Any, folder: Path) -> None:
    source: Any = Source(saved)
    scar.torch.export_checkpoint(build(3), source, folder / "dcp")
    scar.torch.import_checkpoint(fresh, folder / "dcp")


def by_safetensors(saved: Any, fresh: Any, folder: Path) -> None:
    from safetensors.torch import save_model

    save_model(saved, folder / "model.safetensors")
    scar.torch.import_safetensors(fresh, folder / "model.safetensors")


def by_export(saved: Any, fresh: Any, folder: Path) -> None:
    """As `scar checkpoints export` names what tables hold."""
    from safetensors.numpy import save_file

    from scar.snapshots import name_arrays

    source = Source(saved)
    tables = {table.name: table for table in source.job.tables}
    arrays = {
        name: source.pull(name) if table.keys is not None else source.pull([name])[name]
        for name, table in tables.items()
    }
    save_file(name_arrays(arrays), folder / "model.safetensors")
    scar.torch.import_safetensors(fresh, folder / "model.safetensors")


@pytest.mark.parametrize("way", [by_state, by_folder, by_safetensors, by_export])
def test_rows_come_back_and_a_job_begins_with_them(
    way: Callable[[Any, Any, Path], None], tmp_path: Path
) -> None:
    import torch

    import scar.torch

    saved, fresh = trained(), build(2)
    way(saved, fresh, tmp_path)
    ids = torch.tensor([*KEYS.tolist(), 99])
    assert torch.equal(fresh["item"](ids), saved["item"](ids))
    assert torch.equal(fresh["out"].weight, saved["out"].weight)
    expected, made = (scar.torch.tables(model, scar.adagrad(0.1)) for model in (saved, fresh))
    assert [table.name for table in made] == [table.name for table in expected]
    assert {table.name for table in made} == {
        "item.weight",
        "words.weight",
        "out.weight",
        "out.bias",
    }
    for table, other in zip(expected, made, strict=True):
        assert table.init == other.init
    rows = {table.name: table.init.rows for table in made}["item.weight"]
    assert rows is not None
    assert len(rows.images) == len(KEYS)


def test_rows_that_are_none_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    import scar.torch

    state = trained().state_dict()
    twice = {"item.weight.keys": torch.tensor([1, 1, 2, 3])}
    wide = {"item.weight.values": torch.ones(4, WIDTH + 1)}
    for other, words in (
        (twice, "a key is there twice"),
        (wide, r"rows of keys are int64\[n\]"),
    ):
        with pytest.raises(RuntimeError, match=words):
            build().load_state_dict({**state, **other})
        save_file({**state, **other}, tmp_path / "model.safetensors")
        with pytest.raises(ConfigError, match=words):
            scar.torch.import_safetensors(build(), tmp_path / "model.safetensors")
    del state["words.weight.keys"]
    with pytest.raises(RuntimeError, match=r"Missing key.*words\.weight\.keys"):
        build().load_state_dict(state)
