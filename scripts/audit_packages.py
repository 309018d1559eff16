"""Look up the packages of the container image in the database of known vulnerabilities, by pip-audit.

    python scripts/audit_packages.py PIP-AUDIT

Exit code 1: there are known ones. Where the database cannot be reached it says that it was skipped: exit
code 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

IMAGE = Path(__file__).resolve().parent.parent / "requirements" / "image.txt"
SECONDS = 120


def audit(program: str) -> int:
    """0: none are known, or it was skipped; 1: some are."""
    command = [
        program,
        "--requirement",
        str(IMAGE),
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, OSError) as error:
        return _skip(str(error))
    except (ValueError, KeyError):
        return _skip(done.stderr.strip().rpartition("\n")[2])
    found = [(one["name"], one["version"], flaw) for one in packages for flaw in one.get("vulns", ())]
    for name, version, flaw in found:
        fixed = ", ".join(flaw["fix_versions"]) or "no version"
        sys.stdout.write(f"{name} {version}: {flaw['id']}, mended in {fixed}\n")
    sys.stdout.write(f"{len(packages)} packages looked up, {len(found)} known vulnerabilities\n")
    return 1 if found else 0


def _skip(why: str) -> int:
    sys.stdout.write(
        f"SKIPPED: the database of vulnerabilities cannot be reached, nothing was looked up: {why[:300]}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(audit(sys.argv[1]))
