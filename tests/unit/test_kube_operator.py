"""Where a release has TLS, who looks at it from outside is its operator, by the files in its Secret."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Made

import pytest

from scar.errors import ConfigError
from scar.wire.credentials import (
    active_certificate,
    use_certificate,
)
from scar_kube.operator import SECRET
from scar_kube.release import Release
from scar_kube.where import Where
from scar_local.authority import create_authority, role_files

pytestmark = pytest.mark.usefixtures("nobody")
Ask = Callable[..., object]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "tls", "here.scar")
    return tmp_path / "tls"


def open_files() -> set[str]:
    """Files in memory that this process has open."""
    links = (os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return {link for link in links if "memfd:tls" in link or "memfd:ca.crt" in link}


def secret(authority: Path) -> Made:
    files = role_files(authority, "operator")
    pairs = {"tls.crt": files.cert, "tls.key": files.key, "ca.crt": files.ca}
    return Made(data={key: base64.b64encode(path.read_bytes()).decode() for key, path in pairs.items()})


def release(ask: Ask, name: str = "scar-tls-operator") -> Release:
    api = Made(ask=ask, core=Made(read_namespaced_secret="secret"), context="here")
    return Release(api, "mine", "scar", "scar", Where(), {SECRET: name})  # type: ignore[arg-type]


def test_this_process_is_the_operator_until_the_release_is_closed(authority: Path) -> None:
    """Its key is on no disk, where a process that is killed would leave it."""
    asked = []

    def ask(_what: str, method: object, name: str, namespace: str) -> object:
        asked.append((method, name, namespace))
        return secret(authority)

    with release(ask) as found:
        assert active_certificate() is None, "nothing is asked for before it is needed"
        found.dialer()
        found.dialer()
        source = active_certificate()
        assert source is not None
        assert source.identity.name == "operator.here.scar.scar"
        assert {str(path.parent) for path in vars(source.files).values()} == {"/proc/self/fd"}
        assert len(open_files()) == 3
    assert asked == [("secret", "scar-tls-operator", "mine")]
    assert active_certificate() is None
    assert open_files() == set()


def test_where_no_file_is_in_memory_it_is_its_owners_alone(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with release(lambda *_: secret(authority)) as found:
        found.dialer()
        source = active_certificate()
        assert source is not None
        folders = [path.parent for path in vars(source.files).values()]
        assert {folder.stat().st_mode & 0o077 for folder in folders} == {0}
    assert not any(folder.exists() for folder in folders)


def test_a_release_without_tls_is_asked_for_nothing() -> None:
    def ask(*_: object) -> object:
        raise AssertionError

    with release(ask, "") as found:
        found.dialer()
        assert active_certificate() is None


def test_who_has_a_certificate_keeps_it(authority: Path) -> None:
    """Somebody who may only look, and not read Secrets."""

    def ask(*_: object) -> object:
        raise AssertionError

    own = use_certificate(role_files(authority, "reader"))
    with release(ask) as found:
        found.dialer()
        assert active_certificate() is own
    assert active_certificate() is own


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt", ""])
def test_what_is_missing_is_named(authority: Path, missing: str) -> None:
    def ask(*_: object) -> object:
        found = secret(authority)
        if not missing:
            raise KeyError("scar-tls-operator")
        del found.data[missing]
        return found

    with release(ask) as found, pytest.raises(ConfigError) as caught:
        found.dialer()
    assert "scar-tls-operator" in caught.value.message
    assert "SCAR_TLS_CERT" in caught.value.next_step
    assert active_certificate() is None
    assert open_files() == set()


def test_who_may_not_read_it_is_told_the_other_way(authority: Path) -> None:
    def ask(what: str, *_: object) -> object:
        raise ConfigError(f"context 'here' may not {what}", "Choose a context with that right")

    with release(ask) as found, pytest.raises(ConfigError) as caught:
        found.dialer()
    assert "may not read Secret scar-tls-operator" in caught.value.message
    assert "SCAR_TLS_CERT" in caught.value.next_step
