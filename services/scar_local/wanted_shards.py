"""How many shards a cluster on this machine is to have, and the thread of its holder that makes it true.

Who wants another number writes it into the cluster's directory, as with cuts: the processes belong to who
holds the cluster, and nobody else can start or end them for good.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from scar.errors import ScarError
from scar_local.private_files import replace_file

LOOK_SECONDS = 0.25
CLOSE_SECONDS = 5.0  # for a shard that is just started
MOST_SHARDS = 1000


@dataclass(frozen=True)
class WantedShards:
    """``request``: who asks for the same number again asks anew."""

    count: int
    request: str = field(default_factory=partial(secrets.token_hex, 4))


class WantedShardsFile:
    """``directory``: of the cluster. What is asked and what is in the way are two files, so that nobody
    writes over what another one has written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "shards.json"
        self._problem = directory / "shards-problem.txt"

    def write(self, wanted: WantedShards) -> None:
        """The last one that is written holds."""
        replace_file(self._path, json.dumps(asdict(wanted)).encode())

    def read(self) -> WantedShards | None:
        """None: nobody has asked, or what lies there is none."""
        try:
            raw = json.loads(self._path.read_bytes())
            wanted = WantedShards(int(raw["count"]), str(raw["request"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return wanted if 1 <= wanted.count <= MOST_SHARDS else None

    def clear(self) -> None:
        """What was asked of a former cluster in this directory is over."""
        self._path.unlink(missing_ok=True)
        self.tell_problem("")

    @property
    def problem(self) -> str:
        """Why there are not so many yet; empty: nothing is known that is in the way."""
        try:
            return self._problem.read_text(errors="replace")
        except OSError:
            return ""

    def tell_problem(self, problem: str) -> None:
        """For the cluster's holder alone."""
        if problem:
            replace_file(self._problem, problem.encode())
        else:
            self._problem.unlink(missing_ok=True)


class ShardScaler:
    """Looks at the file. ``scale``: has the cluster have so many; what it raises is tried again."""

    def __init__(self, file: WantedShardsFile, scale: Callable[[int], object]) -> None:
        self._file = file
        self._scale = scale
        self._done = ""  # the request that was carried out last
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._file.clear()
        self._closed.clear()
        self._thread = threading.Thread(target=self._run, name="shard-scaler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when nothing is started or ended any more, or after some seconds. Safe to call twice."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            wanted = self._file.read()
            if wanted is not None and wanted.request != self._done:
                self._try_scaling(wanted)

    def _try_scaling(self, wanted: WantedShards) -> None:
        problem = ""
        try:
            self._scale(wanted.count)
            self._done = wanted.request
        except (ScarError, OSError) as error:
            problem = str(error)
        with suppress(OSError):
            self._file.tell_problem(problem)
