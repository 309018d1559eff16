"""The tables of a PyTorch model, one for each tensor of its ``state_dict`` by that name, and the way back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from scar.blocks import Array
from scar.errors import ConfigError
from scar.initial_values import given
from scar.reader import Reader
from scar.tables import Rule, Table, assign, rows
from scar.torch.embeddings import row_modules
from scar.torch.keyed_embeddings import row_declarations, row_entries
from scar.torch.optimizer_rules import rules_by_parameter
from scar.training import Worker

MOST_ROW_BLOCKS = 1 << 20  # of a table of which workers pull rows
BLOCK_ELEMENTS = 1024  # rows are grouped to blocks of about this size: 4 KiB of float32
_DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int32: "int32",
    torch.int64: "int64",
}


def tables(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Rule,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> list[Table]:
    """For :class:`scar.Job`: the model's tensors with the values that they have now.

    ``optimizer``: what the shards do, by parameter group; it takes no step itself. A :class:`Rule` is for all
    parameters. Those in no group or without ``requires_grad``, and buffers, have the rule ``assign``.
    ``scheduler``: of this optimizer's learning rates, by clock. Raises :class:`ConfigError` for what shards
    cannot do.
    """
    if scheduler is not None and scheduler.optimizer is not optimizer:
        raise ConfigError(
            "the scheduler is of another optimizer", "A scar.Rule has its own: schedule=scar.schedules..."
        )
    rules = {} if isinstance(optimizer, Rule) else rules_by_parameter(optimizer, scheduler)
    made = []
    tensors = saved_tensors(model)
    by_row = row_modules(model, tensors)
    keyed = row_declarations(model, tensors)
    for name, tensor in tensors.items():
        rule = optimizer if isinstance(optimizer, Rule) else rules.get(id(tensor))
        rule = rule if rule and tensor.requires_grad else assign()
        if name in keyed:
            made.append(keyed[name].declare_table(name, tensor, _DTYPES[tensor.dtype], rule))
            continue
        elements = _row_group(tensor, rule) * tensor[0].numel() if name in by_row else BLOCK_ELEMENTS
        made.append(_table(name, tensor, rule, elements))
    if all(table.rule == assign() for table in made):
        raise ConfigError(
            "nothing of this model would be trained", "Make the optimizer with parameters of this model"
        )
    return made


def _row_group(tensor: torch.Tensor, rule: Rule) -> int:
    """Rows to a block where workers pull and push rows: few, as what changed is saved by blocks."""
    return 1 if rule.counts_steps else -(-len(tensor) // MOST_ROW_BLOCKS)


def _table(name: str, tensor: torch.Tensor, rule: Rule, block_elements: int) -> Table:
    shape = tuple(tensor.shape) or (1,)
    group = max(1, block_elements * shape[0] // tensor.numel())
    values = tensor.detach().cpu().numpy().reshape(shape).copy()
    return Table(name, shape, dtype=_DTYPES[tensor.dtype], rule=rule, init=given(values), blocks=rows(group))


def saved_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By name in the ``state_dict``, shared ones once, by their first name.

    Without empty ones, without rows of keys, and without what is not trained and of a dtype that no table
    has. Raises :class:`ConfigError` for a trained parameter of such a dtype.
    """
    found: dict[str, torch.Tensor] = {}
    seen = set()
    rows = row_entries(model)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor) or not tensor.numel() or id(tensor) in seen or name in rows:
            continue
        seen.add(id(tensor))
        if tensor.dtype in _DTYPES:
            found[name] = tensor
        elif tensor.requires_grad:
            raise ConfigError(
                f"parameter {name} is of {tensor.dtype}, which no table has",
                "Train in float32: model.float(); torch.autocast computes in less",
            )
    return found


def load(model: torch.nn.Module, source: Worker | Reader) -> None:
    """Copy the model of a job (:func:`scar.connect`, or a worker's) into this one.

    Afterwards ``model.state_dict()`` is what torch saves. Raises :class:`scar.errors.UnknownTable` and
    :class:`ConfigError` when the job trains another model.
    """
    tensors = saved_tensors(model)
    ensure_declared(tensors, source)
    keyed = row_declarations(model, tensors)
    copy_values(tensors, [name for name in tensors if name not in keyed], source)
    for name, declared in keyed.items():
        declared.known = source.pull(name)  # type: ignore[assignment]


def ensure_declared(tensors: dict[str, torch.Tensor], source: Worker | Reader) -> None:
    """Raises as :func:`load` does."""
    for name, tensor in tensors.items():
        table = source.job.table(name)
        shape = table.shape if table.keys is None else (1, *table.shape[1:])
        if shape != (tuple(tensor.shape) or (1,)):
            raise ConfigError(
                f"{name} has shape {tuple(tensor.shape)} in this model, and {shape} in job {source.job.name}",
                "Build the model as the job's file does",
            )


def copy_values(
    tensors: dict[str, torch.Tensor], names: Iterable[str], source: Worker | Reader
) -> dict[str, Array]:
    """Pull these tables into the tensors of these names, in place; returns what was pulled."""
    return take_values(tensors, source.pull(list(names)))


def take_values(tensors: dict[str, torch.Tensor], values: dict[str, Array]) -> dict[str, Array]:
    """The same with values that are there."""
    with torch.no_grad():
        for name, array in values.items():
            tensors[name].copy_(torch.tensor(array).reshape(tensors[name].shape))
    torch.clear_autocast_cache()  # within torch.autocast it has copies of the former values
    return values
