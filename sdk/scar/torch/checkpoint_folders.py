"""Models to and from folders of ``torch.distributed.checkpoint`` (DCP), which FSDP and torchtitan write."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint import filesystem, metadata

from scar.errors import ConfigError
from scar.reader import Reader
from scar.torch.keyed_embeddings import row_entries
from scar.torch.model_tables import load
from scar.training import Worker

INDEX = ".metadata"
_RECORDS = (
    metadata.BytesStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    metadata.TensorProperties,
    metadata.TensorStorageMetadata,
    metadata._MEM_FORMAT_ENCODING,
    filesystem._StorageInfo,
    torch.Size,
    torch.serialization._get_layout,
)
_INDEX_NAMES = {(one.__module__, one.__name__): one for one in _RECORDS} | {
    ("pathlib", kind): PurePosixPath for kind in ("Path", "PosixPath", "WindowsPath")
}


def export_checkpoint(
    model: torch.nn.Module, source: Worker | Reader, folder: str | Path, key: str = "model"
) -> None:
    """Write the model of a job as a checkpoint of DCP; ``model`` has its values afterwards, as by
    :func:`scar.torch.load`.

    ``key``: what ``{key: model.state_dict()}`` is saved under, as DCP's users do; empty: nothing. The state
    of the optimizer is the shards' and is not in it. Raises as :func:`scar.torch.load` does.
    """
    load(model, source)
    with _one_process():
        checkpoint.save(_wrap(model.state_dict(), key), checkpoint_id=Path(folder), no_dist=True)


def import_checkpoint(model: torch.nn.Module, folder: str | Path, key: str = "model") -> None:
    """Read a checkpoint of DCP into ``model``: before :func:`scar.torch.tables`, a job starts from it.

    However many ranks wrote it, and in whatever shards. Rows of keyed embeddings come with it; what else is
    in it, as an optimizer's state, is left out. Raises :class:`ConfigError` when there is no checkpoint, or
    one of another model.
    """
    if not (Path(folder) / INDEX).is_file():
        raise ConfigError(f"{folder} has no checkpoint of torch.distributed.checkpoint: no file {INDEX}")
    reader = _FolderReader(folder)
    values = model.state_dict()
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    rows = row_entries(model)
    for name in rows:
        tensors[name] = _like_saved(tensors[name], reader, _saved_name(name, key))
    _ensure_same_model(tensors, reader, key)
    with _one_process():
        checkpoint.load(_wrap(tensors, key), storage_reader=reader, no_dist=True)
    try:
        model.load_state_dict(values | tensors)
    except RuntimeError as error:  # rows that are none; all else was looked at before
        raise ConfigError(f"{reader.path}: {error}") from error


def _like_saved(tensor: torch.Tensor, reader: _FolderReader, name: str) -> torch.Tensor:
    """For rows of keys, as many as the folder has."""
    size = getattr(reader.read_metadata().state_dict_metadata.get(name), "size", None)
    same_axes = size is not None and len(size) == tensor.dim() and size[1:] == tensor.shape[1:]
    return tensor.new_empty(size) if same_axes else tensor


def _saved_name(name: str, key: str) -> str:
    return f"{key}.{name}" if key else name


def _wrap(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {key: state} if key else state


@contextmanager
def _one_process() -> Iterator[None]:
    """DCP warns that no ranks take part, which is what is meant here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _ensure_same_model(tensors: dict[str, torch.Tensor], reader: _FolderReader, key: str) -> None:
    found = reader.read_metadata().state_dict_metadata
    for name, tensor in tensors.items():
        saved = _saved_name(name, key)
        if saved not in found:
            some = ", ".join(sorted(found)[:3])
            raise ConfigError(
                f"{reader.path} has no {saved}; it has {some}",
                "Build the model as it was saved, and give key= what its names begin with",
            )
        shape = getattr(found[saved], "size", None)
        if shape != tensor.shape:
            raise ConfigError(
                f"{saved} is {tuple(shape or ())} in {reader.path}, and {tuple(tensor.shape)} in this model",
                "Build the model as it was saved",
            )


class _FolderReader(checkpoint.FileSystemReader):  # type: ignore[misc]
    """DCP's own, but for its index, a pickle: here it can name nothing but DCP's records."""

    def read_metadata(self, *_: object, **__: object) -> Any:
        with (self.path / INDEX).open("rb") as file:
            try:
                index = _IndexReader(file).load()
            except (
                pickle.UnpicklingError,
                ArithmeticError,
                AttributeError,
                EOFError,
                LookupError,
                TypeError,
                ValueError,
            ) as error:
                raise ConfigError(f"{file.name} is damaged, or no index of DCP: {error}") from error
        if not isinstance(index, metadata.Metadata):
            raise ConfigError(f"{file.name} is no index of DCP", "Give the folder that DCP has written")
        index.storage_meta = index.storage_meta or metadata.StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index


class _IndexReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _INDEX_NAMES:
            return _INDEX_NAMES[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
