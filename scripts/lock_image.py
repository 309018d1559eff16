"""Write requirements/image.txt: the part of requirements/ci.txt that the container image needs. ``--check``: only compare.

What the image needs is read from the metadata of the packages installed here, so nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK, IMAGE = ROOT / "requirements" / "ci.txt", ROOT / "requirements" / "image.txt"
EXTRAS = ("services", "cli", "kubernetes")  # of the image
ANY = {"python_full_version": "3.11.0"}  # the base image may have an older Python than this one
HEAD = "# Exact versions in the container image: the part of ci.txt that it needs. Renew with `make lock`.\n"


def wanted() -> set[str]:
    """Names of all packages that the extras need, with what those need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    waiting, seen = applicable(lines, ()), set[str]()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) not in seen and canonicalize_name(requirement.name) != project["name"]:
            seen.add(str(requirement))
            waiting += applicable(metadata.requires(requirement.name) or [], requirement.extras)
    return {canonicalize_name(Requirement(line).name) for line in seen}


def applicable(lines: list[str], extras: Collection[str]) -> list[Requirement]:
    """Those of a package's requirements that count on this platform when it is asked for with these extras."""
    found = [Requirement(line) for line in lines]
    chosen = ("", *extras)
    return [one for one in found if one.marker is None or any(one.marker.evaluate({**ANY, "extra": extra}) for extra in chosen)]


def locked() -> str:
    """The text of image.txt."""
    names = wanted()
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    chosen = [line for line in lines if canonicalize_name(line.partition("==")[0]) in names]
    if missing := names - {canonicalize_name(line.partition("==")[0]) for line in chosen}:
        raise SystemExit(f"{LOCK.name} lacks {', '.join(sorted(missing))}; run: make lock")
    return HEAD + "".join(f"{line}\n" for line in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the file is not up to date")
    text = locked()
    if not parser.parse_args().check:
        IMAGE.write_text(text)
    elif not IMAGE.exists() or IMAGE.read_text() != text:
        sys.exit("requirements/image.txt does not follow requirements/ci.txt; run: make lock")


if __name__ == "__main__":
    main()
