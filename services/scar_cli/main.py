"""Every command, its options and its help; what they do is in the module of the same name, loaded only when it is needed."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scar.errors import ConfigError, ScarError
from scar_chaos.command import chaos
from scar_cli.options import placed
from scar_cli.output import Output, fail
from scar_cli.places import Place

EXAMPLES = """
Training that heals itself: a parameter server that puts back only what died.

[bold]First steps[/]

  scar demo                          train, kill servers, watch it heal
  scar train examples/mlr.py         your file, on a cluster just for it

[bold]A cluster that stays[/]

  scar up --shards 4                 start one here; Ctrl-C stops it
  scar train examples/mlr.py         in another terminal: uses it
  scar watch                         loss, servers, failures, live
  scar kill ps-1                     pull the plug, and see

[bold]Afterwards[/]

  scar failures                      what each failure cost, by phase
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
checkpoints = typer.Typer(no_args_is_help=True, help="Read the running checkpoint in the store; no cluster needs to run.")
app.add_typer(checkpoints, name="checkpoints")

Cluster = Annotated[str, typer.Option("--cluster", "-c", metavar="NAME", help="The cluster in ./.scar/NAME.")]
Json = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")]
Store = Annotated[str, typer.Option(metavar="URL", help="file:///folder or s3://bucket/prefix; default: the cluster's.")]
Redis = Annotated[str, typer.Option(metavar="URL", help="A Redis that runs, redis://host:port/0; default: one of its own.")]
JobName = Annotated[str, typer.Option("--job", metavar="NAME", help="The job; default: the only one in the store.")]
Number = Annotated[int, typer.Argument(help="Number of the manifest; 0: the newest.")]
Shards = Annotated[int | None, typer.Option(min=1, help="Parameter server shards; default: what the job asks for, or 4.")]


class Signal(StrEnum):
    """What `scar kill` can send."""

    KILL = "KILL"
    STOP = "STOP"
    CONT = "CONT"
    TERM = "TERM"


@app.command()
def up(
    cluster: Cluster = "local",
    shards: Shards = None,
    store: Store = "",
    redis: Redis = "",
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when it is up; `scar down` stops it.")] = False,
) -> None:
    """Start a cluster on this machine and keep it up; Ctrl-C stops all of it.

    Every service is a process of its own, and comes back when it dies. Logs and (unless --store says otherwise) checkpoints
    are in ./.scar/NAME.

    Examples: [bold]scar up --shards 8[/] · [bold]scar up --detach && scar train examples/mlr.py && scar down[/]
    """
    from scar_cli.up import Plan, run, run_detached

    plan = Plan(cluster, shards or 4, store, redis)
    if detach:
        run_detached(plan)
    else:
        run(plan)


@app.command()
def down(cluster: Cluster = "local") -> None:
    """Stop a cluster that runs on this machine: one last checkpoint, then every process."""
    from scar_cli.up import stop

    stop(cluster)


@app.command()
@placed()
def train(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Python file with `job = scar.Job(...)` and `def train(worker)`.")
    ],
    place: Place,
    workers: Annotated[int | None, typer.Option(min=1, help="Workers; default: what the job asks for.")] = None,
    shards: Shards = None,
    name: Annotated[str, typer.Option(metavar="JOB", help="Another name for the job, to start it anew.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with this job from its newest checkpoint.")] = False,
    store: Store = "",
    redis: Redis = "",
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="On Kubernetes: image of the workers; default: the release's own.")
    ] = "",
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="Recovery strategy: partial, sync-chain, ...; default: the file's.")
    ] = "",
    replicas: Annotated[int | None, typer.Option(min=0, help="Other shards that keep a copy of every block.")] = None,
) -> None:
    """Train FILE: on the cluster of `scar up` when there is one, else on a cluster that lives as long as the training.

    With --on kubernetes the file is sent to a release of the chart, whose workers run it: no image has to be built. Ctrl-C
    only stops watching; the same command comes back to the training.

    Examples: [bold]scar train examples/mlr.py[/] · [bold]scar train examples/mlr.py --workers 4 --shards 8[/] ·
    [bold]scar train examples/mlr.py --resume[/] · [bold]scar train examples/mlr.py --on kubernetes --namespace ml[/] ·
    [bold]scar train examples/mlr.py --strategy sync-chain --shards 3[/]
    """
    from scar_cli.train import Plan, run

    run(Plan(file, place, workers, shards, name, resume, store, redis, image, strategy, replicas))


