"""`scar up`, `down` and `doctor`: start a cluster, stop it, check it."""

from __future__ import annotations

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
