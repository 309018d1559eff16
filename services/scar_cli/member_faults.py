"""What the page may do to members of the cluster that it shows, and why it may not do the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from scar.errors import ConfigError
from scar_cli.clusters import ClusterTarget, DirectTarget, ReleaseTarget
from scar_cli.cut import CUT_NEEDS, cut_local, cut_problem
from scar_cli.freeze import freeze_local
from scar_cli.kill import send_local_signal
from scar_console.page_model import BREAKABLE

if TYPE_CHECKING:
    from scar_kube.release import Release

FREEZE_SECONDS = 5.0  # longer than a lease
CUT_SECONDS = 5.0  # the same
BY_ADDRESS = (
    "No buttons kill, freeze or cut here: of this cluster only an address is known. Use `scar console` in the"
    " folder of `scar up`, or `scar console --on kubernetes`."
)
NO_CHAOS = (
    "No buttons kill, freeze or cut here: the chart of this release does not allow it. `helm upgrade"
    " --reuse-values --set chaos.enabled=true` does."
)

BreakMember = Callable[[str], str]  # by its name; returns what was done


@dataclass(frozen=True)
class MemberFaults:
    """``offered``: by what the page calls them. ``missing``: why not the others, and what would allow it."""

    offered: Mapping[str, BreakMember] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def faults_of(target: ClusterTarget) -> MemberFaults:
    """Nothing for a cluster that is only looked at. Raises :class:`scar.errors.Unreachable`."""
    if isinstance(target, ReleaseTarget):
        return (
            _pod_faults(target.release) if target.release.allows_chaos else MemberFaults(missing=(NO_CHAOS,))
        )
    if not isinstance(target, DirectTarget) or target.directory is None:
        return MemberFaults(missing=(BY_ADDRESS,))
    here = {"kill": partial(_kill_here, target), "freeze": partial(_freeze_here, target)}
    if problem := cut_problem(target):
        return MemberFaults(here, (f"No cut: {problem}. {CUT_NEEDS}.",))
    return MemberFaults(here | {"cut": partial(_cut_here, target)})


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


def _pod_faults(release: Release) -> MemberFaults:
    from scar_kube.faults import cut_problem, signal_problem
    from scar_kube.pod_cut import ALLOWED

    offered: dict[str, BreakMember] = {}
    missing = []
    if problem := signal_problem(release):
        missing.append(f"No kill or freeze: {problem}. Ask for a role that has it.")
    else:
        offered |= {"kill": partial(_kill_pod, release), "freeze": partial(_freeze_pod, release)}
    if problem := cut_problem(release):
        missing.append(f"No cut: {problem}. {ALLOWED}.")
    else:
        offered["cut"] = partial(_cut_pod, release)
    return MemberFaults(offered, tuple(missing))


def _kill_pod(release: Release, name: str) -> str:
    from scar_kube.faults import send_signal

    send_signal(release, name, "KILL")
    return f"{name} killed"


def _freeze_pod(release: Release, name: str) -> str:
    from scar_kube.faults import freeze_pod

    return f"{freeze_pod(release, name, FREEZE_SECONDS)} frozen for {FREEZE_SECONDS:g} s"


def _cut_pod(release: Release, name: str) -> str:
    """When it is over: only then it is known that it was done."""
    from scar_kube.faults import cut_pod

    cut = cut_pod(release, name, CUT_SECONDS)
    cut.wait()
    return f"{cut.pod} was cut off for {CUT_SECONDS:g} s"