@app.command()
@placed(recovery=True)
def status(place: Place, output: Json = Output.text) -> None:
    """One look at a cluster: job, clock, loss, every service, and what it waits for."""
    from scar_cli.status import run

    run(place, output)


@app.command()
@placed(recovery=True)
def watch(
    place: Place,
    interval: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="Time between two looks.")] = 0.5,
) -> None:
    """Loss curve, shards, workers and failures as they happen, until Ctrl-C. Without a terminal: a line at every change."""
    from scar_cli.watch import run

    run(place, interval)


@app.command()
@placed()
def kill(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A process, as `scar status` lists it: ps-0, worker-1, recovery-0.")
    ],
    place: Place,
    signal: Annotated[
        Signal, typer.Option(help="KILL: it dies at once. STOP/CONT: freeze/wake. TERM: it may tidy up.")
    ] = Signal.KILL,
) -> None:
    """Break something on purpose and watch it heal. On Kubernetes: a signal to the process in that pod.

    Examples: [bold]scar kill ps-0[/] · [bold]scar kill ps-1 --signal STOP[/], later [bold]scar kill ps-1 --signal CONT[/]
    """
    from scar_cli.kill import run

    run(place, name, signal.value)


@app.command()
@placed(recovery=True)
def failures(place: Place, output: Json = Output.text) -> None:
    """The ledger: for each failure what was lost, where it came back from, and the seconds of every phase."""
    from scar_cli.failures import run

    run(place, output)


@checkpoints.command("ls")
@placed()
def checkpoints_ls(place: Place, job: JobName = "", store: Store = "", output: Json = Output.text) -> None:
    """All manifests in the store, oldest first."""
    from scar_cli.checkpoints import listing, open_job

    listing(open_job(place, job, store), output)


@checkpoints.command("show")
@placed()
def checkpoints_show(place: Place, number: Number, job: JobName = "", store: Store = "", output: Json = Output.text) -> None:
    """One manifest: its objects, and how many blocks a restore would take from each."""
    from scar_cli.checkpoints import open_job, show

    show(open_job(place, job, store), number, output)


@checkpoints.command("verify")
@placed()
def checkpoints_verify(
    place: Place, number: Number = 0, job: JobName = "", store: Store = "", output: Json = Output.text
) -> None:
    """Read everything that a restore would read: the chain of manifests, every header, the checksum of every block.

    Exit code 1 when anything is damaged. Without a number all manifests that stay restorable are checked.
    """
    from scar_cli.checkpoints import open_job
    from scar_cli.verify import run

    run(open_job(place, job, store), number, output)


@checkpoints.command("export")
@placed()
def checkpoints_export(
    file: Annotated[Path, typer.Argument(metavar="FILE.safetensors", help="Where to write the tables.")],
    place: Place,
    number: Number = 0,
    job: JobName = "",
    store: Store = "",
) -> None:
    """Put the tables of a checkpoint together in one safetensors file."""
    from scar_cli.checkpoints import open_job
    from scar_cli.export import run

    run(open_job(place, job, store), number, file)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes.")] = Path("build/demo"),
    dataset: Annotated[str, typer.Option(help="auto, mnist or digits.")] = "auto",
    seed: Annotated[int, typer.Option(help="Chooses the servers that die.")] = 1,
) -> None:
    """Train, kill half of the servers, watch the cluster heal, and compare with a restart from a full checkpoint."""
    from scar_cli.demo.main import main as run_demo

    raise SystemExit(run_demo(output, dataset, seed))


