"""Where a thread is, for people who wonder why it is stuck: the frames of the user's own file come
first.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

MOST = 12  # frames of each kind


def format_stack(thread: int | None, file: str) -> list[str]:
    """Frames of a thread, innermost first: those of the training file ``file``, then what they have called;
    else all.

    Empty: there is no such thread.
    """
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return []
    frames = traceback.extract_stack(frame)
    own = [index for index, entry in enumerate(frames) if Path(entry.filename) == Path(file).resolve()]
    below = frames[own[-1] + 1 :] if own else frames
    chosen = [*[frames[index] for index in reversed(own)][:MOST], *below[::-1][:MOST]]
    return [
        f"{Path(entry.filename).name}:{entry.lineno} in {entry.name}: {entry.line or ''}".rstrip(": ")
        for entry in chosen
    ]
