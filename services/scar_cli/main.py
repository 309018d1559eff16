"""The commands of `scar` in the order of its help, and what becomes of errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from scar.errors import ConfigError, ScarError
from scar.version import __version__
from scar.wire.timing import heartbeat_seconds
from scar_chaos.command import chaos
from scar_cli.commands.checkpoints import checkpoints
from scar_cli.commands.clusters import check_cluster, scale_cluster, start_cluster, stop_cluster
from scar_cli.commands.experiments import compare_strategies, run_experiment
from scar_cli.commands.jobs import jobs
from scar_cli.commands.tls import tls
from scar_cli.commands.training import run_demo, train_file
from scar_cli.commands.watching import (
    cut_process,
    freeze_process,
    kill_process,
    serve_console,
    show_failures,
    show_status,
    watch_cluster,
)
from scar_cli.options import unwrap_paragraphs
from scar_cli.output import print_error

EXAMPLES = """
Training that heals itself: a parameter server that puts back only what died.

[bold]First steps[/]

  scar demo                          train, kill servers, watch it heal
  scar train examples/mlr.py         your file, on a cluster just for it

[bold]A cluster that stays[/]

  scar up --shards 4                 start one here; Ctrl-C stops it
  scar train examples/mlr.py         in another terminal: uses it
  scar watch                         loss, servers, failures, live
  scar console                       the same in a browser
  scar kill ps-1                     pull the plug, and see
  scar scale 8                       more servers, or fewer, while it trains

[bold]Afterwards[/]

  scar failures                      what each failure cost, by phase
  scar jobs ls                       what the store has; rm frees it
  scar checkpoints verify            check all that a restart needs
  scar train examples/mlr.py --resume

[bold]On Kubernetes[/]

  helm install scar deploy/helm/scar --wait
  scar train examples/mlr.py --on kubernetes
  scar watch --on kubernetes         every command takes --context, --namespace, --release
"""

app = typer.Typer(
    help=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "up": start_cluster,
    "down": stop_cluster,
    "train": train_file,
    "status": show_status,
    "watch": watch_cluster,
    "console": serve_console,
    "scale": scale_cluster,
    "kill": kill_process,
    "freeze": freeze_process,
    "cut": cut_process,
    "failures": show_failures,
    "demo": run_demo,
    "compare": compare_strategies,
    "experiment": run_experiment,
    "chaos": chaos,
    "doctor": check_cluster,
}
for _name, _function in COMMANDS.items():
    app.command(_name, help=unwrap_paragraphs(_function))(_function)
app.add_typer(checkpoints, name="checkpoints")
app.add_typer(jobs, name="jobs")
app.add_typer(tls, name="tls")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"scar {__version__}")
        raise typer.Exit


@app.callback()
def _main_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options that need no command; the help is :data:`EXAMPLES`."""


def main() -> None:
    """Run a command. An expected error is one clear message and exit code 1, never a traceback.

    A wrong call has exit code 2.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its connection notes would break the tables
    try:
        heartbeat_seconds(os.environ)
        app()
    except ScarError as error:
        print_error(error)
    except OSError as error:
        print_error(
            ConfigError(
                f"{error.strerror or error}: {error.filename or ''}".rstrip(": "),
                "Check the path and its permissions",
            )
        )
    else:
        return
    raise SystemExit(1)


if __name__ == "__main__":
    main()
