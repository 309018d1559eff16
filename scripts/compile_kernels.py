"""Compiles what is written in C: copies of many rows, and update rules (docs/adr/023-compiled-rules.md).

    python scripts/compile_kernels.py

Done when SCAR is installed or packed. Exit code 1: there is no compiler that works, and numpy does the work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADERS = "sdk/scar"
LIBRARIES = {  # source: what it is compiled to
    "sdk/scar/row_copies.c": "sdk/scar/librow_copies.so",
    "services/scar_ps/core/rule_kernels.c": "services/scar_ps/core/librule_kernels.so",
}
FLAGS = (
    *("-O3", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-pthread", f"-I{ROOT / HEADERS}"),
    *("-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"),
)
SECONDS = 60


def compile_library(source: Path, library: Path) -> bool:
    """Whether it is there now. What was there before goes, whatever happens."""
    library.unlink(missing_ok=True)
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return False
    partial = library.with_name(f"{library.name}.{os.getpid()}")
    command = [*compiler.split(), *FLAGS, "-o", str(partial), str(source), "-lm"]
    try:
        subprocess.run(command, check=True, timeout=SECONDS)
        partial.replace(library)
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def compile_all() -> bool:
    """Whether all are there now."""
    made = [compile_library(ROOT / source, ROOT / library) for source, library in LIBRARIES.items()]
    return all(made)


if __name__ == "__main__":
    sys.exit(0 if compile_all() else 1)
