"""What the commands with many options are asked for: each field is an option, with its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from scar_cli.cluster_ref import ClusterRef
from scar_cli.options import ClusterName, OutputOption, RecordedOnly, RedisUrl, ShardCount, StoreUrl
from scar_cli.output import OutputFormat
from scar_compare.strategy_options import DEFAULT_STRATEGIES, SERVER_SIDE, WORKER_SIDE

DEFAULT_SHARDS = 4


@dataclass(frozen=True)
class UpRequest:
    """What `scar up` was asked for."""

    cluster: ClusterName = "local"
    shards: ShardCount = None
    store: StoreUrl = ""
    redis: RedisUrl = ""
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is up; `scar down` stops it.")
    ] = False
    web: Annotated[bool, typer.Option("--web", help="With its page, as of `scar console`.")] = False
    tls: Annotated[bool, typer.Option("--tls", help="Processes know each other by certificates.")] = False

    @property
    def shard_count(self) -> int:
        """How many shards are started."""
        return self.shards or DEFAULT_SHARDS

    @property
    def cluster_option(self) -> str:
        """By which other commands mean this cluster; begins with a space."""
        return "" if self.cluster == "local" else f" --cluster {self.cluster}"


@dataclass(frozen=True)
class TrainRequest:
    """What `scar train` was asked for."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Python file with `job = scar.Job(...)` and `def train(worker)`."
        ),
    ]
    ref: ClusterRef
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENTS]", help="For the file, which finds them in sys.argv."),
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Workers; default: what the job asks for.")] = (
        None
    )
    shards: ShardCount = None
    name: Annotated[str, typer.Option(metavar="JOB", help="Another name for the job: it starts afresh.")] = ""
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue this job from its newest checkpoint.")
    ] = False
    force: Annotated[
        bool, typer.Option("--force", help="With --resume: even if another cluster trains it.")
    ] = False
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors", help="Tables begin with its tensors of their names, in all of them."
        ),
    ] = None
    store: StoreUrl = ""
    redis: RedisUrl = ""
    image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="On Kubernetes: image of the workers; default: the release's own."
        ),
    ] = ""
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Recovery strategy: partial, sync-chain, ..., auto; default: the file's."
        ),
    ] = ""
    replicas: Annotated[
        int | None, typer.Option(min=0, help="Other shards that keep a copy of every block.")
    ] = None
    sources: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Where lost blocks come back from: checkpoint, workers; default: the file's."
        ),
    ] = ""
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Otherwise than the file says, also with --resume: lr=0.01, table.w.lr=0.01,"
            " checkpoint.period=16, consistency, staleness, workers; repeatable.",
        ),
    ] = None
    replicate: Annotated[
        str,
        typer.Option(
            metavar="WHAT", help="What replicas keep: all, missing (from workers); default: the file's."
        ),
    ] = ""
    pull_slots: Annotated[
        int | None,
        typer.Option(
            min=0, help="Workers that pull optimizer slots with whole tables, to give them back (bsp)."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what the workers print.")] = False

    @property
    def file_arguments(self) -> tuple[str, ...]:
        """What the file finds in sys.argv after its name."""
        return tuple(self.arguments or ())


@dataclass(frozen=True)
class CompareRequest:
    """What `scar compare` was asked for; without ``strategies`` or ``kill``: the usual ones."""

    ref: ClusterRef
    strategies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STRATEGY...",
            help=f"Server-side: {', '.join(SERVER_SIDE)}. Worker-side: {', '.join(WORKER_SIDE)}. Default:"
            f" {', '.join(DEFAULT_STRATEGIES)}.",
        ),
    ] = None
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME@CLOCK", help="SIGKILL at a clock; repeatable. [ps-1@20, worker-1@40]"),
    ] = None
    seeds: Annotated[
        int, typer.Option(min=1, help="Trainings of each strategy; intervals need at least 3.")
    ] = 3
    seed: Annotated[int, typer.Option(help="The first of them.")] = 1
    goal: Annotated[float, typer.Option(min=0.01, help="Loss at which a training is over.")] = 0.6
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Records, summary and figure.")] = Path(
        "build/compare"
    )
    recorded: RecordedOnly = False
    output: OutputOption = OutputFormat.text


@dataclass(frozen=True)
class ExperimentRequest:
    """What `scar experiment` was asked for."""

    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="fig3, fig5 to fig9, real, sources, sweep, budget, calibration, simulate,"
            " which-strategy, through-failure, or all.",
        ),
    ]
    trials: Annotated[
        int,
        typer.Option(
            "--trials", "--runs", min=0, help="Trials of each panel; 0: as many as the figure needs."
        ),
    ] = 0
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 1
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Records, summaries and figures.")] = Path(
        "build/experiments"
    )
    jobs: Annotated[int, typer.Option(min=1, help="Processes; each uses one core.")] = 1
    quick: Annotated[bool, typer.Option("--quick", help="Few trials on thinned data: a first look.")] = False
    panel: Annotated[
        list[str] | None, typer.Option(metavar="MODEL-DATA", help="Only this panel; repeatable.")
    ] = None
    lost: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Lost fraction (fig7, fig8); repeatable.")
    ] = None
    fraction: Annotated[
        list[float] | None, typer.Option(min=0.001, max=1, help="r (fig8): saved in a round; repeatable.")
    ] = None
    period: Annotated[int, typer.Option(min=1, help="Iterations between full checkpoints, C.")] = 8
    mean: Annotated[
        float, typer.Option(min=0.01, max=10, help="Mean failure iteration, of those undisturbed.")
    ] = 0.5
    gain: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="Converged: this share of the horizon's gain.")
    ] = None
    horizon: Annotated[int, typer.Option(min=2, help="Undisturbed iterations that set the criterion.")] = 60
    pending: Annotated[
        bool, typer.Option("--pending", help="A failure finds the round that is due not done yet.")
    ] = False
    unweighted: Annotated[
        bool, typer.Option("--unweighted", help="Compare distances without weights of blocks.")
    ] = False
    block_rows: Annotated[int, typer.Option(min=1, help="Rows that are one block (fig7, fig8: MLR, MF).")] = 1
    recorded: RecordedOnly = False
    output: OutputOption = OutputFormat.text
