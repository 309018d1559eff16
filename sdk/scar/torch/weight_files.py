"""Safetensors files into models: a job of the model starts from them."""

from __future__ import annotations

from pathlib import Path

import torch

from scar.errors import ConfigError
from scar.torch.model_tables import saved_tensors
from scar.weight_files import ensure_names_match, open_tensors


def import_safetensors(model: torch.nn.Module, file: str | Path, *, strict: bool = True) -> None:
    """Read a safetensors file into ``model``: before :func:`scar.torch.tables`, a job starts from it.

    By names of the ``state_dict``, as ``safetensors.torch.save_model`` and `scar checkpoints export` write
    them; of a shared tensor by any of its names. Values become the model's dtype, as by ``load_state_dict``.
    ``strict=False``: tensors that only the file or only the model has are left alone. Raises
    :class:`ConfigError` that names what does not fit; the model is then as it was.
    """
    with open_tensors(file, "pt") as tensors:
        there = set(tensors.keys())
        chosen, other_names = _choose_names(model, there)
        ensure_names_match(file, there - other_names, set(chosen), strict)
        values = {name: tensors.get_tensor(name) for name in chosen if name in there}
    for name, value in values.items():
        _ensure_fits(file, name, value, chosen[name])
    with torch.no_grad():
        for name, value in values.items():
            chosen[name].copy_(value.reshape(chosen[name].shape))


def _choose_names(model: torch.nn.Module, there: set[str]) -> tuple[dict[str, torch.Tensor], set[str]]:
    """The model's tensors, each by a name that is ``there``, if one is; and what else they are called there.

    Without those that are not there and that no table has.
    """
    same: dict[int, list[str]] = {}
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            same.setdefault(id(tensor), []).append(name)
            tensors[name] = tensor
    needed = {id(tensor) for tensor in saved_tensors(model).values()}
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
