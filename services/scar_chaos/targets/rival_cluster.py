"""A second cluster on this machine that tries to continue with the job while the first one trains it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from scar.errors import ScarError
from scar.job_start import start_job
from scar.tables import Job
from scar_local import LocalCluster

ASK_SECONDS = 3.0  # for which it asks again when the answer is "not now"
END_SECONDS = 60.0  # for it to be gone


class RivalCluster:
    """Starts at once, in a thread. ``store``: URL. ``accepted``: it was given the job."""

    def __init__(self, folder: Path, store: str, job: Job, environment: Mapping[str, str]) -> None:
        self._cluster = LocalCluster(folder, shards=1, store=store, respawn=False, environment=environment)
        self._stopping = threading.Event()
        self.accepted = False
        self._thread = threading.Thread(target=self._compete, args=(job,), name="rival", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing of it is left."""
        self._stopping.set()
        self._thread.join(END_SECONDS)

    def _compete(self, job: Job) -> None:
        try:
            self._cluster.start()
            start_job(self._cluster.endpoints.recovery, job, True, ASK_SECONDS)
            self.accepted = True
            self._stopping.wait(END_SECONDS)
        except ScarError:
            pass  # it could not start, or was refused: as it should be
        finally:
            self._cluster.stop(checkpoint=False)
