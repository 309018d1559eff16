"""`scar console`: the live page of a cluster, until Ctrl-C or its end; or the page of a store's runs."""

from __future__ import annotations

from functools import partial

from scar.errors import ConfigError
from scar_admin.observer import ClusterObserver
from scar_admin.status import ProcessInfo
from scar_cli.checkpoints import job_names, open_signed
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, DirectTarget, find_cluster, read_status
from scar_cli.kill import send_local_signal
from scar_cli.output import make_console
from scar_cli.up import stop_signal
from scar_console.page_model import BREAKABLE
from scar_console.server import ConsoleServer, serve_cluster
from scar_console.stored_runs import stored_view
from scar_runtime.store import Store, open_store
from scar_runtime.store.signatures import find_key

STORE_SECONDS = 2.0  # at least, between two looks at a store


class ConsoleCluster:
    """The cluster that a command means, as the page has it. What is not on this machine is only looked at."""

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target
        self.can_kill = isinstance(target, DirectTarget) and target.directory is not None

    def observer(self) -> ClusterObserver:
        return self._target.observer()

    def processes(self) -> tuple[ProcessInfo, ...]:
        return self._target.processes()

    def ended(self) -> bool:
        return self._target.ended()

    def store(self) -> Store | None:
        """Of a cluster on this machine; credentials for others may not be here."""
        target = self._target
        state = target.state if isinstance(target, DirectTarget) else None
        return open_store(state.store, find_key(state.store)) if state is not None else None

    def kill(self, name: str) -> str:
        """A shard or a worker. Raises :class:`ConfigError` for others, and for one that does not run."""
        known = {process.name: process for process in self.processes()}
        if name in known and known[name].component not in BREAKABLE:
            raise ConfigError(
                f"the page kills shards and workers, not {name}", f"Use `scar kill {name}` in a terminal"
            )
        return f"{send_local_signal(self._target, name, 'KILL')} killed"


def run_console(ref: ClusterRef, port: int, interval: float, store: str) -> None:
    """``store``: of which the runs are shown; empty: the cluster.

    Raises :class:`ConfigError` when the cluster is not there, or the port is taken.
    """
    if store:
        return show_stored_runs(store, port, interval)
    target = find_cluster(ref)
    read_status(target)
    screen = make_console()
    with stop_signal() as stop:
        server = serve_cluster(ConsoleCluster(target), stop, port, interval)
        screen.print(f"[bold]the page:[/] {server.url}", soft_wrap=True)
        screen.print("Whoever has this URL sees the run and may break it. Ctrl-C ends the page alone.")
        server.run()
    if not stop.is_set():
        screen.print("the cluster has ended")
    return None


def show_stored_runs(url: str, port: int, interval: float) -> None:
    """Raises :class:`ConfigError` for a store that is not there, or a port that is taken."""
    root = open_signed(url)
    job_names(root)  # one that cannot be read is said here, and not on the page
    screen = make_console()
    with stop_signal() as stop:
        server = ConsoleServer(partial(stored_view, root), stop, port, max(interval, STORE_SECONDS))
        screen.print(f"[bold]the page:[/] {server.url}", soft_wrap=True)
        screen.print("It shows the runs of the store, and changes nothing. Ctrl-C ends it.")
        server.run()
