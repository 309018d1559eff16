"""`scar scale`: another number of shards for a cluster on this machine, while it trains."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from scar.errors import ConfigError, DeadlineExceeded
from scar.placement import Epoch, has_moved
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto
from scar_admin.observer import ClusterObserver
from scar_admin.polling import LOOK_PAUSE
from scar_admin.status import ClusterStatus
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, DirectTarget, ReleaseTarget, find_cluster
from scar_cli.output import OutputFormat, format_count, format_seconds, make_console, print_result
from scar_local.wanted_shards import WantedShards, WantedShardsFile

LEVEL_SECONDS = 3.0  # without another epoch: nothing moves any more
BY_ADDRESS = "of this cluster only an address is known, and its shards belong to who has started it"


@dataclass(frozen=True)
class ScaleResult:
    """``before``, ``shards``: how many there were and are; ``blocks``: that have another owner now."""

    before: int
    shards: int
    blocks: int
    seconds: float


def scale_cluster(ref: ClusterRef, count: int, timeout: float, output: OutputFormat) -> None:
    """Returns when there are so many and no block moves any more; ``timeout`` 0: at once.

    Raises :class:`ConfigError` for a cluster whose shards are not this machine's,
    :class:`DeadlineExceeded` after ``timeout`` seconds; what was asked for holds all the same.
    """
    target = find_cluster(ref)
    file = WantedShardsFile(_folder_of(target, count))
    with target.observer() as observer:
        first = observer.read()
        _check_replicas(first, count)
        follower = _Follower(target, file, first, count)
        file.write(WantedShards(count))
        if not timeout:
            asked = format_count(count, "shard")
            return make_console().print(f"asked for {asked}; see `scar watch{ref.options()}`")
        result = _follow(follower, observer, timeout, ref)
    return print_result(output, asdict(result), lambda screen: _print_result(screen, result))


def _follow(follower: _Follower, observer: ClusterObserver, timeout: float, ref: ClusterRef) -> ScaleResult:
    end = time.monotonic() + timeout
    with make_console(stderr=True).status("") as spinner:
        while not follower.look(observer.read(), time.monotonic()):
            spinner.update(follower.progress)
            if time.monotonic() > end:
                raise DeadlineExceeded(
                    f"it is not done after {timeout:g} s: {follower.progress}",
                    f"It goes on; see `scar watch{ref.options()}`",
                )
            time.sleep(LOOK_PAUSE)
    return follower.result()


def _print_result(screen: Console, result: ScaleResult) -> None:
    blocks = format_count(result.blocks, "block")
    screen.print(
        f"[bold green]{result.before} → {format_count(result.shards, 'shard')}[/], {blocks} moved,"
        f" {format_seconds(result.seconds)}"
    )


def _check_replicas(status: ClusterStatus, count: int) -> None:
    """A copy of a block lies on another shard than its owner."""
    if status.job is None or status.finished:
        return
    replicas = codec.job_from_proto(status.job).strategy.replicas
    if count <= replicas:
        shards = format_count(count, "shard")
        copies = format_count(replicas, "copy", "copies")
        raise ConfigError(f"{shards} cannot keep {copies} of each block", f"Ask for {replicas + 1} or more")


def _folder_of(target: ClusterTarget, count: int) -> Path:
    """Of a cluster whose processes are this machine's."""
    if isinstance(target, ReleaseTarget):
        release = target.release
        raise ConfigError(
            f"how many shards {release} has is a value of its chart",
            f"helm upgrade {release.name} CHART --namespace {release.namespace} --reuse-values"
            f" --set ps.replicas={count}",
        )
    if not isinstance(target, DirectTarget) or target.directory is None:
        raise ConfigError(BY_ADDRESS, "Use `scar scale` in the folder of its `scar up`")
    return target.directory


class _Follower:
    """Looks at a cluster until it has ``count`` shards and nothing moves. ``first``: before it was asked."""

    def __init__(
        self, target: ClusterTarget, file: WantedShardsFile, first: ClusterStatus, count: int
    ) -> None:
        self._target = target
        self._file = file
        self._wanted = {f"ps-{number}" for number in range(count)}
        self._first = self._newest = _epoch_of(first)
        self._before = len(self._living())
        self._began = self._moved = time.monotonic()
        self._blocks = 0
        self.progress = ""

    def look(self, status: ClusterStatus, now: float) -> bool:
        """Whether it is done. Raises :class:`ConfigError` when the cluster has stopped."""
        if self._target.ended():
            raise ConfigError("the cluster has stopped")
        newest = _epoch_of(status)
        if newest is not None and (self._newest is None or newest.number != self._newest.number):
            self._newest = newest
            self._blocks = _count_moved(self._first, newest)
            self._moved = now
        living = self._living()
        members = self._wanted if newest is None else {member.name for member in newest.shards}
        if living != self._wanted:
            self._moved = now
        moved = format_count(self._blocks, "block")
        self.progress = f"{format_count(len(living), 'shard')}, {moved} moved"
        if problem := self._file.problem:
            self.progress += f"; {problem}"
        level = members == self._wanted or status.finished is not None
        return level and now - self._moved > LEVEL_SECONDS

    def result(self) -> ScaleResult:
        seconds = self._moved - self._began
        return ScaleResult(self._before, len(self._wanted), self._blocks, seconds)

    def _living(self) -> set[str]:
        return {one.name for one in self._target.processes() if one.component == "ps" and one.alive}


def _count_moved(first: Epoch | None, newest: Epoch | None) -> int:
    """Blocks that another member owns."""
    if first is None or newest is None:
        return 0
    tables = first.owners.keys() & newest.owners.keys()
    return sum(int(has_moved(first, newest, table).sum()) for table in tables)


def _epoch_of(status: ClusterStatus) -> Epoch | None:
    return None if status.epoch is None else epoch_from_proto(status.epoch)
