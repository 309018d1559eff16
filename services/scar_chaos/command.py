"""The command line: ``python -m scar_chaos`` and ``scar chaos``.

Everything else is loaded when it is needed.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ClusterKind(StrEnum):
    """What is broken."""

    local = "local"
    kubernetes = "kubernetes"


class ReportFormat(StrEnum):
    """What is written to standard output."""

    text = "text"
    json = "json"


class ProfileName(StrEnum):
    """What kind of runs (:data:`scar_chaos.core.schedule.PROFILES`)."""

    default = "default"
    slow = "slow"
    outage = "outage"


WHERE = "Where"
NODES = "Nodes, on Kubernetes"

ChaosSeedOption = Annotated[
    int, typer.Option(help="Of the first run. The same seed is the same job and the same faults.")
]
ChaosRunsOption = Annotated[int, typer.Option(min=1, help="How many, with the seeds that follow.")]
ChaosGroupsOption = Annotated[int, typer.Option(min=1, help="How many times in a run something breaks.")]
ChaosFaultOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND:TARGET+...", help="Break this instead of what the seed says; repeatable."),
]
ChaosWorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Workers of the job; default: drawn, 1 or 2.")
]
ChaosShardsOption = Annotated[
    int | None, typer.Option(min=1, help="On this machine: shards; default: drawn, 2 or 3.")
]
ChaosStrategyOption = Annotated[
    str, typer.Option(metavar="NAME", help="Recovery strategy of the job; default: partial.")
]
ChaosProfileOption = Annotated[
    ProfileName,
    typer.Option(help="slow: clocks take more than a second; outage: store and Redis are away for minutes."),
]
ChaosReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write all reports there as JSON.")
]
ChaosOutputOption = Annotated[
    ReportFormat, typer.Option("--output", "-o", help="text for people, json for programs.")
]
ChaosOnOption = Annotated[
    ClusterKind,
    typer.Option(help="kubernetes: a release of the chart with chaos.enabled=true.", rich_help_panel=WHERE),
]
ChaosContextOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Context of the kubeconfig; default: the current one.", rich_help_panel=WHERE
    ),
]
ChaosNamespaceOption = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="Default: the context's.", rich_help_panel=WHERE),
]
ChaosReleaseOption = Annotated[
    str, typer.Option(metavar="NAME", help="Default: the only one in the namespace.", rich_help_panel=WHERE)
]
ChaosNodeStopOption = Annotated[
    str,
    typer.Option(
        metavar="COMMAND", help="How this machine stops {node}; then nodes fail, too.", rich_help_panel=NODES
    ),
]
ChaosNodeStartOption = Annotated[
    str, typer.Option(metavar="COMMAND", help="How it starts node {node} again.", rich_help_panel=NODES)
]
ChaosNodeRequestsOption = Annotated[str, typer.Option("--nodes", metavar="CONFIGMAP", hidden=True)]


def chaos(
    seed: ChaosSeedOption = 1,
    runs: ChaosRunsOption = 1,
    groups: ChaosGroupsOption = 3,
    fault: ChaosFaultOption = None,
    workers: ChaosWorkersOption = None,
    shards: ChaosShardsOption = None,
    strategy: ChaosStrategyOption = "",
    profile: ChaosProfileOption = ProfileName.default,
    report: ChaosReportOption = None,
    output: ChaosOutputOption = ReportFormat.text,
    on: ChaosOnOption = ClusterKind.local,
    context: ChaosContextOption = "",
    namespace: ChaosNamespaceOption = "",
    release: ChaosReleaseOption = "",
    node_stop_command: ChaosNodeStopOption = "",
    node_start_command: ChaosNodeStartOption = "",
    nodes: ChaosNodeRequestsOption = "",
) -> None:
    """Break a cluster on purpose, by a schedule drawn from a seed, and prove that every guarantee held.

    Each run trains a job of its own whose workers have every push written down before they send it. Things
    die, freeze and are cut off: one by one, several at once, and while a checkpoint is written or a failure
    is being repaired. After each group of faults training is brought to rest, and checkers compare the values
    of all blocks with what was written down: lost and doubled pushes, torn blocks, survivors that went
    backwards, epochs with a gap, a checkpoint that cannot be restored. Logs are never asked.

    Exit code 1: a guarantee was violated, or the cluster did not heal. The report names the command that
    plays it again.

    Examples: [bold]scar chaos --seed 7[/] · [bold]scar chaos --fault kill:ps-0+ps-1[/] ·
    [bold]scar chaos --runs 100 --report chaos.json[/] ·
    [bold]scar chaos --on kubernetes --namespace ml --runs 5[/] · [bold]scar chaos --on kubernetes
    --node-stop-command 'docker stop {node}' --node-start-command 'docker start {node}'[/]
    """
    from scar_chaos.options import ChaosOptions
    from scar_chaos.runner import is_chaos_pod, run_on_release, run_on_this_machine

    options = ChaosOptions(
        seed=seed,
        runs=runs,
        groups=groups,
        workers=workers,
        shards=shards,
        report=report,
        output=output.value,
        faults=tuple(fault or ()),
        strategy=strategy,
        profile=profile.value,
    )
    if on is ClusterKind.local and not (context or namespace or release):
        passed = run_on_this_machine(options)
    elif is_chaos_pod(os.environ):
        passed = run_on_release(options, nodes)
    else:
        from scar_chaos.kubernetes_job import launch_job
        from scar_kube.where import Where

        where = Where(context, namespace, release)
        passed = launch_job(options, where, node_stop_command, node_start_command)
    raise typer.Exit(0 if passed else 1)
