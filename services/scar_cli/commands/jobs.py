"""`scar jobs ...`: options and help; what the commands do is in :mod:`scar_cli.jobs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scar_cli.cluster_ref import ClusterRef
from scar_cli.options import OutputOption, StoreUrl, with_cluster
from scar_cli.output import OutputFormat

jobs = typer.Typer(
    no_args_is_help=True, help="The jobs of a store: list, describe, draw, remove; no cluster needs to run."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job, as `scar jobs ls` lists it.")]


@jobs.command("ls")
@with_cluster()
def jobs_ls(ref: ClusterRef, store: StoreUrl = "", output: OutputOption = OutputFormat.text) -> None:
    """All jobs of the store: state, clock, epoch, newest manifest, bytes."""
    from scar_cli.jobs import list_jobs

    list_jobs(ref, store, output)


@jobs.command("show")
@with_cluster()
def jobs_show(
    name: Name, ref: ClusterRef, store: StoreUrl = "", output: OutputOption = OutputFormat.text
) -> None:
    """One job: its tables, how far it is, and what its bytes are."""
    from scar_cli.jobs import show_job

    show_job(ref, name, store, output)


@jobs.command("plot")
@with_cluster()
def jobs_plot(
    name: Name,
    ref: ClusterRef,
    store: StoreUrl = "",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="PNG, SVG or PDF; default: NAME.png.")
    ] = None,
) -> None:
    """Draw how a job went, while it runs or afterwards: its loss, its metrics, and where something died."""
    from scar_cli.run_plot import plot_job

    plot_job(ref, name, store, to or Path(f"{name}.png"))


@jobs.command("rm")
@with_cluster()
def jobs_rm(
    name: Name,
    ref: ClusterRef,
    store: StoreUrl = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a job with its checkpoints and its ledger, and say how much that frees. Refused while a cluster
    has it.

    Afterwards its name is free: the same training starts from the beginning.
    """
    from scar_cli.jobs import remove_job

    remove_job(ref, name, store, yes)
