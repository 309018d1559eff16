"""Write requirements/image.txt: the part of requirements/ci.txt that the container image needs, with hashes.

And requirements/build.txt: what its wheel is built by. ``--check``: only compare names and versions, and see
that each has hashes.

What the image needs is read from the metadata of the packages installed here. Hashes of all files of a
version, for all platforms, come from the package index by `uv pip compile`; ``--check`` needs no network.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "ci.txt"
IMAGE = ROOT / "requirements" / "image.txt"
EXTRAS = ("services", "cli", "kubernetes", "console", "otel")  # of the image
ANY = {"python_full_version": "3.11.0"}  # the base image may have an older Python than this one
BUILD = ROOT / "requirements" / "build.txt"
HEADS = {
    IMAGE: "# What the container image holds: the part of ci.txt that it needs. Renew with `make lock`.\n",
    BUILD: "# What builds the wheel in the container image. Renew with `make lock`.\n",
}
_PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def needed_packages() -> set[str]:
    """Names of all packages that the extras need, with what those need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in EXTRAS for line in project["optional-dependencies"][extra]),
    ]
    waiting = applicable_requirements(lines, ())
    seen = set[str]()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) not in seen and canonicalize_name(requirement.name) != project["name"]:
            seen.add(str(requirement))
            waiting += applicable_requirements(metadata.requires(requirement.name) or [], requirement.extras)
    return {canonicalize_name(Requirement(line).name) for line in seen}


def applicable_requirements(lines: list[str], extras: Collection[str]) -> list[Requirement]:
    """A package's requirements that count on this platform when it is asked for with these extras."""
    return [one for one in map(Requirement, lines) if _applies(one, ("", *extras))]


def _applies(requirement: Requirement, extras: Collection[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**ANY, "extra": extra}) for extra in extras)


def image_pins() -> dict[str, str]:
    """Name -> version of what the image holds, by ci.txt."""
    names = needed_packages()
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    chosen = [line for line in lines if _locked_name(line) in names]
    if missing := names - {_locked_name(line) for line in chosen}:
        raise SystemExit(f"{LOCK.name} lacks {', '.join(sorted(missing))}; run: make lock")
    return {_locked_name(line): line.partition("==")[2] for line in chosen}


def build_requirements() -> list[str]:
    """What pyproject.toml wants for a build."""
    wanted: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return wanted


def pins_of(text: str) -> dict[str, str]:
    """Name -> version of entries with hashes. Raises ValueError when there is anything else."""
    entries = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    found = list(_PIN.finditer(entries))
    if "".join(one[0] for one in found) != entries:
        raise ValueError("a line is no pin with its hashes")
    return {canonicalize_name(one[1]): one[2] for one in found}


def with_hashes(requirements: list[str], *options: str) -> str:
    """These and, if the options do not forbid it, what they need, with the hashes of all files of each."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "-",
        "--quiet",
        "--universal",
        "--generate-hashes",
    ]
    command += ["--python-version", "3.11", "--no-header", "--no-annotate", "--no-config", *options]
    done = subprocess.run(command, input="\n".join(requirements), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"no hashes: {done.stderr.strip()}")
    return done.stdout


def _locked_name(line: str) -> str:
    return canonicalize_name(line.partition("==")[0])


def check_files() -> None:
    """Raises SystemExit when a file does not follow ci.txt or pyproject.toml."""
    for path, wanted in (
        (IMAGE, image_pins()),
        (BUILD, dict(line.split("==") for line in build_requirements())),
    ):
        try:
            pins = pins_of(path.read_text())
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path.name}: {error}; run: make lock") from error
        if not wanted.items() <= pins.items() or (path is IMAGE and pins != wanted):
            raise SystemExit(f"{path.name} is behind ci.txt or pyproject.toml; run: make lock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a file is not up to date")
    if not parser.parse_args().check:
        pins = [f"{name}=={version}" for name, version in image_pins().items()]
        IMAGE.write_text(HEADS[IMAGE] + with_hashes(pins, "--no-deps"))
        BUILD.write_text(HEADS[BUILD] + with_hashes(build_requirements()))
    check_files()


if __name__ == "__main__":
    main()
