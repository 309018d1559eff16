"""What the page may do to members of the cluster that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from scar.errors import ConfigError
from scar_cli.clusters import ClusterTarget, DirectTarget, ReleaseTarget
from scar_cli.cut import cut_local, cut_problem
from scar_cli.freeze import freeze_local
from scar_cli.kill import send_local_signal
from scar_console.page_model import BREAKABLE

FREEZE_SECONDS = 5.0  # longer than a lease
CUT_SECONDS = 5.0  # the same

BreakMember = Callable[[str], str]  # by its name; returns what was done


def faults_of(target: ClusterTarget) -> Mapping[str, BreakMember]:
    """By what the page calls them; none for a cluster that is only looked at."""
    if isinstance(target, DirectTarget) and target.directory is not None:
        here = {"kill": partial(_kill_here, target), "freeze": partial(_freeze_here, target)}
        return here if cut_problem(target) else here | {"cut": partial(_cut_here, target)}
    if isinstance(target, ReleaseTarget) and target.release.allows_chaos:
        return {how: partial(_break_pod, target, how) for how in ("kill", "freeze")}
    return {}


def check_breakable(target: ClusterTarget, name: str) -> None:
    """Raises :class:`ConfigError` for what is neither a shard nor a worker."""
    known = {process.name: process for process in target.processes()}
    if name in known and known[name].component not in BREAKABLE:
        raise ConfigError(
            f"the page breaks shards and workers, not {name}", f"Use `scar kill {name}` in a terminal"
        )


def _kill_here(target: ClusterTarget, name: str) -> str:
    return f"{send_local_signal(target, name, 'KILL')} killed"


def _freeze_here(target: ClusterTarget, name: str) -> str:
    return f"{freeze_local(target, name, FREEZE_SECONDS)} frozen for {FREEZE_SECONDS:g} s"


def _cut_here(target: ClusterTarget, name: str) -> str:
    return f"{cut_local(target, name, CUT_SECONDS)} cut off for {CUT_SECONDS:g} s"


def _break_pod(target: ReleaseTarget, how: str, name: str) -> str:
    from scar_kube.faults import freeze_pod, send_signal

    if how == "kill":
        send_signal(target.release, name, "KILL")
        return f"{name} killed"
    freeze_pod(target.release, name, FREEZE_SECONDS)
    return f"{name} frozen for {FREEZE_SECONDS:g} s"
