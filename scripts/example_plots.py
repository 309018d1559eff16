"""Trains every file of examples/ with a server killed on the way, and draws how it went for the gallery.

    python scripts/example_plots.py [NAME ...]      # docs/images/examples/NAME.svg

SCAR_DATA names the folder of the data sets (docs/datasets.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

from scar_cli.checkpoints import job_names, open_signed, store_of
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import running_cluster
from scar_cli.kill import send_local_signal
from scar_cli.run_plot import plot_job
from scar_local.directory import DEFAULT_NAME

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "images" / "examples"
KILL_AT = {  # clock at which ps-1 dies, by file
    "cnn": 200,
    "ftrl": 150,
    "lda": 30,
    "mf": 100,
    "mlr": 40,
    "nmf": 150,
    "skipgram": 300,
    "torch_cnn": 500,
    "torch_gpt_diloco": 30,
    "torch_mlp": 150,
    "torch_raw_ids": 500,
    "torch_recommender": 500,
}
SECONDS = 900.0  # of one training
LOOK = 0.1


def draw_example(name: str) -> None:
    """Raises :class:`RuntimeError` when the training does not end well, or before the kill."""
    with tempfile.TemporaryDirectory() as home, chdir(home):
        said = Path("said")
        with said.open("w") as output:
            command = [sys.executable, "-m", "scar_cli", "train", str(ROOT / "examples" / f"{name}.py")]
            training = subprocess.Popen(command, stdout=output, stderr=output)
        killed = _kill_at(KILL_AT[name], training)
        if training.wait(SECONDS) or not killed:
            raise RuntimeError(f"{name}: killed: {killed}; {said.read_text()[-2000:]}")
        [job] = job_names(open_signed(store_of(ClusterRef())))
        plot_job(ClusterRef(), job, "", PICTURES / f"{name}.svg")


def _kill_at(clock: int, training: subprocess.Popen[bytes]) -> bool:
    """Whether ps-1 was killed when the job had come so far."""
    while training.poll() is None:
        time.sleep(LOOK)
        if (target := running_cluster(DEFAULT_NAME)) is None:
            continue
        with target.observer() as observer:
            while training.poll() is None:
                if observer.read().clock >= clock:
                    send_local_signal(target, "ps-1", "KILL")
                    return True
                time.sleep(LOOK)
    return False


def main(names: list[str]) -> None:
    os.environ.setdefault("NO_COLOR", "1")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in names or list(KILL_AT):
        draw_example(name)


if __name__ == "__main__":
    main(sys.argv[1:])
