"""What every system trains, and how each step is written down. It needs torch and numpy, nothing of SCAR."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SPEC_VARIABLE = "KILLS_SPEC"
FACTORS = 16


@dataclass(frozen=True)
class KillSpec:
    """One run: ``model`` is ``mlp`` or ``deepfm``, ``folder`` holds its data and its logs, ``pace`` is the
    least seconds of a step, ``checkpoint`` the steps between two full checkpoints, ``batch`` of all workers
    together.
    """

    folder: str
    model: str
    steps: int
    batch: int
    checkpoint: int
    pace: float
    strategy: str = "partial"

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def write_file(self) -> Path:
        """Where processes of the run find it, by the environment."""
        file = self.path / "spec.json"
        file.write_text(json.dumps(asdict(self)))
        return file


def read_spec() -> KillSpec:
    return KillSpec(**json.loads(Path(os.environ[SPEC_VARIABLE]).read_text()))


class RatingsModel(nn.Module):  # type: ignore[misc]
    """The DeepFM of examples/torch_recommender.py, with the embeddings of whoever trains it."""

    def __init__(self, rows: int, embedding: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([3.5]))
        self.linear = embedding(rows, 1)
        self.factors = embedding(rows, FACTORS)
        self.deep = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.zeros_(self.linear.weight)
        nn.init.normal_(self.factors.weight, std=0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.factors(ids)
        pairs = (rows[:, 0] * rows[:, 1]).sum(1)
        return self.mean + self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1))[:, 0]


class KillTask:
    """Model, optimizer and data of a spec, the same for every system."""

    def __init__(self, spec: KillSpec, embedding: Callable[[int, int], nn.Module] = nn.Embedding) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.spec = spec
        with np.load(spec.path / "data.npz") as data:
            self.x, self.y, self.test_x, self.test_y = (
                torch.from_numpy(data[name]) for name in ("x", "y", "test_x", "test_y")
            )
        if spec.model == "mlp":
            self.model: nn.Module = nn.Sequential(
                nn.Linear(self.x.shape[1], 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
            )
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        else:
            rows = int(max(self.x.max(), self.test_x.max())) + 1
            self.model = RatingsModel(rows, embedding)
            self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.05)
        self._next = 0.0

    def compute_loss(self, model: nn.Module, step: int, share: slice) -> torch.Tensor:
        """The mean loss of ``share`` of the batch of ``step``, at the pace of the run."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self.spec.pace
        batch = np.random.default_rng(step).integers(len(self.x), size=self.spec.batch)[share]
        predicted = model(self.x[batch])
        if self.spec.model == "mlp":
            return nn.functional.cross_entropy(predicted, self.y[batch])
        return nn.functional.mse_loss(predicted, self.y[batch])

    def share_of(self, rank: int, workers: int) -> slice:
        size = self.spec.batch // workers
        return slice(rank * size, (rank + 1) * size)

    def evaluate_model(self, model: nn.Module) -> float:
        """Accuracy (mlp) or root mean square error (deepfm) on examples that were held out."""
        with torch.no_grad():
            predicted = model(self.test_x)
        if self.spec.model == "mlp":
            return float((predicted.argmax(1) == self.test_y).double().mean())
        return float(((predicted - self.test_y) ** 2).mean().sqrt())


class StepLog:
    """One line for each step that a process has completed; what is written survives a SIGKILL."""

    def __init__(self, spec: KillSpec, slot: int) -> None:
        self._folder = spec.path
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._file = os.open(spec.path / f"{slot}.{os.getpid()}.steps", flags, 0o600)

    def write_step(self, step: int) -> None:
        """``step`` steps are complete."""
        os.write(self._file, f"{step} {time.monotonic():.6f}\n".encode())

    def write_result(self, score: float) -> None:
        partial = self._folder / f"result.{os.getpid()}"
        partial.write_text(json.dumps({"score": score}))
        partial.rename(self._folder / "result.json")


def save_atomically(file: Path, state: Any) -> None:
    """``torch.save``, so that a kill leaves the last whole file."""
    partial = file.with_suffix(f".{os.getpid()}")
    torch.save(state, partial)
    partial.rename(file)
