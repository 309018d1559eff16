"""Safetensors files into models: a job of the model starts from them."""

from __future__ import annotations

from pathlib import Path

import torch

from scar.errors import ConfigError
from scar.torch.keyed_embeddings import row_declarations, row_entries
from scar.torch.model_tables import saved_tensors
from scar.weight_files import ensure_names_match, open_tensors


def import_safetensors(model: torch.nn.Module, file: str | Path, *, strict: bool = True) -> None:
    """Read a safetensors file into ``model``: before :func:`scar.torch.tables`, a job starts from it.

    By names of the ``state_dict``, as ``safetensors.torch.save_model`` and `scar checkpoints export` write
    them; of a shared tensor by any of its names. Values become the model's dtype, as by ``load_state_dict``.
    ``strict=False``: tensors that only the file or only the model has are left alone. Rows of keyed
    embeddings come with it. Raises :class:`ConfigError` that names what does not fit; the model is then as it
    was, but perhaps for such rows.
    """
    with open_tensors(file, "pt") as tensors:
        there = set(tensors.keys())
        chosen, other_names = _choose_names(model, there)
        rows = row_entries(model).keys()
        ensure_names_match(file, there - other_names, chosen.keys() | rows, strict)
        values = {name: tensors.get_tensor(name) for name in chosen.keys() & there}
        given = {name: tensors.get_tensor(name) for name in rows & there}
    for name, value in values.items():
        _ensure_fits(file, name, value, chosen[name])
    try:
        model.load_state_dict(given, strict=False)
    except RuntimeError as error:
        raise ConfigError(f"{file}: {error}", "Build the model as it was saved") from error
    with torch.no_grad():
        for name, value in values.items():
            chosen[name].copy_(value.reshape(chosen[name].shape))


def _choose_names(model: torch.nn.Module, there: set[str]) -> tuple[dict[str, torch.Tensor], set[str]]:
    """The model's tensors, each by a name that is ``there``, if one is; and what else they are called there.

    Without those that are not there and that no table has, and without rows of keys.
    """
    same: dict[int, list[str]] = {}
    tensors = {}
    rows = row_entries(model)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor) and name not in rows:
            same.setdefault(id(tensor), []).append(name)
            tensors[name] = tensor
    saved = saved_tensors(model)
    keyed = row_declarations(model, saved)  # of these the rows count, and their weight is of no use
    needed = {id(tensor) for name, tensor in saved.items() if name not in keyed}
    best = [max(names, key=lambda name: name in there) for names in same.values()]
    chosen = {name: tensors[name] for name in best if name in there or id(tensors[name]) in needed}
    return chosen, tensors.keys() - chosen.keys()


def _ensure_fits(file: str | Path, name: str, value: torch.Tensor, tensor: torch.Tensor) -> None:
    if (tuple(value.shape) or (1,)) != (tuple(tensor.shape) or (1,)):
        raise ConfigError(
            f"{name} has shape {tuple(value.shape)} in {file}, and {tuple(tensor.shape)} in this model",
            "Build the model as it was saved",
        )
    if not torch.can_cast(value.dtype, tensor.dtype):
        raise ConfigError(
            f"{name} is {value.dtype} in {file}, and {tensor.dtype} in this model",
            "Build the model as it was saved",
        )
