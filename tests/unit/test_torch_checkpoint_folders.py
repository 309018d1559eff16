"""Models of a job to and from folders of torch.distributed.checkpoint, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scar.errors import ConfigError
from tests.unit.test_torch_models import build, examples
from tests.unit.torch_shards import Member, Shards

# Two ranks, each with half of the rows of a weight, as FSDP has them.
TWO_RANKS = """
import os
import sys
import torch
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

folder, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", f"file://{folder}.store", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(24, dtype=torch.float32).reshape(8, 3) / 7
weight = distribute_tensor(whole, mesh, [Shard(0)])
checkpoint.save({"model": {"weight": weight, "bias": whole[:, 0]}, "step": 7}, checkpoint_id=folder)
distributed.barrier()
os._exit(0)  # a thread of gloo's may abort a process that ends in order
"""


def trained() -> tuple[Any, Shards]:
    """A model after some steps, whose BatchNorm has counted them."""
    from torch import nn

    import scar.torch

    model = build()
    shards = Shards(scar.Job("dcp", scar.torch.tables(model, scar.adam(0.01)), workers=1))
    worker: Any = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(worker, model)
    x, y = examples()
    for _ in range(3):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        shards.close_clock()
    return worker, shards


@pytest.mark.parametrize("key", ["model", ""])
def test_a_model_goes_out_and_comes_back_bit_for_bit(key: str, tmp_path: Path) -> None:
    import scar.torch

    worker, shards = trained()
    scar.torch.export_checkpoint(build(1), worker, tmp_path / "out", key)
    fresh = build(2)
    scar.torch.import_checkpoint(fresh, tmp_path / "out", key)
    made = {table.name: table for table in scar.torch.tables(fresh, scar.adam(0.01))}
    assert made.keys() == shards.stores.keys()
    for name, store in shards.stores.items():
        assert made[name].init.array is not None
        assert made[name].init.array.tobytes() == store.values.tobytes()
    assert made["1.num_batches_tracked"].init.array == 3


def test_torch_reads_what_was_exported(tmp_path: Path) -> None:
    from torch.distributed import checkpoint

    import scar.torch

    worker, _ = trained()
    exported, plain = build(1), build(2)
    scar.torch.export_checkpoint(exported, worker, tmp_path)
    state = {"model": plain.state_dict()}
    with pytest.warns(UserWarning, match="single process"):
        checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    for name, values in exported.state_dict().items():
        np.testing.assert_array_equal(state["model"][name], values)


@pytest.mark.timeout(300)  # two processes import torch
def test_what_two_ranks_wrote_in_shards_is_read_as_one(tmp_path: Path) -> None:
    import torch
    from torch import nn

    import scar.torch

    folder = tmp_path / "ranks"
    ranks = [subprocess.Popen([sys.executable, "-c", TWO_RANKS, folder, rank]) for rank in ("0", "1")]
    assert [rank.wait(240) for rank in ranks] == [0, 0]
    assert len(list(folder.glob("*.distcp"))) == 2
    model = nn.Linear(3, 8)
    scar.torch.import_checkpoint(model, folder)
    whole = torch.arange(24, dtype=torch.float32).reshape(8, 3) / 7
    assert torch.equal(model.weight, whole)
    assert torch.equal(model.bias, whole[:, 0])


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    from torch import nn

    import scar.torch

    with pytest.raises(ConfigError, match=r"no checkpoint of torch\.distributed"):
        scar.torch.import_checkpoint(nn.Linear(2, 2), tmp_path)
    worker, _ = trained()
    scar.torch.export_checkpoint(build(), worker, tmp_path)
    before = build(3)
    with pytest.raises(ConfigError, match=r"has no 0\.weight; it has model\.0\.bias"):
        scar.torch.import_checkpoint(before, tmp_path, key="")
    other = nn.Sequential(nn.Linear(6, 9)).double()
    with pytest.raises(ConfigError, match=r"model\.0\.weight is \(8, 6\) .* and \(9, 6\) in this model"):
        scar.torch.import_checkpoint(other, tmp_path)
    assert before[0].weight.equal(build(3)[0].weight)


def test_an_index_that_names_anything_else_runs_nothing(tmp_path: Path) -> None:
    from torch import nn

    import scar.torch

    proof = tmp_path / "proof"
    evil = f"cposix\nsystem\n(S'touch {proof}'\ntR.".encode()  # what a pickle of os.system looks like
    for index in (evil, b"", b"no pickle", b"\x80\x04N.", b"\x80\x04N"):
        (tmp_path / ".metadata").write_bytes(index)
        with pytest.raises(ConfigError, match="no index of DCP"):
            scar.torch.import_checkpoint(nn.Linear(2, 2), tmp_path)
    assert not proof.exists()
