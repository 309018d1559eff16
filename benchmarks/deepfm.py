"""A step of DeepFM with embeddings of 10^6 rows: SCAR with two workers, torch DDP with two ranks, and plain
torch in one process.

The model of examples/torch_recommender.py on ids drawn at random. Plain torch steps the rows of its batch
(``sparse=True``), or, as `nn.Embedding` does by itself, the whole table. On SCAR two workers share such a
batch, or each of them has its own; so do the ranks of DDP (gloo, sparse gradients). Beside the time of a step
stands what it takes of processors, all processes together, which a busy machine changes least.

    python -m benchmarks.deepfm --rows 1000000 --batch 512 --steps 200 --rounds 100

Each way is measured once in each of some turns, as a machine changes its speed from minute to minute.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import scar
import scar.torch

FACTORS = 16
ROWS = int(os.environ.get("SCAR_BENCH_ROWS", "1000"))
BATCH = int(os.environ.get("SCAR_BENCH_BATCH", "512"))
STEPS = int(os.environ.get("SCAR_BENCH_STEPS", "10"))
ROUNDS = int(os.environ.get("SCAR_BENCH_ROUNDS", "100"))
SHARDS = int(os.environ.get("SCAR_BENCH_SHARDS", "2"))
OWN = bool(os.environ.get("SCAR_BENCH_OWN"))
ELSEWHERE = float(os.environ.get("SCAR_BENCH_ELSEWHERE", "0"))
AHEAD = bool(os.environ.get("SCAR_BENCH_AHEAD"))
ELSEWHERE_HELP = "ms of a step that take no processor, as on a GPU; by SSP, with and without prefetch"
PLAIN = "torch, rows"
WARM = 20  # steps that are not counted
RANKS = 2


class FactorisationMachine(nn.Module):  # type: ignore[misc]
    """``make``: of an embedding of so many rows and columns."""

    def __init__(self, rows: int, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([3.5]))
        self.linear = make(rows, 1)
        self.factors = make(rows, FACTORS)
        self.deep = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.factors(ids)
        pairs = (rows[:, 0] * rows[:, 1]).sum(1)
        return self.mean + self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1))[:, 0]


def draw_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of two fields, and ratings."""
    draw = np.random.default_rng(step)
    ids = torch.from_numpy(draw.integers(ROWS, size=(BATCH, 2)))
    return ids, torch.from_numpy(draw.normal(3.5, 1, BATCH).astype(np.float32))


class StepCost(NamedTuple):
    """Median seconds from a step to the next one, seconds of processors in a step, and its examples."""

    seconds: float
    processors: float
    examples: int = BATCH


def train_plain(sparse: bool) -> StepCost:
    return _time_steps(_make_plain_model(sparse), map(draw_batch, count()))


def _make_plain_model(sparse: bool) -> nn.Module:
    torch.manual_seed(0)
    return FactorisationMachine(ROWS, lambda rows, width: nn.Embedding(rows, width, sparse=sparse))


def _time_steps(
    model: nn.Module, batches: Iterator[tuple[torch.Tensor, torch.Tensor]], examples: int = BATCH
) -> StepCost:
    """Of this process; ``examples``: of a step of all processes."""
    torch.sparse.check_sparse_tensor_invariants.disable()  # torch warns of checks that nobody has chosen
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    times = []
    for _ in range(STEPS + WARM):
        times.append((time.perf_counter(), time.process_time()))
        ids, ratings = next(batches)
        loss = nn.functional.mse_loss(model(ids), ratings)
        optimizer.zero_grad()
        loss.backward()
        time.sleep(1e-3 * ELSEWHERE)
        optimizer.step()
    passed = np.diff(np.array(times)[WARM:], axis=0)
    return StepCost(float(np.median(passed[:, 0])), float(passed[:, 1].mean()), examples)


def train_ddp(own: bool) -> StepCost:
    """``own``: each rank has a batch of its own."""
    with tempfile.TemporaryDirectory(prefix="deepfm-ddp-") as folder:
        multiprocessing.spawn(_run_rank, (folder, own), nprocs=RANKS)
        costs = [StepCost(*np.load(file).tolist()) for file in sorted(Path(folder).glob("*.npy"))]
    return costs[0]._replace(processors=sum(cost.processors for cost in costs))


def _run_rank(rank: int, folder: str, own: bool) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(_make_plain_model(True))
    cost = _time_steps(model, _draw_rank_shares(rank, own), BATCH * (RANKS if own else 1))
    np.save(Path(folder) / f"{rank}.npy", np.array(cost))
    distributed.destroy_process_group()


