"""What workers push and what they learn, meeting every step or every so many: DiLoCo beside a push for each
step, and torch DDP.

The model, its text and its batches are those of examples/torch_gpt_diloco.py; workers take turns in this
process, and the steps are the shards' own code. Bytes are those of the values that are pushed and pulled; the
loss is of the last 20 steps, at the same number of tokens. DDP runs as real processes, and its bytes are what
their sockets have sent.

    python -m benchmarks.local_steps --steps 400 --workers 4
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

import scar
import scar.torch
from scar._client.push_requests import pack_tables
from scar.bfloat16 import lengthen_values, nearest_short
from scar.blocks import Array
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push

EXAMPLE = "examples/torch_gpt_diloco.py"


class Turns:
    """Tables whose clock closes when all workers have pushed. ``moved``: bytes of values, both ways."""

    def __init__(self, job: scar.Job) -> None:
        self.job = job
        self.clock_number = 0
        self.moved = 0
        self.world_size = job.workers
        self.is_leader = True
        self._pushed: dict[str, Array] = {}
        self._stores = {}
        for table in job.tables:
            ids = np.arange(table.blocks, dtype=np.uint32)
            store = self._stores[table.name] = BlockStore(table, ids)
            store.values[:] = table.initial(0, ids, table.init.array)

    def pull(
        self,
        names: list[str],
        rows: object = None,  # noqa: ARG002 - none of this model
        bfloat16: Collection[str] = (),
    ) -> dict[str, Array]:
        self.moved += sum(self._stores[name].values.nbytes >> (name in bfloat16) for name in names)
        return {name: self._pulled(name, name in bfloat16) for name in names}

    def _pulled(self, name: str, short: bool) -> Array:
        values = self._stores[name].values.reshape(self.job.table(name).shape)
        return lengthen_values(nearest_short(values)) if short else values.copy()

    def push(
        self,
        arrays: dict[str, Array],
        rows: object = None,  # noqa: ARG002 - none of this model
        bfloat16: Collection[str] = (),
    ) -> None:
        packed = pack_tables(self.job, arrays, None, None, bfloat16)
        self.moved += sum(one.values.nbytes >> one.short for one in packed.values())
        for name, one in packed.items():
            values = one.values.reshape(self.job.table(name).shape)
            before = self._pushed.get(name)
            self._pushed[name] = values if before is None else np.add(before, values)

    def close_clock(self) -> None:
        for name, values in self._pushed.items():
            store = self._stores[name]
            rule = store.table.rule.at_clock(self.clock_number)
            apply_push(store, None, values.reshape(-1), lambda: None, rule)
        self._pushed = {}
        self.clock_number += 1


def train(
    example: SimpleNamespace,
    workers: int,
    steps: int,
    every: int,
    dtypes: tuple[torch.dtype | None, torch.dtype | None],
) -> tuple[int, float]:
    """Bytes, and the mean loss of the last 20 steps. ``every`` 0: a push a step, AdamW on the shards.
    ``dtypes``: of pushes and of pulls.
    """
    torch.manual_seed(0)
    first = example.GPT()
    each_step = torch.optim.AdamW(first.parameters(), lr=1e-3)
    nesterov = torch.optim.SGD(first.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    job = scar.Job("turns", scar.torch.tables(first, nesterov if every else each_step), workers=workers)
    turns: Any = Turns(job)
    replicas = [example.GPT() for _ in range(workers)]
    kind = scar.torch.DiLoCo if every else scar.torch.Optimizer
    synced = [kind(turns, model, *dtypes) for model in replicas]
    turns.moved = 0
    inners = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in replicas]
    text = example.read_text()
    losses = []
    for begin in range(0, steps, every or 1):
        for rank, (model, inner) in enumerate(zip(replicas, inners, strict=True)):
            for step in range(begin, begin + (every or 1)):
                losses.append(learn(example, model, text, (rank, step)))
                if every:
                    inner.step()
            synced[rank].step()
        turns.close_clock()
    return turns.moved, float(np.mean(losses[-20 * workers :]))


def learn(example: SimpleNamespace, model: nn.Module, text: torch.Tensor, seed: tuple[int, int]) -> float:
    """The gradient of one batch is in the model; returns its loss."""
    rows = example.draw_rows(text, seed)
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    model.zero_grad()
    loss.backward()
    return float(loss.item())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    from benchmarks.ddp_steps import train_ddp

    example = SimpleNamespace(**run_path(EXAMPLE))
    sys.stdout.write(f"{'meets every':>12} {'pushes':>9} {'pulls':>9} {'MB moved':>10} {'loss':>7}\n")
    short = torch.bfloat16
    for every, dtypes in (
        *((every, (None, None)) for every in (0, 5, 20, 100)),
        *((every, (short, None)) for every in (0, 20)),
        *((every, (short, short)) for every in (0, 20)),
    ):
        moved, loss = train(example, options.workers, options.steps, every, dtypes)
        pushes, pulls = ("float32" if dtype is None else "bfloat16" for dtype in dtypes)
        sys.stdout.write(f"{every or 1:>12} {pushes:>9} {pulls:>9} {moved / 1e6:>10.1f} {loss:>7.3f}\n")
    moved, loss = train_ddp(options.workers, options.steps)
    sys.stdout.write(f"{'DDP, 1':>12} {'float32':>9} {'-':>9} {moved / 1e6:>10.1f} {loss:>7.3f}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