@app.command()
@placed()
def compare(
    place: Place,
    strategies: Annotated[
        list[str] | None,
        typer.Argument(metavar="STRATEGY...", help="Server-side or worker-side strategies; default: a few of both."),
    ] = None,
    kill: Annotated[
        list[str] | None, typer.Option(metavar="NAME@CLOCK", help="SIGKILL at a clock; repeatable. [ps-1@20, worker-1@40]")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each strategy; intervals need at least 3.")] = 3,
    seed: Annotated[int, typer.Option(help="The first of them.")] = 1,
    goal: Annotated[float, typer.Option(min=0.01, help="Loss at which a training is over.")] = 0.6,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Records, summary and figure.")] = Path("build/compare"),
    recorded: Annotated[bool, typer.Option("--recorded", help="Run nothing; report what is recorded.")] = False,
    output: Json = Output.text,
) -> None:
    """Strategies side by side: real trainings with the same seeds and the same kills; one table with 95 % intervals, one plot.

    Server-side strategies say what happens when a server dies: partial, full, sync-checkpoint, async-checkpoint, sync-chain,
    async-chain. Worker-side ones when a worker does: ps (it comes back and does the lost iteration again, clocks wait), ckpt
    (everything goes back to a checkpoint), ignr (the others take over its data), ignr-drop (nobody does).
    Each is trained on a cluster of its own (3 workers, 4 servers), or on a release of the chart with --on kubernetes. Rework
    is what a strategy needs beyond the undisturbed training of the same seed. A run that was stopped goes on where it was.

    Examples: [bold]scar compare[/] · [bold]scar compare partial full --kill ps-0@15 --kill ps-2@30 --seeds 5[/] ·
    [bold]scar compare ps ckpt ignr ignr-drop --kill worker-1@20 -o json[/] · [bold]scar compare partial full --on kubernetes[/]
    """
    from scar_cli.compare import run

    run(place, strategies or (), kill or (), goal, seeds, seed, out, recorded, output)


@app.command()
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="fig3, fig5 to fig9, real, sweep, simulate, which-strategy, through-failure, or all."
        ),
    ],
    trials: Annotated[
        int, typer.Option("--trials", "--runs", min=0, help="Trials of each panel; 0: as many as the figure needs.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Records, summaries and figures.")] = Path("build/experiments"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes; each uses one core.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Few trials on thinned data: a first look.")] = False,
    panel: Annotated[list[str] | None, typer.Option(metavar="MODEL-DATA", help="Only this panel; repeatable.")] = None,
    lost: Annotated[list[float] | None, typer.Option(min=0, max=1, help="Lost fraction (fig7, fig8); repeatable.")] = None,
    fraction: Annotated[
        list[float] | None, typer.Option(min=0.001, max=1, help="r (fig8): saved in a round; repeatable.")
    ] = None,
    period: Annotated[int, typer.Option(min=1, help="Iterations between full checkpoints, C.")] = 8,
    mean: Annotated[float, typer.Option(min=0.01, max=10, help="Mean failure iteration, of those undisturbed.")] = 0.5,
    gain: Annotated[float | None, typer.Option(min=0.01, max=1, help="Converged: this share of the horizon's gain.")] = None,
    horizon: Annotated[int, typer.Option(min=2, help="Undisturbed iterations that set the criterion.")] = 60,
    pending: Annotated[bool, typer.Option("--pending", help="A failure finds the round that is due not done yet.")] = False,
    unweighted: Annotated[bool, typer.Option("--unweighted", help="Compare distances without weights of blocks.")] = False,
    recorded: Annotated[bool, typer.Option("--recorded", help="Run nothing; report what is recorded.")] = False,
    output: Json = Output.text,
) -> None:
    """Make figures of the paper again, with 95 % intervals. A run that was stopped goes on where it was.

    Examples: [bold]scar experiment all --quick[/] · [bold]scar experiment fig7 --panel mlr-fashion-mnist --lost 0.3 --jobs 2[/]
    """
    from scar_cli.experiment import options, run

    given = {"trials": trials, "seed": seed, "out": out, "jobs": jobs, "quick": quick, "panels": panel, "lost": lost}
    given |= {"fractions": fraction, "period": period, "mean": mean, "gain": gain, "horizon": horizon}
    run(name, options(**given, pending=pending, unweighted=unweighted, recorded=recorded), output)


app.command()(chaos)


@app.command()
@placed(recovery=True)
def doctor(place: Place, store: Store = "", redis: Redis = "", output: Json = Output.text) -> None:
    """Check this machine and a cluster, if one runs: each line says what is wrong and how to mend it."""
    from scar_cli.doctor import run

    run(place, store, redis, output)


def main() -> None:
    """Entry point: an expected error is one clear message and exit code 1, never a traceback; a wrong call is 2."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its connection notes would break the tables
    try:
        app()
    except ScarError as error:
        fail(error)
    except OSError as error:
        fail(
            ConfigError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), "Check the path and its permissions")
        )
    else:
        return
    raise SystemExit(1)


if __name__ == "__main__":
    main()
