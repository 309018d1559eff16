"""The source files of the project, for the tests that read them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "sdk" / "scar" / "v1"
FOLDERS = ("sdk", "services", "tests", "scripts", "examples", "benchmarks", "experiments")
SOURCES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if GENERATED not in path.parents
)
SHIPPED = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in ("sdk", "services")]
OWN = [path for path in SOURCES if path.relative_to(ROOT).parts[0] != "tests"]


def name(path: Path) -> str:
    """As it is called in messages: from the root of the project."""
    return str(path.relative_to(ROOT))
