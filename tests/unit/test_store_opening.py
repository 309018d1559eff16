"""A store that cannot be opened is waited for, as long as waiting may help."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Event

import pytest

from scar.errors import ConfigError
from scar_runtime.store import await_store, directory


def test_a_disk_that_gives_errors_is_opened_when_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated seed 118: every shard that began in these seconds ended with code 1."""
    problems = [OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left on device")]
    make_folder = directory._make_folder

    def make(folder: Path) -> None:
        if problems:
            raise problems.pop()
        make_folder(folder)

    monkeypatch.setattr(directory, "_make_folder", make)
    store = await_store(f"file://{tmp_path}/store", 30.0, Event())
    store.put("x", b"data")
    assert store.get("x") == b"data"
    assert not problems


def test_the_error_says_for_what_and_why_it_waited(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"0.05 s for store file:.*File exists"):
        await_store(f"file://{tmp_path}/file/store", 0.05, Event())


def test_a_process_that_stops_waits_no_longer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stopping = Event()
    stopping.set()
    with pytest.raises(ConfigError, match="waited"):
        await_store(f"file://{tmp_path}/file/store", 3600.0, stopping)


def test_what_is_misspelt_is_not_waited_for() -> None:
    with pytest.raises(ConfigError):
        await_store("file://relative", 3600.0, Event())
