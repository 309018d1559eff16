"""The job of ``healing``, with a source that fails in mid-heal: ``worker-0`` has offered what it holds and is
to send it.

``SCAR_TEST_SOURCE``: "silent", then it sends nothing for the first epoch that asks it; or "killed", then its
first life ends there by SIGKILL. A file in ``SCAR_TEST_HISTORY`` says that it has happened.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from healing import job, train  # type: ignore[import-not-found]

from scar._client.copy_sender import CopySender
from scar._client.core.held_copies import OwedCopy

__all__ = ["job", "train"]

FAILED = "source-failed"  # holds the number of the epoch


def _fail_once(send: Callable[[CopySender, OwedCopy], None]) -> Callable[[CopySender, OwedCopy], None]:
    happened = Path(os.environ["SCAR_TEST_HISTORY"]) / FAILED

    def send_copy(sender: CopySender, copy: OwedCopy) -> None:
        if sender._member.name != "worker-0":
            return send(sender, copy)
        if not happened.exists():
            happened.write_text(str(copy.epoch))
            if os.environ["SCAR_TEST_SOURCE"] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        if happened.read_text() == str(copy.epoch):
            return None
        return send(sender, copy)

    return send_copy


CopySender._send_copy = _fail_once(CopySender._send_copy)  # type: ignore[method-assign]
