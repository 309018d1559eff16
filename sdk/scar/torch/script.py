"""A plain training script of PyTorch becomes one of SCAR."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scar.scripts import initialize as initialize_worker
from scar.tables import Job
from scar.torch.embeddings import Embedding, EmbeddingBag
from scar.torch.model_tables import tables
from scar.torch.worker_optimizer import Optimizer
from scar.training import Worker

_BY_ROWS = {nn.Embedding: Embedding, nn.EmbeddingBag: EmbeddingBag}


def initialize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    *,
    name: str = "",
    push_dtype: torch.dtype | None = None,
    pull_dtype: torch.dtype | None = None,
    **options: Any,
) -> tuple[Worker, Optimizer]:
    """Train this model from here on as a worker: :func:`scar.initialize` of its tables, in a script.

    The optimizer that is returned takes the place of the given one, which the shards now carry out, with its
    ``scheduler`` by clock. ``name``: of the job, by default the file's. ``options``: of :class:`scar.Job`
    (``shards``, ``workers``, ``checkpoint``, ...). ``push_dtype``, ``pull_dtype``: see :class:`Optimizer`.
    Embeddings with ``sparse=True`` become :class:`Embedding` and :class:`EmbeddingBag`, of which workers pull
    and push the rows of their batches. Raises :class:`scar.errors.ConfigError` for what shards cannot do.
    """
    for module in model.modules():
        if type(module) in _BY_ROWS and module.sparse:
            module.__class__ = _BY_ROWS[type(module)]
    # The given optimizer takes no step, so `scheduler.step()`, which may stay, seems to come before it.
    warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
    file = re.sub("[^a-z0-9]+", "-", Path(sys.argv[0]).stem.lower()).strip("-")
    job = Job(name or file, tables(model, optimizer, scheduler), **options)
    worker = initialize_worker(job)
    return worker, Optimizer(worker, model, push_dtype=push_dtype, pull_dtype=pull_dtype)
