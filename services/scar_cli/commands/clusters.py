"""`scar up`, `down`, `scale` and `doctor`: start a cluster, stop it, resize it, check it."""

from __future__ import annotations

from typing import Annotated

import typer

from scar_cli.cluster_ref import ClusterRef
from scar_cli.options import (
    CheckedRedis,
    CheckedStore,
    ClusterName,
    LastEvents,
    OutputOption,
    StoryOf,
    with_cluster,
    with_request,
)
from scar_cli.output import OutputFormat
from scar_cli.requests import UpRequest


@with_request(UpRequest)
def start_cluster(request: UpRequest) -> None:
    """Start a cluster on this machine and keep it up; Ctrl-C stops all of it.

    Every service is a process of its own, and comes back when it dies. Logs and (unless --store says
    otherwise) checkpoints are in ./.scar/NAME.

    Examples: [bold]scar up --shards 8[/] · [bold]scar up --detach && scar train examples/mlr.py && scar
    down[/]
    """
    from scar_cli.up import run_cluster, start_detached

    if request.detach:
        start_detached(request)
    else:
        run_cluster(request)


def stop_cluster(cluster: ClusterName = "local") -> None:
    """Stop a cluster that runs on this machine: one last checkpoint, then every process."""
    from scar_cli.up import stop_cluster as stop

    stop(cluster)


@with_cluster()
def scale_cluster(
    count: Annotated[
        int,
        typer.Argument(metavar="SHARDS", min=1, max=1000, help="How many there shall be: ps-0, ps-1, ..."),
    ],
    ref: ClusterRef,
    timeout: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="To wait until nothing moves any more; 0: not at all."),
    ] = 300.0,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Have more shards, or fewer, while training goes on: blocks move live, and no value changes. Shards that
    are too many hand their blocks over before they end.

    On Kubernetes the chart's value ps.replicas says how many there are.

    Examples: [bold]scar scale 8[/] · [bold]scar scale 3 --timeout 0[/]
    """
    from scar_cli.scale import scale_cluster as scale

    scale(ref, count, timeout, output)


@with_cluster(recovery=True)
def check_cluster(
    ref: ClusterRef,
    store: CheckedStore = "",
    redis: CheckedRedis = "",
    story: StoryOf = "",
    last: LastEvents = 60,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Check this machine and a cluster, if one runs: each line says what is wrong and how to fix it.

    With --story: the last events of one process, what decided about each, and what it did:
    [bold]scar doctor --story ps-0[/]
    """
    from scar_cli.doctor import run_doctor

    run_doctor(ref, store, redis, story, last, output)
