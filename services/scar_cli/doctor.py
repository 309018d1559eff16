"""`scar doctor`: is this machine fit, and is the cluster well? Each line is ok, warn or fail, with a fix."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from scar_cli import output
from scar_cli.certificate_checks import check_certificates
from scar_cli.checks import (
    HealthCheck,
    check_clock,
    check_cluster,
    check_disk,
    check_packages,
    check_ports,
    check_python,
    check_redis,
    check_store,
)
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import DirectTarget, running_cluster
from scar_cli.output import OutputFormat
from scar_cli.story import show_story as run_story

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def run_doctor(ref: ClusterRef, store: str, redis: str, story: str, last: int, form: OutputFormat) -> None:
    """``story``: the process whose last events are shown instead. Exit code 1 when a check failed."""
    if story:
        return run_story(ref, story, last, form)
    return run_checks(ref, store, redis, form)


def run_checks(ref: ClusterRef, store: str, redis: str, form: OutputFormat) -> None:
    checks = [check_python(), *check_packages(), check_ports(), check_disk(Path()), check_clock()]
    if ref.release is not None:
        from scar_cli.release_checks import check_release as release_checks

        checks += release_checks(ref.release)
    else:
        target = DirectTarget(ref.recovery) if ref.recovery else running_cluster(ref.cluster)
        state = target.state if target else None
        store = store or (state.store if state else "")
        redis = redis or (state.redis if state else "")
        checks += [check_redis(redis), *([check_store(store)] if store else [])]
        if target:
            checks += check_certificates(target.certificates)
        checks += (
            check_cluster(target)
            if target
            else [HealthCheck("cluster", "ok", "none runs here; start one by `scar up`")]
        )

    def text(screen: Console) -> None:
        for check in checks:
            screen.print(
                f"[{COLOURS[check.level]}]{check.level:4}[/] {check.name:10} {escape(check.detail)}",
                soft_wrap=True,
            )
            if check.fix:
                screen.print(f"     {'':10} [bold]fix:[/] {escape(check.fix)}", soft_wrap=True)

    output.print_result(form, {"ok": _all_passed(checks), "checks": [vars(check) for check in checks]}, text)
    if not _all_passed(checks):
        raise SystemExit(1)


def _all_passed(checks: list[HealthCheck]) -> bool:
    return all(check.level != "fail" for check in checks)
