"""Which object stores there are: the only list. Settings, help texts and checks read it.

A store is one entry here and one module beside this one, which is imported when a URL names its scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult

from scar_runtime.store.base import Store


@dataclass(frozen=True)
class StoreScheme:
    """``example``: a URL for help texts. ``open_url(url, parts)``: the store behind it.

    ``packages``: that have to be installed. ``credentials``: what the environment variables with its keys
    begin with; empty: it has none.
    """

    name: str
    example: str
    open_url: Callable[[str, SplitResult], Store]
    packages: tuple[str, ...] = ()
    credentials: str = ""


def _open_directory(url: str, parts: SplitResult) -> Store:
    from scar_runtime.store.directory import open_directory

    return open_directory(url, parts)


def _open_s3(url: str, parts: SplitResult) -> Store:
    # boto3 takes 0.3 s to import: only for those who use it
    from scar_runtime.store.s3 import open_bucket

    return open_bucket(url, parts)


SCHEMES = (
    StoreScheme("file", "file:///folder", _open_directory),
    StoreScheme("s3", "s3://bucket/prefix", _open_s3, packages=("boto3",), credentials="AWS_"),
)

CA_FILE = "AWS_CA_BUNDLE"  # names a file with CA certificates, of this machine or this container
URL_PATTERN = rf"^({'|'.join(one.name for one in SCHEMES)})://"
URL_EXAMPLES = " or ".join(one.example for one in SCHEMES)
PACKAGES = tuple(package for one in SCHEMES for package in one.packages)


def is_credential(variable: str) -> bool:
    """Whether this environment variable holds keys of a store, which a process elsewhere can use, too."""
    return variable != CA_FILE and any(
        one.credentials and variable.startswith(one.credentials) for one in SCHEMES
    )
