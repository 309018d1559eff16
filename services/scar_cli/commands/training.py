"""`scar train` and `scar demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scar_cli.options import with_request
from scar_cli.requests import TrainRequest


@with_request(TrainRequest)
def train_file(request: TrainRequest) -> None:
    """Train FILE: on the cluster of `scar up` when there is one, else on a cluster that lives as long as the
    training.

    With --on kubernetes the file is sent to a release of the chart, whose workers run it: no image has to be
    built. Ctrl-C only stops watching; the same command comes back to the training.

    Examples: [bold]scar train examples/mlr.py[/] · [bold]scar train examples/mlr.py --workers 4 --shards 8[/]
    · [bold]scar train examples/mlr.py --resume[/] · [bold]scar train examples/mlr.py --on kubernetes
    --namespace ml[/] · [bold]scar train examples/mlr.py --strategy sync-chain --shards 3[/] · [bold]scar
    train mine.py -- --lr 0.1[/]
    """
    from scar_cli.train import run_training

    run_training(request)


def run_demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes.")] = Path(
        "build/demo"
    ),
    dataset: Annotated[str, typer.Option(help="auto, mnist or digits.")] = "auto",
    seed: Annotated[int, typer.Option(help="Chooses the servers that die.")] = 1,
    web: Annotated[
        bool, typer.Option("--web", help="Show it on a live page, too, as `scar console` does.")
    ] = False,
) -> None:
    """Train, kill half of the servers, watch the cluster heal, and compare with a restart from a full
    checkpoint.
    """
    from scar_cli.demo.main import run_demo as run

    raise SystemExit(run(output, dataset, seed, web))