def _draw_rank_shares(rank: int, own: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for step in count():
        ids, ratings = draw_batch(RANKS * step + rank if own else step)
        yield (ids, ratings) if own else (ids[rank::RANKS], ratings[rank::RANKS])


def make_job() -> tuple[nn.Module, scar.Job]:
    torch.manual_seed(0)
    model = FactorisationMachine(ROWS, scar.torch.Embedding)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    tables = scar.torch.tables(model, optimizer)
    for table in tables:
        if table.name.startswith(("linear", "factors")):  # given arrays: too large for StartJob
            table.init = scar.normal(0, 0.1)
    checkpoint = scar.Checkpoint(period=8 * ROUNDS)  # an eighth of the blocks, every so many clocks
    job = scar.Job("deepfm-step", tables, shards=SHARDS, workers=2, checkpoint=checkpoint)
    return model, replace(job, consistency="ssp", staleness=1) if ELSEWHERE else job


def draw_shares(worker: scar.Worker) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What this worker has of the batch of each step."""
    for step in count():
        mine = slice(None) if OWN else worker.data_slice(BATCH)
        ids, ratings = draw_batch(2 * step + worker.rank if OWN else step)
        yield ids[mine], ratings[mine]


def train(worker: scar.Worker) -> None:
    torch.set_num_threads(1)
    optimizer = scar.torch.Optimizer(worker, model)
    batches = draw_shares(worker)
    if AHEAD:
        batches = scar.torch.prefetch(batches, optimizer)
    times = []
    for step in worker.clocks(limit=STEPS + WARM):
        if worker.rank == 0 and step == WARM:
            Path(os.environ["SCAR_BENCH_OUT"]).with_suffix(".warm").touch()
        times.append(time.perf_counter())
        ids, ratings = next(batches)
        loss = nn.functional.mse_loss(model(ids), ratings)
        optimizer.zero_grad()
        loss.backward()
        time.sleep(1e-3 * ELSEWHERE)
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
    if worker.rank == 0:
        np.save(os.environ["SCAR_BENCH_OUT"], np.diff(times)[WARM:])


def train_scar(own: bool, ahead: bool = False) -> StepCost:
    """``own``: each worker has a batch of its own; ``ahead``: pulls go before their clock."""
    with tempfile.TemporaryDirectory(prefix="deepfm-") as home:
        out = Path(home) / "times.npy"
        settings = {name: os.environ[name] for name in os.environ if name.startswith("SCAR_BENCH")}
        settings |= {"SCAR_BENCH_OUT": str(out), "SCAR_BENCH_OWN": "1" * own}
        settings["SCAR_BENCH_AHEAD"] = "1" * ahead
        with scar.LocalCluster(Path(home) / "cluster", shards=SHARDS, environment=settings) as cluster:
            cluster.start_job(make_job()[1])
            cluster.start_workers(__file__, 2)
            before = _processor_seconds(cluster, out.with_suffix(".warm"))
            after = _processor_seconds(cluster, out)
            cluster.wait(600.0)
        return StepCost(float(np.median(np.load(out))), (after - before) / STEPS, BATCH * (1 + own))


def _processor_seconds(cluster: scar.LocalCluster, file: Path) -> float:
    """That all processes of a cluster have taken when this file comes."""
    from benchmarks.measure import processor_seconds_of  # workers load this file alone

    deadline = time.monotonic() + 600
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return sum(processor_seconds_of(one.pid) for one in cluster.processes())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3, help="each way runs once in each of them")
    parser.add_argument("--rounds", type=int, default=100, help="clocks between rounds of the checkpoint")
    parser.add_argument("--whole", action="store_true", help="plain torch with whole tables, too")
    parser.add_argument("--elsewhere", type=float, default=0, help=ELSEWHERE_HELP)
    options = parser.parse_args()
    sizes = {
        "SCAR_BENCH_ROWS": options.rows,
        "SCAR_BENCH_BATCH": options.batch,
        "SCAR_BENCH_STEPS": options.steps,
        "SCAR_BENCH_SHARDS": options.shards,
        "SCAR_BENCH_ROUNDS": options.rounds,
        "SCAR_BENCH_ELSEWHERE": options.elsewhere,
    }
    if any(os.environ.get(name) != str(value) for name, value in sizes.items()):
        os.environ.update({name: str(value) for name, value in sizes.items()})
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.deepfm", *sys.argv[1:]])
    torch.set_num_threads(1)  # a second one makes no step shorter
    turns: dict[str, list[StepCost]] = {}
    for _ in range(options.turns):
        for name, run in _ways(options.whole).items():
            turns.setdefault(name, []).append(run())
    for line in _table_lines(turns):
        sys.stdout.write(line + "\n")
    return 0


def _ways(whole: bool) -> dict[str, Callable[[], StepCost]]:
    """What is measured one after the other in a turn; the first is what all are compared with."""
    found: dict[str, Callable[[], StepCost]] = {PLAIN: partial(train_plain, True)}
    if whole:
        found["torch, whole tables"] = partial(train_plain, False)
    if ELSEWHERE:
        found["SCAR by SSP"] = partial(train_scar, own=False)
        found["the same, pulled ahead"] = partial(train_scar, own=False, ahead=True)
    else:
        found["SCAR, a batch for both workers"] = partial(train_scar, own=False)
        found["SCAR, a batch for each"] = partial(train_scar, own=True)
        found["DDP, a batch for both ranks"] = partial(train_ddp, own=False)
        found["DDP, a batch for each"] = partial(train_ddp, own=True)
    return found


def _table_lines(turns: Mapping[str, Sequence[StepCost]]) -> Iterator[str]:
    """Medians over the turns; of the ratio also the least and the most, each against its own turn."""
    plain = np.array([cost.seconds for cost in turns[PLAIN]])
    for name, costs in turns.items():
        seconds = np.array([cost.seconds for cost in costs])
        processors = np.median([cost.processors for cost in costs])
        ratios = seconds / plain
        yield (
            f"{name:>30} {1e3 * np.median(seconds):>8.2f} ms"
            f" {np.median(ratios):>6.2f} x [{ratios.min():.2f}, {ratios.max():.2f}]"
            f" {1e3 * processors:>8.2f} ms of processors"
            f" {costs[0].examples / np.median(seconds):>9,.0f} examples/s"
        )


if os.environ.get("SCAR_BENCH_OUT"):
    model: Any
    model, job = make_job()

if __name__ == "__main__":
    raise SystemExit(main())
