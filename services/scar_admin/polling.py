"""Looking at a cluster until it is as it should be."""

from __future__ import annotations

import time
from collections.abc import Callable

from scar.errors import DeadlineExceeded
from scar_admin.status import ClusterStatus

LOOK_PAUSE = 0.1  # seconds between two looks


def await_status(
    look: Callable[[], ClusterStatus],
    condition: Callable[[ClusterStatus], bool],
    what: str,
    timeout: float,
) -> ClusterStatus:
    """Look until ``condition`` holds; returns what was seen then.

    Raises :class:`DeadlineExceeded` after ``timeout`` seconds, with the cluster's problems.
    """
    deadline = time.monotonic() + timeout
    while not condition(status := look()):
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"waited {timeout:g} s without result for {what}",
                "; ".join((*status.problems, *status.waits)),
            )
        time.sleep(LOOK_PAUSE)
    return status
