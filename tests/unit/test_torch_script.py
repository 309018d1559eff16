"""A plain training script of PyTorch, and what it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import scar.torch  # noqa: E402
from scar import load_job  # noqa: E402
from scripts.example_diffs import SCRIPTS, changed_lines  # noqa: E402

SCRIPT = """
import torch, scar.torch
model = torch.nn.ModuleDict({
    "rows": torch.nn.Embedding(50, 4, sparse=True),
    "bags": torch.nn.EmbeddingBag(60, 4, mode="sum", sparse=True),
    "dense": torch.nn.Embedding(70, 4),
})
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
scar.torch.initialize(model, optimizer, scheduler, workers=3, consistency="ssp", staleness=2)
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_differs_from_plain_torch_by_five_lines(name: str) -> None:
    assert 0 < len(changed_lines(name)) <= 5


def test_a_script_declares_its_model(tmp_path: Path) -> None:
    file = tmp_path / "my_model.py"
    file.write_text(SCRIPT)
    job, _ = load_job(str(file))
    assert (job.name, job.workers, job.consistency, job.staleness) == ("my-model", 3, "ssp", 2)
    rule = job.table("rows.weight").rule
    assert (rule.kind, rule.parameters["lr"]) == ("adagrad", 0.5)
    assert rule.schedule is not None
    blocks = {table.name: len(table.layout.sizes) for table in job.tables}
    assert blocks == {"rows.weight": 50, "bags.weight": 60, "dense.weight": 1}, (
        "of sparse ones each row is a block"
    )


def test_embeddings_with_sparse_gradients_go_by_rows(tmp_path: Path) -> None:
    model = torch.nn.Embedding(50, 4, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(scar.ScarError, match="nobody has started"):
        scar.torch.initialize(model, optimizer, name="mine")
    assert isinstance(model, scar.torch.Embedding)
    assert torch.equal(model(torch.tensor([3])), model.weight[3:4])
