"""The certificate by which this process looks at a release, and starts its jobs: the operator's, from the
release's Secret.
"""

from __future__ import annotations

import base64
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from scar.errors import ConfigError
from scar.wire.certificates import VARIABLES, TlsFiles
from scar.wire.credentials import active_certificate, use_certificate
from scar_kube.api import Api

SECRET = "scar.dev/operator-secret"  # annotation of the recovery service: the name of that Secret
KEYS = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}  # field of :class:`TlsFiles` -> key in it


class ReleaseOperator:
    """``secret``: empty: the release has no TLS."""

    def __init__(self, api: Api, namespace: str, secret: str) -> None:
        self._api = api
        self._namespace = namespace
        self._secret = secret
        self._files = ExitStack()  # closes them

    def become(self) -> None:
        """From now on, until :meth:`resign`, this process is the release's operator, unless it has a
        certificate of its own. Raises :class:`ConfigError`.
        """
        if not self._secret or active_certificate() is not None:
            return
        content = self._read_secret()
        paths = {field: _keep_privately(key, content[key], self._files) for field, key in KEYS.items()}
        self._files.callback(use_certificate, None)
        use_certificate(TlsFiles(**paths))

    def resign(self) -> None:
        """Nothing of its files is left."""
        self._files.close()

    def _read_secret(self) -> dict[str, bytes]:
        """Key -> content."""
        own = f"set {', '.join(VARIABLES.values())} to files of your own"
        what = f"read Secret {self._secret}, which has the operator's certificate,"
        read = self._api.core.read_namespaced_secret
        try:
            data = self._api.ask(what, read, self._secret, self._namespace).data
            return {key: base64.b64decode(data[key]) for key in KEYS.values()}
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"Secret {self._secret} is not there, or has not all of {', '.join(KEYS.values())}",
                f"Create it, upgrade the release, or {own}",
            ) from error
        except ConfigError as error:
            raise ConfigError(error.message, f"{error.next_step}, or {own}") from error


def _keep_privately(name: str, text: bytes, files: ExitStack) -> Path:
    """A file in memory, which is gone with this process, however that ends; on a disk where there is no such
    memory (macOS), readable for its owner alone.
    """
    if hasattr(os, "memfd_create"):
        number = os.memfd_create(name, os.MFD_CLOEXEC)
        files.callback(os.close, number)
        path = Path(f"/proc/self/fd/{number}")
    else:
        path = Path(files.enter_context(TemporaryDirectory(prefix="scar-operator-"))) / name
    path.write_bytes(text)
    return path
