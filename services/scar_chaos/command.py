"""The command line: ``python -m scar_chaos`` and ``scar chaos``. Everything else is loaded when it is needed."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class On(StrEnum):
    """Where the chaos is."""

    local = "local"
    kubernetes = "kubernetes"


class Output(StrEnum):
    """What is written to standard output."""

    text = "text"
    json = "json"


WHERE, NODES = "Where", "Nodes, on Kubernetes"


def chaos(
    seed: Annotated[int, typer.Option(help="Of the first run. The same seed is the same job and the same faults.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="How many, with the seeds that follow.")] = 1,
    groups: Annotated[int, typer.Option(min=1, help="How many times in a run something breaks.")] = 3,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND:TARGET+...", help="Break this instead of what the seed says; again for what comes next."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Workers of the job; default: drawn, 1 or 2.")] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="On this machine: shards; default: drawn, 2 or 3.")] = None,
    strategy: Annotated[str, typer.Option(metavar="NAME", help="Recovery strategy of the job; default: partial.")] = "",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all reports there as JSON.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")] = Output.text,
    on: Annotated[
        On, typer.Option(help="kubernetes: a release of the chart with chaos.enabled=true.", rich_help_panel=WHERE)
    ] = On.local,
    context: Annotated[
        str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: the current one.", rich_help_panel=WHERE)
    ] = "",
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAME", help="Default: the context's.", rich_help_panel=WHERE),
    ] = "",
    release: Annotated[
        str, typer.Option(metavar="NAME", help="Default: the only one in the namespace.", rich_help_panel=WHERE)
    ] = "",
    node_stop_command: Annotated[
        str,
        typer.Option(metavar="COMMAND", help="How this machine stops {node}; then nodes fail, too.", rich_help_panel=NODES),
    ] = "",
    node_start_command: Annotated[
        str, typer.Option(metavar="COMMAND", help="How it starts node {node} again.", rich_help_panel=NODES)
    ] = "",
    nodes: Annotated[str, typer.Option(metavar="CONFIGMAP", hidden=True)] = "",
) -> None:
    """Break a cluster on purpose, by a schedule drawn from a seed, and prove that every guarantee held.

    Each run trains a job of its own whose workers have every push written down before they send it. Things die, freeze and
    are cut off: one by one, several at once, and while a checkpoint is written or a failure is being repaired. After each
    group of faults training is brought to rest, and checkers compare the values of all blocks with what was written down:
    lost and doubled pushes, torn blocks, survivors that went backwards, epochs with a gap, a checkpoint that cannot be
    restored. Logs are never asked.

    Exit code 1: a guarantee was violated, or the cluster did not heal. The report names the command that plays it again.

    Examples: [bold]scar chaos --seed 7[/] · [bold]scar chaos --fault kill:ps-0+ps-1[/] ·
    [bold]scar chaos --runs 100 --report chaos.json[/] ·
    [bold]scar chaos --on kubernetes --namespace ml --runs 5[/] · [bold]scar chaos --on kubernetes
    --node-stop-command 'docker stop {node}' --node-start-command 'docker start {node}'[/]
    """
    from scar_chaos.plans import Wish, inside_pod, on_release, on_this_machine

    wish = Wish(seed, runs, groups, workers, shards, report, output.value, tuple(fault or ()), strategy)
    if on is On.local and not (context or namespace or release):
        passed = on_this_machine(wish)
    elif inside_pod(os.environ):
        passed = on_release(wish, nodes)
    else:
        from scar_chaos.launch import launch
        from scar_kube.where import Where

        passed = launch(wish, Where(context, namespace, release), node_stop_command, node_start_command)
    raise typer.Exit(0 if passed else 1)
