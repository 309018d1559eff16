"""Files and folders that only their owner may read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from scar.errors import ConfigError

KEY_BYTES = 32
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A reader sees the old file or the new one, and nobody the new one with other rights."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def ensure_key(path: Path) -> None:
    """Make a key for the store there (see ``scar_runtime/store/signatures.py``) unless there is one."""
    if not path.exists():
        replace_file(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())


def close_folder(path: Path) -> None:
    """Make this folder, or take it from all others. Raises OSError, and :class:`ConfigError` for one that
    users share, such as /tmp.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = path.stat().st_mode
    if mode & stat.S_ISVTX:
        raise ConfigError(f"{path} is shared by several users", "Choose a folder for the cluster alone")
    if mode & OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
