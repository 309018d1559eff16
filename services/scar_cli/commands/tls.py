"""`scar tls ...`: options and help; certificates are made by :mod:`scar_local.authority`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scar.errors import ConfigError
from scar_cli.output import make_console

tls = typer.Typer(no_args_is_help=True, help="Certificates by which processes of a cluster know each other.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Where authority and certificates are.")]
Days = Annotated[float, typer.Option(min=0.01, help="How long the certificates last.")]


@tls.command("init")
def init_certificates(
    folder: Folder,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="Name of the cluster in its certificates.")] = (
        "scar"
    ),
    days: Days = 365,
    force: Annotated[bool, typer.Option("--force", help="Replace the authority that is there.")] = False,
) -> None:
    """Make an authority and a certificate for each role in DIR.

    Give each process the files of its role by SCAR_TLS_CERT, SCAR_TLS_KEY and SCAR_TLS_CA. Keep DIR/ca.key
    to yourself: only `scar tls renew` needs it.
    """
    from scar_local.authority import create_authority

    if (folder / "ca.key").exists() and not force:
        raise ConfigError(
            f"{folder} has an authority already",
            f"Renew its certificates by `scar tls renew {folder}`, or replace it by --force",
        )
    create_authority(folder, cluster, days)
    _print_files(folder, days)


@tls.command("renew")
def renew_certificates(folder: Folder, days: Days = 365) -> None:
    """Make new certificates for all roles by the authority in DIR. Processes that run take them over within
    seconds, without a restart.
    """
    from scar_local.authority import renew_certificates as renew

    renew(folder, days)
    _print_files(folder, days)


def _print_files(folder: Path, days: float) -> None:
    from scar_local.authority import role_variables

    screen = make_console()
    screen.print(f"certificates for {days:g} days in {folder}; to look at the cluster as its operator:")
    for variable, path in role_variables(folder, "operator").items():
        screen.print(f"  export {variable}={path}", soft_wrap=True, highlight=False, markup=False)
