"""How many shards a cluster on this machine is to have, and the thread of its holder that makes it true.

Who wants another number writes it into the cluster's directory, as with cuts: the processes belong to who
holds the cluster, and nobody else can start or end them for good.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from scar.errors import ScarError
from scar_local.private_files import replace_file

LOOK_SECONDS = 0.25
MOST_SHARDS = 1000


@dataclass(frozen=True)
class WantedShards:
    """``problem``: why there are not so many yet; empty: nothing is known that is in the way."""

    count: int
    problem: str = ""


class WantedShardsFile:
    """``directory``: of the cluster."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "shards.json"

    def write(self, wanted: WantedShards) -> None:
        """The last one that is written holds."""
        replace_file(self._path, json.dumps(asdict(wanted)).encode())

    def read(self) -> WantedShards | None:
        """None: nobody has asked, or what lies there is none."""
        try:
            raw = json.loads(self._path.read_bytes())
            wanted = WantedShards(int(raw["count"]), str(raw["problem"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return wanted if 1 <= wanted.count <= MOST_SHARDS else None

    def clear(self) -> None:
        """What was asked of a former cluster in this directory is over."""
        self._path.unlink(missing_ok=True)


class ShardScaler:
    """Looks at the file. ``scale``: has the cluster have so many; what it raises is tried again."""

    def __init__(self, file: WantedShardsFile, scale: Callable[[int], object]) -> None:
        self._file = file
        self._scale = scale
        self._done = 0  # what was asked for last, and is there
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._file.clear()
        self._closed.clear()
        self._thread = threading.Thread(target=self._run, name="shard-scaler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when nothing is started or ended any more. Safe to call twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            wanted = self._file.read()
            if wanted is not None and wanted.count != self._done:
                self._try_scaling(wanted)

    def _try_scaling(self, wanted: WantedShards) -> None:
        problem = ""
        try:
            self._scale(wanted.count)
            self._done = wanted.count
        except ScarError as error:
            problem = str(error)
        newest = self._file.read()
        if problem != wanted.problem and newest == wanted:  # nobody has asked for another number meanwhile
            self._file.write(WantedShards(wanted.count, problem))
