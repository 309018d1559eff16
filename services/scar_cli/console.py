"""`scar console`: the live page of a cluster, until Ctrl-C or its end; or the page of a store's runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scar.errors import ConfigError
from scar_admin.log_text import LogReader
from scar_admin.observer import ClusterObserver
from scar_admin.status import ProcessInfo
from scar_cli.checkpoints import job_names, open_signed
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, DirectTarget, ReleaseTarget, find_cluster, read_status
from scar_cli.desktop import open_browser
from scar_cli.member_faults import check_breakable, faults_of
from scar_cli.output import make_console
from scar_cli.up import stop_signal
from scar_console.server import ConsoleServer, serve_cluster, served_beside
from scar_console.stored_runs import stored_view
from scar_local import ClusterDirectory
from scar_local.cluster_logs import ClusterLogs
from scar_runtime.store import Store, open_store
from scar_runtime.store.signatures import find_key

TOKEN = re.compile(r"[A-Za-z0-9_-]{16,}")
STORE_SECONDS = 2.0  # at least, between two looks at a store


class ConsoleCluster:
    """The cluster that a command means, as the page has it. ``own_release``: name of the one in whose pod
    this process runs, for its logs; empty: it does not, or may not read them.
    """

    def __init__(self, target: ClusterTarget, own_release: str = "") -> None:
        self._target = target
        self._own_release = own_release
        faults = faults_of(target)
        self._offered = faults.offered
        self.can_break = tuple(faults.offered)
        self.cannot_break = faults.missing

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

    def logs(self) -> LogReader | None:
        """Of processes of this machine, or of a release's pods."""
        if self._own_release:
            from scar_kube.in_cluster import OwnRelease
            from scar_kube.pod_logs import PodLogs

            return PodLogs(OwnRelease(self._own_release))
        target = self._target
        if isinstance(target, DirectTarget):
            return ClusterLogs(ClusterDirectory(target.directory).logs) if target.directory else None
        return target.logs() if isinstance(target, ReleaseTarget) else None

    def break_member(self, how: str, name: str) -> str:
        """A shard or a worker. Raises :class:`ConfigError` for others, and for one that does not run."""
        check_breakable(self._target, name)
        return self._offered[how](name)


@dataclass(frozen=True)
class ConsoleOptions:
    """``port`` 0: any that is free. ``interval``: seconds between looks. ``store``: URL of the one of which
    the runs are shown; empty: the cluster. ``token_file``: has the token of the URL; None: one is made.
    ``own_release``: see :class:`ConsoleCluster`. ``browse``: open the page in the desktop's browser.
    """

    port: int = 0
    interval: float = 0.5
    store: str = ""
    token_file: Path | None = None
    own_release: str = ""
    browse: bool = False

    def read_token(self) -> str:
        """Empty: none is given. Raises :class:`ConfigError` for one that can be guessed."""
        if self.token_file is None:
            return ""
        try:
            token = self.token_file.read_text().strip()
        except OSError as error:
            raise ConfigError(
                f"{self.token_file} cannot be read: {error.strerror}",
                "Name a file with the token",
            ) from error
        if not TOKEN.fullmatch(token):
            raise ConfigError(
                f"{self.token_file} has no token of at least 16 letters, digits, - and _",
                f"Make one: python -c 'import secrets; print(secrets.token_urlsafe())' > {self.token_file}",
            )
        return token


def run_console(ref: ClusterRef, options: ConsoleOptions) -> None:
    """Raises :class:`ConfigError` when the cluster or the store is not there, or the port is taken."""
    token = options.read_token()
    if options.store:
        return show_stored_runs(options, token)
    target = find_cluster(ref)
    read_status(target)
    cluster = ConsoleCluster(target, options.own_release)
    with stop_signal() as stop:
        server = serve_cluster(cluster, stop, options.port, options.interval, token)
        _print_url(server, options, f"{_who_may(cluster)} Ctrl-C ends the page alone.")
        server.run()
    if not stop.is_set():
        make_console().print("the cluster has ended")
    return None


@contextmanager
def cluster_page(target: ClusterTarget) -> Iterator[None]:
    """Served beside what the caller does, until the cluster has ended, with the end of the block."""
    cluster = ConsoleCluster(target)
    stop = threading.Event()
    server = serve_cluster(cluster, stop)
    _print_url(server, ConsoleOptions(), _who_may(cluster))
    with served_beside(server, stop):
        yield


def _who_may(cluster: ConsoleCluster) -> str:
    return f"Whoever has this URL sees the run{' and may break it' if cluster.can_break else ''}."


def show_stored_runs(options: ConsoleOptions, token: str) -> None:
    """Raises :class:`ConfigError` for a store that is not there, or a port that is taken."""
    root = open_signed(options.store)
    job_names(root)  # one that cannot be read is said here, and not on the page
    interval = max(options.interval, STORE_SECONDS)
    with stop_signal() as stop:
        server = ConsoleServer(partial(stored_view, root), stop, options.port, interval, token=token)
        _print_url(server, options, "It shows the runs of the store, and changes nothing. Ctrl-C ends it.")
        server.run()


def _print_url(server: ConsoleServer, options: ConsoleOptions, more: str) -> None:
    """A token that somebody has given is not said again: what is printed may be kept in a log."""
    screen = make_console()
    url = server.url
    if options.token_file is not None:
        url = f"{url.partition('=')[0]}=, and then the token of {options.token_file}"
    screen.print(f"[bold]the page:[/] {url}", soft_wrap=True)
    screen.print(more)
    if options.browse:
        open_browser(server.url)
