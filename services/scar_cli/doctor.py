"""`scar doctor`: is this machine fit, and is the cluster well? Each line is ok, warn or fail, with the way to mend it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from scar_cli import output
from scar_cli.checks import (
    Check,
    check_clock,
    check_cluster,
    check_disk,
    check_packages,
    check_ports,
    check_python,
    check_redis,
    check_store,
)
from scar_cli.clusters import Target, running
from scar_cli.output import Output
from scar_cli.places import Place

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def run(place: Place, store: str, redis: str, form: Output) -> None:
    """Exit code 1 when a check failed."""
    checks = [check_python(), *check_packages(), check_ports(), check_disk(Path()), check_clock()]
    if place.release is not None:
        from scar_cli.release import checks as release_checks

        checks += release_checks(place.release)
    else:
        target = Target(place.recovery) if place.recovery else running(place.cluster)
        state = target.state if target else None
        store, redis = store or (state.store if state else ""), redis or (state.redis if state else "")
        checks += [check_redis(redis), *([check_store(store)] if store else [])]
        checks += check_cluster(target) if target else [Check("cluster", "ok", "none runs here; start one by `scar up`")]

    def text(screen: Console) -> None:
        for check in checks:
            screen.print(f"[{COLOURS[check.level]}]{check.level:4}[/] {check.name:10} {escape(check.detail)}", soft_wrap=True)
            if check.fix:
                screen.print(f"     {'':10} [bold]fix:[/] {escape(check.fix)}", soft_wrap=True)

    output.show(form, {"ok": _healthy(checks), "checks": [vars(check) for check in checks]}, text)
    if not _healthy(checks):
        raise SystemExit(1)


def _healthy(checks: list[Check]) -> bool:
    return all(check.level != "fail" for check in checks)
