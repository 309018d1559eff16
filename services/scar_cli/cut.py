"""`scar cut`: a process of this machine, or a pod, is without network for some seconds."""

from __future__ import annotations

from scar.errors import ConfigError
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, DirectTarget, find_cluster, find_release
from scar_cli.kill import running_process
from scar_cli.output import make_console
from scar_local.cuts import begin_cut

CUT_NEEDS = "It takes Linux 5.6, and a sandbox that lets a parent copy its children's sockets"


def cut_process(ref: ClusterRef, name: str, seconds: float) -> None:
    """Of a release: returns when it is over, since only then it is known that it was done.

    Raises :class:`ConfigError` for a name that is not there or does not run now, and where the system does
    not let it be done.
    """
    if ref.release is None:
        return _print_cut(ref, f"cut off[/] {cut_local(find_cluster(ref), name, seconds)}", seconds)
    from scar_kube.faults import cut_pod

    with find_release(ref.release) as release:
        cut = cut_pod(release, name, seconds)
        _print_cut(ref, f"cutting off[/] {cut.pod}", seconds)
        cut.wait()
    return None


def _print_cut(ref: ClusterRef, what: str, seconds: float) -> None:
    make_console().print(
        f"[bold yellow]{what} for {seconds:g} s; see `scar watch{ref.options()}`", soft_wrap=True
    )


def cut_problem(target: ClusterTarget) -> str:
    """Why processes of this cluster cannot be cut off; empty: they can."""
    if not isinstance(target, DirectTarget) or target.directory is None or target.state is None:
        return "it is not a cluster of this machine"
    return target.state.cut_problem


def cut_local(target: ClusterTarget, name: str, seconds: float) -> str:
    """Returns its name with its pid, once it is cut off. Whoever supervises it ends the cut.

    Raises :class:`ConfigError` as :func:`cut_process`.
    """
    process = running_process(target, name)
    problem = cut_problem(target)
    if problem or not isinstance(target, DirectTarget) or target.directory is None:
        raise ConfigError(
            f"{name} cannot be cut off: {problem}",
            f"{CUT_NEEDS}. `scar freeze {name}` needs neither: it is silent, too, but does nothing meanwhile",
        )
    begin_cut(target.directory, target.processes, name, seconds)
    return f"{name} (pid {process.pid})"
