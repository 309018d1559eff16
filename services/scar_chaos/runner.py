"""Runs: one, or a series of seeds, whose answer is whether every guarantee held."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from scar.errors import ScarError
from scar_chaos.chaos_run import ChaosRun, NotHealed, open_run
from scar_chaos.core.faults import Fault, fault_groups
from scar_chaos.core.schedule import FaultSpace, Schedule, draw_schedule
from scar_chaos.inject import inject_faults
from scar_chaos.options import ChaosOptions
from scar_chaos.oracles.cost import clock_rate, measure_cost, worker_lives
from scar_chaos.oracles.violation import Violation
from scar_chaos.report import report_json, report_table
from scar_chaos.results import GroupResult, RunResult
from scar_chaos.targets.base import ChaosTarget

CALM = 2.0  # seconds without faults, to know what is normal
PLAIN_WIDTH = 160  # columns when the output is no terminal

ShowLine = Callable[[str], None]
MakeTarget = Callable[[Path, Schedule], ChaosTarget]  # for one run, with a folder for its files
SaveReport = Callable[[int, dict[str, Any]], None]  # seed, report


def _show_nothing(_line: str) -> None:
    """Nobody looks."""


def run_schedule(
    target: ChaosTarget,
    schedule: Schedule,
    folder: Path,
    show: ShowLine = _show_nothing,
    job_name: str = "counting",
) -> RunResult:
    """Never raises for what the cluster does: that is in the result. ``folder``: for the history."""
    started = time.monotonic()
    result = RunResult(schedule)
    try:
        with open_run(target, folder, name=job_name, **schedule.options) as run:
            calm = _calm_rate(run)
            for faults in fault_groups(schedule.faults):
                group = _run_group(run, faults, calm)
                show(_group_line(group))
                result = replace(result, groups=(*result.groups, group))
                if result.violations:
                    break
            result = replace(result, workers=worker_lives(run.read_history()))
    except (ScarError, NotHealed, Violation) as error:
        result = replace(result, error=str(error))
    return replace(result, seconds=time.monotonic() - started)


def _calm_rate(run: ChaosRun) -> float:
    """Clocks a second of one worker when nothing is broken."""
    run.wait_healed()
    begin = time.monotonic()
    time.sleep(CALM)
    return clock_rate(run.read_history(), begin, time.monotonic() - CALM / 10)


def _run_group(run: ChaosRun, faults: list[Fault], calm: float) -> GroupResult:
    run.wait_clocks(faults[0].clock)
    epochs_before = len(run.read_epochs())
    failures_before = len(run.read_ledger())
    injected = inject_faults(run, faults)
    struck = injected[0].at
    healed = time.monotonic() - struck
    run.wait_saved(run.status())
    verdict = run.judge_at_rest()
    epochs = run.read_epochs()[epochs_before:]
    failures = run.read_ledger()[failures_before:]
    return GroupResult(
        faults=tuple(str(one.fault) for one in injected),
        missed=sum(not one.met for one in injected),
        healed=healed,
        cost=measure_cost(run.job, epochs, failures, run.read_history(), struck, calm),
        verdict=verdict,
    )


def _group_line(group: GroupResult) -> str:
    line = f"{' + '.join(group.faults)}: well again after {group.healed:.1f} s"
    return line + "".join(f"; VIOLATION: {text}" for text in group.verdict.violations)


# --- a series of seeds


class _Series:
    """Runs one after the other, and a report of each."""

    def __init__(self, options: ChaosOptions, command: str) -> None:
        self._options = options
        self._command = command
        self._screen = Console(
            stderr=True, width=None if sys.stderr.isatty() else PLAIN_WIDTH, highlight=False
        )
        self._results: list[RunResult] = []
        self._reports: list[dict[str, Any]] = []

    def run_seed(self, schedule: Schedule, make_target: MakeTarget) -> dict[str, Any]:
        """Returns the report. The files of a run that failed stay."""
        self._screen.print(f"[bold]{schedule}[/]")
        folder = Path(tempfile.mkdtemp(prefix=f"scar-chaos-{schedule.seed}-"))
        name = f"chaos-{schedule.seed}-{secrets.token_hex(3)}"  # a store has a job's name once
        result = run_schedule(make_target(folder, schedule), schedule, folder, self._show_line, name)
        if result.passed:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            reason = result.error or "a guarantee was violated"
            self._screen.print(f"  [bold red]{reason}[/]; what was recorded is in {folder}")
        report = report_json(result, self._options.replay_command(self._command, schedule.seed))
        self._results.append(result)
        self._reports.append(report)
        self._write_reports()
        return report

    def _show_line(self, line: str) -> None:
        self._screen.print(f"  {line}")

    def _write_reports(self) -> None:
        path = self._options.report
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._reports, indent=2) + "\n")

    def show_end(self) -> bool:
        """Show all results. Whether all passed."""
        if self._options.output == "json":
            sys.stdout.write(json.dumps(self._reports, indent=2) + "\n")
        else:
            self._show_table()
        failed = [report for report in self._reports if not report["passed"]]
        for report in failed:
            self._screen.print(
                f"[bold red]seed {report['seed']} failed[/]; play it again by: {report['replay']}"
            )
        return not failed

    def _show_table(self) -> None:
        screen = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
        screen.print(report_table(self._results))
        groups = sum(len(result.groups) for result in self._results)
        failed = sum(not result.passed for result in self._results)
        screen.print(f"{len(self._results)} runs, {groups} groups of faults, {failed} failed")


def _save_nowhere(_seed: int, _report: dict[str, Any]) -> None:
    """Nobody wants it."""


def run_series(
    options: ChaosOptions,
    command: str,
    make_target: MakeTarget,
    space: FaultSpace,
    save_report: SaveReport = _save_nowhere,
) -> bool:
    """Run all seeds; whether all passed.

    ``command``: that plays a seed again, without its options. ``save_report``: called with every report.
    """
    faults = options.parse_faults(space.played or space.kinds)
    series = _Series(options, command)
    for seed in range(options.seed, options.seed + options.runs):
        save_report(seed, series.run_seed(draw_schedule(seed, space, faults), make_target))
    return series.show_end()


def run_on_this_machine(options: ChaosOptions) -> bool:
    """Whether every run passed."""
    from scar_chaos.targets.local import KINDS, PLAYED, LocalTarget

    def make_target(folder: Path, schedule: Schedule) -> ChaosTarget:
        return LocalTarget(folder, standby=schedule.standby)

    space = replace(options.fault_space(KINDS), played=PLAYED)
    return run_series(options, "scar chaos", make_target, space)


def is_chaos_pod(environment: Mapping[str, str]) -> bool:
    """Whether this is the pod of a chaos job."""
    return "KUBERNETES_SERVICE_HOST" in environment and "SCAR_FULLNAME" in environment


def run_on_release(options: ChaosOptions, node_requests: str) -> bool:
    """Whether every run passed. For a pod of the release.

    ``node_requests``: ConfigMap in which to ask somebody outside to stop and start nodes; empty: nobody.
    """
    from scar_chaos.targets.kubernetes import KubernetesTarget
    from scar_chaos.targets.node_control import NodeControl
    from scar_chaos.targets.pod_api import save_config_map
    from scar_chaos.targets.release import ReleaseEnvironment
    from scar_kube.pods import COMPONENT, INSTANCE

    release = ReleaseEnvironment.of_this_pod()
    target = KubernetesTarget(release)
    owner = f"{release.fullname}-worker-template"
    if node_requests:
        target.control_nodes(NodeControl(target.api, node_requests, owner, release.node))
    labels = {"app.kubernetes.io/name": "scar", INSTANCE: release.release, COMPONENT: "chaos"}

    def make_target(_folder: Path, _schedule: Schedule) -> ChaosTarget:
        return target

    def save_report(seed: int, report: dict[str, Any]) -> None:
        name = f"{release.fullname}-chaos-report-{seed}"
        save_config_map(target.api, name, owner, labels, {"report.json": json.dumps(report, indent=2)})

    command = f"scar chaos --on kubernetes --namespace {release.namespace} --release {release.release}"
    space = options.fault_space(target.kinds, (target.shards,))
    return run_series(options, command, make_target, space, save_report)
