"""Print what is installed here as a CycloneDX 1.6 document (JSON): packages, versions, licences.

    python scripts/make_sbom.py [--only requirements/image.txt]

The image's build runs it inside, so it needs nothing but Python. The same packages give the same text.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib import metadata
from pathlib import Path

PROJECT = "scar-ps"
LONGEST = 60  # of a licence's name; beyond, the field holds the licence itself


def installed_packages() -> dict[str, metadata.Distribution]:
    """By normalized name."""
    found = {normal_name(one.metadata["Name"]): one for one in metadata.distributions()}
    return dict(sorted(found.items()))


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def spdx_expression(package: metadata.Distribution) -> str:
    """Empty: its metadata has none."""
    return next(iter(package.metadata.get_all("License-Expression") or ()), "")


def license_of(package: metadata.Distribution) -> str:
    """An SPDX expression, or else what the authors call it; empty: they do not say."""
    said = package.metadata
    if expression := spdx_expression(package):
        return expression
    classified = [
        entry.rsplit(" :: ", 1)[-1]
        for entry in said.get_all("Classifier") or ()
        if entry.startswith("License :: ")
    ]
    if classified and classified != ["OSI Approved"]:
        return " AND ".join(sorted(classified))
    name = next(iter(said.get_all("License") or ()), "").strip()
    return name if len(name) <= LONGEST and "\n" not in name else ""


def pinned_names(requirements: Path) -> set[str]:
    """Of a file of pins."""
    lines = requirements.read_text().splitlines()
    return {normal_name(line.partition("==")[0]) for line in lines if re.match(r"[A-Za-z0-9]", line)}


def component(name: str, package: metadata.Distribution, kind: str = "library") -> dict[str, object]:
    """One entry of the document."""
    purl = f"pkg:pypi/{name}@{package.version}"
    entry: dict[str, object] = {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": package.version,
        "purl": purl,
    }
    if found := license_of(package):
        is_expression = bool(spdx_expression(package))
        entry["licenses"] = [{"expression": found} if is_expression else {"license": {"name": found}}]
    return entry


def make_sbom(only: set[str] | None = None) -> dict[str, object]:
    """The document. ``only``: names of packages; None: all that are installed."""
    packages = installed_packages()
    if only is not None and (missing := only - packages.keys()):
        raise SystemExit(f"not installed here: {', '.join(sorted(missing))}")
    chosen = packages.keys() - {PROJECT} if only is None else only
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(PROJECT, packages[PROJECT], "application")},
        "components": [component(name, packages[name]) for name in sorted(chosen)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=Path, help="a file of pins: these packages alone")
    only = parser.parse_args().only
    document = make_sbom(pinned_names(only) if only else None)
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
