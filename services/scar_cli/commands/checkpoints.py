"""`scar checkpoints ...`: options and help; what the commands do is in the modules that they import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scar.errors import ConfigError
from scar_cli.cluster_ref import ClusterRef
from scar_cli.options import JobName, OutputOption, StoreUrl, with_cluster
from scar_cli.output import OutputFormat

checkpoints = typer.Typer(
    no_args_is_help=True, help="Read the running checkpoint in the store; no cluster needs to run."
)

ManifestNumber = Annotated[int, typer.Argument(help="Number of the manifest; 0: the newest.")]


@checkpoints.command("ls")
@with_cluster()
def checkpoints_ls(
    ref: ClusterRef, job: JobName = "", store: StoreUrl = "", output: OutputOption = OutputFormat.text
) -> None:
    """All manifests in the store, oldest first."""
    from scar_cli.checkpoints import list_manifests, open_job

    list_manifests(open_job(ref, job, store), output)


@checkpoints.command("show")
@with_cluster()
def checkpoints_show(
    ref: ClusterRef,
    number: ManifestNumber,
    job: JobName = "",
    store: StoreUrl = "",
    output: OutputOption = OutputFormat.text,
) -> None:
    """One manifest: its objects, and how many blocks a restore would take from each."""
    from scar_cli.checkpoints import open_job, show_manifest

    show_manifest(open_job(ref, job, store), number, output)


@checkpoints.command("verify")
@with_cluster()
def checkpoints_verify(
    ref: ClusterRef,
    number: ManifestNumber = 0,
    job: JobName = "",
    store: StoreUrl = "",
    output: OutputOption = OutputFormat.text,
) -> None:
    """Read everything that a restore would read: the chain of manifests, every header, the checksum of every
    block.

    Exit code 1 when anything is damaged. Without a number all manifests that stay restorable are checked.
    """
    from scar_cli.checkpoints import open_job
    from scar_cli.verify import verify_checkpoints

    verify_checkpoints(open_job(ref, job, store), number, output)


@checkpoints.command("export")
@with_cluster()
def checkpoints_export(
    file: Annotated[Path, typer.Argument(metavar="FILE.safetensors", help="Where to write the tables.")],
    ref: ClusterRef,
    number: ManifestNumber = 0,
    job: JobName = "",
    store: StoreUrl = "",
    clock: Annotated[str, typer.Option(help="From the running shards, of exactly this clock; or next.")] = "",
) -> None:
    """Put the tables of a checkpoint together in one safetensors file.

    A running checkpoint mixes clocks; with --clock all values are of one (BSP).
    """
    from scar_cli.checkpoints import open_job
    from scar_cli.clusters import find_cluster
    from scar_cli.export import export_running, export_tables

    if clock:
        if number or job or store:
            raise ConfigError(
                "--clock is of the job that runs, not of the store",
                "Leave out the manifest, --job and --store",
            )
        export_running(find_cluster(ref), clock, file)
        return
    export_tables(open_job(ref, job, store), number, file)
