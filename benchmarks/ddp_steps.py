"""DDP on what benchmarks.local_steps trains: ranks over gloo, and the bytes that their sockets have sent.

python -m benchmarks.ddp_steps STORE RANK WORKERS STEPS    # one rank; benchmarks.local_steps starts them
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from runpy import run_path
from types import SimpleNamespace

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.local_steps import EXAMPLE, learn

TCP_INFO_BYTES_SENT = 200  # where struct tcp_info of Linux has it, as u64
LAST = 20  # steps whose losses count


def train_ddp(workers: int, steps: int) -> tuple[int, float]:
    """Bytes that all ranks have sent, and the mean loss of their last steps. Raises :class:`RuntimeError`."""
    with tempfile.TemporaryDirectory(prefix="ddp-") as folder:
        command = [sys.executable, "-m", "benchmarks.ddp_steps", f"{folder}/store"]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(workers), str(steps)], stdout=subprocess.PIPE, text=True
            )
            for rank in range(workers)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"ranks ended with {[rank.returncode for rank in ranks]}: read their lines above")
    reports = [json.loads(output.splitlines()[-1]) for output in outputs]
    losses = [loss for report in reports for loss in report["losses"]]
    return sum(report["sent"] for report in reports), float(np.mean(losses))


def run_rank(store: str, rank: int, workers: int, steps: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=workers)
    example = SimpleNamespace(**run_path(EXAMPLE))
    torch.manual_seed(0)
    model = DistributedDataParallel(example.GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = example.read_text()
    before = count_sent()
    losses = []
    for step in range(steps):
        losses.append(learn(example, model, text, (rank, step)))
        optimizer.step()
    distributed.barrier()  # the others have received what this rank has sent
    sys.stdout.write(json.dumps({"sent": count_sent() - before, "losses": losses[-LAST:]}) + "\n")
    distributed.destroy_process_group()


def count_sent() -> int:
    """Bytes that all TCP connections of this process have sent; Linux 4.19 or newer."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # no socket, or not of TCP
        total += struct.unpack_from("Q", info, TCP_INFO_BYTES_SENT)[0]
    return total


if __name__ == "__main__":
    run_rank(sys.argv[1], *(int(number) for number in sys.argv[2:]))
