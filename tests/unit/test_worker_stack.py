"""Where a thread is: the frames of the user's file first."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path

from scar_worker.stack import format_stack


def test_the_frames_of_the_users_file_come_first_then_what_they_call(tmp_path: Path) -> None:
    file, go, inside = tmp_path / "train.py", threading.Event(), threading.Event()
    file.write_text(
        "def dig(go, inside):\n    inside.set()\n    go.wait(60)\ndef train(go, inside):\n    dig(go,"
        " inside)\n"
    )
    spec = importlib.util.spec_from_file_location("stuck", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    thread = threading.Thread(target=module.train, args=(go, inside))
    thread.start()
    try:
        assert inside.wait(10)
        frames = format_stack(thread.ident, str(file))
        while not any("threading.py" in frame for frame in frames):  # not in the wait yet
            frames = format_stack(thread.ident, str(file))
    finally:
        go.set()
        thread.join()
    assert frames[:2] == ["train.py:3 in dig: go.wait(60)", "train.py:5 in train: dig(go, inside)"]
    assert all(frame.startswith("threading.py") for frame in frames[2:])
    assert format_stack(None, str(file)) == []
