"""What docs/torch.md says of DDP beside SCAR: the same steps, and the bytes of a ring, on real ranks."""

from __future__ import annotations

from runpy import run_path
from types import SimpleNamespace

import pytest


@pytest.mark.timeout(300)  # two ranks import torch
def test_ddp_takes_the_steps_of_the_shards_and_sends_what_a_ring_sends() -> None:
    from benchmarks.ddp_steps import train_ddp
    from benchmarks.local_steps import EXAMPLE, train

    workers, steps = 2, 6
    example = SimpleNamespace(**run_path(EXAMPLE))
    sent, loss = train_ddp(workers, steps)
    moved, expected = train(example, workers, steps, 0, (None, None))
    assert loss == pytest.approx(expected, rel=1e-3)
    model = 4 * sum(parameter.numel() for parameter in example.GPT().parameters())
    ring = 2 * (workers - 1) * model * steps  # reduce-scatter and all-gather, all ranks together
    assert ring <= sent < 1.05 * ring
    assert moved == workers * model * (2 * steps - 1)  # pushes and pulls; the start is not counted
