"""``scar demo``: trains, kills half of the servers, recovers, converges; three runs, one report.

build/demo/report.json  report.html  curves.png  <run>/logs/*.log
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from scar import datasets
from scar.errors import ConfigError, ScarError
from scar_cli.demo.report import DemoReport, DemoRun
from scar_cli.demo.runs import PLANS, SHARDS, DemoSetting, ShowCluster, TellProgress, run_plan
from scar_cli.demo.runs import DemoProgress as Step
from scar_local import LocalCluster

OUTPUT = Path("build/demo")
EPSILONS = {"mnist": 0.575, "digits": 0.683}  # about 60 iterations
FULL_PERIOD = PLANS[-1].checkpoint.period
# Just before a full checkpoint, full recovery loses most. A partial one is as good at any time.
KILL_AT = 6 * FULL_PERIOD - 1


def run_demo(output: Path = OUTPUT, dataset: str = "auto", seed: int = 1, web: bool = False) -> int:
    """Run everything and print the report. ``web``: show the runs on a live page as well.

    Exit code 0: every check passed; 1: not, or the demo could not run.
    """
    console = Console()
    try:
        with _open_page(console) if web else nullcontext(_show_nobody) as show:
            report = _make_report(output, dataset, seed, console, show)
    except ScarError as error:
        console.print(f"[red]The demo failed:[/] {escape(str(error))}", highlight=False)
        return 1
    _print_report(report, output, console)
    return 0 if report.passed else 1


def _show_nobody(_cluster: LocalCluster | None) -> None: ...


@contextmanager
def _open_page(console: Console) -> Iterator[ShowCluster]:
    from scar_cli.demo.stage import open_stage
    from scar_cli.desktop import open_browser

    with open_stage() as stage:
        console.print(f"[bold]the page:[/] {stage.url}", soft_wrap=True, highlight=False)
        open_browser(stage.url)
        yield stage.show


def _make_report(output: Path, dataset: str, seed: int, console: Console, show: ShowCluster) -> DemoReport:
    try:
        from scar_cli.demo import plots
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(f"the demo needs {package}", "Run: pip install 'scar-ps[demo]'") from error
    if dataset != "digits":
        console.print(
            "Looking for MNIST in $SCAR_DATA and in the cache; else 11 MB are downloaded, if there is a"
            " network"
        )
    data = datasets.load(dataset)
    console.print(f"Data: [bold]{data.origin}[/], {len(data):,} images", highlight=False)
    victims = sorted(random.Random(seed).sample([f"ps-{number}" for number in range(SHARDS)], SHARDS // 2))
    setting = DemoSetting(output, data.name, EPSILONS[data.name], seed, KILL_AT, victims, show)
    report = DemoReport(data.name, data.origin, setting.epsilon, seed, _run_plans(setting, console))
    image = plots.draw_picture(report)
    (output / "curves.png").write_bytes(image)
    (output / "report.html").write_text(plots.html_page(report), encoding="utf-8")
    (output / "report.json").write_text(json.dumps(report.document(), indent=1) + "\n", encoding="utf-8")
    return report


def _run_plans(setting: DemoSetting, console: Console) -> list[DemoRun]:
    """All three, one after the other: each has the cores for itself, so that their times can be compared."""
    columns = (
        TextColumn("{task.description:<17}"),
        BarColumn(20),
        TextColumn("{task.completed:>3.0f} iterations  loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=8) as bars:
        runs: list[DemoRun] = []
        tasks = [bars.add_task(plan.name, total=None, start=False, loss="-") for plan in PLANS]
        for plan, task in zip(PLANS, tasks, strict=True):
            bars.start_task(task)
            runs.append(run_plan(plan, setting, _progress_teller(bars, task, plan.name)))
            done = len(runs[-1].losses)
            bars.update(task, completed=done, total=done)
            bars.stop_task(task)
        return runs


def _progress_teller(bars: Progress, task: TaskID, name: str) -> TellProgress:
    """Shows the steps of one run.

    What happens is printed, so that a log without bars tells the story, too.
    """

    def tell(step: Step) -> None:
        if step.loss is not None:
            bars.update(task, completed=step.iterations, loss=f"{step.loss:.4f}")
        if step.event:
            bars.console.print(f"{name}: {step.event} after {step.iterations} iterations", highlight=False)

    return tell


def _print_report(report: DemoReport, output: Path, console: Console) -> None:
    from scar_cli.demo.plots import table_cells, table_headings

    table = Table(
        title=f"{report.dataset}, loss <= {report.epsilon}: one failure of {SHARDS // 2} of {SHARDS} servers"
    )
    for heading in table_headings(report):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for entry in table_cells(report):
        table.add_row(*entry)
    console.print(table)
    for check in report.checks:
        mark = "[green]passed[/]" if check.passed else "[red]FAILED[/]"
        console.print(f"{mark} {check.name} ({check.detail})", highlight=False)
    console.print(
        f"Report: {output / 'report.html'}, {output / 'report.json'}, {output / 'curves.png'}",
        highlight=False,
    )
