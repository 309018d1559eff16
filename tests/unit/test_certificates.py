"""What is believed of certificate files, and when new ones replace them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from scar.errors import ConfigError
from scar.placement import Role
from scar.wire import certificates
from scar.wire.certificates import (
    ROLES,
    VARIABLES,
    CertificateSource,
    TlsFiles,
    TlsIdentity,
    files_of,
    find_identity,
    read_certificate,
)
from scar_local.authority import create_authority, renew_certificates, role_files, role_variables
from scar_runtime.process.app import App


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    create_authority(folder, "one")
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    create_authority(tmp_path / "tls", "one")
    return tmp_path / "tls"


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each use looks at the files."""
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_a_certificate_of_its_own(authority: Path, role: str) -> None:
    found = read_certificate(role_files(authority, role))
    assert found.identity == TlsIdentity(role, "one")
    assert found.identity.peer_name("shard") == "shard.one.scar"
    assert os.stat(authority / f"{role}.key").st_mode & 0o077 == 0, "a key is its owner's alone"


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("shard.scar",),
        ("shard.one.example",),
        ("pirate.one.scar",),
        ("worker.one.scar", "shard.one.scar"),
        ("shard.one.scar.example.org",),
        ("*.one.scar",),
        ("shard.One.scar",),
        ("shard.one.scar\n",),
        ("shard..scar",),
    ],
)
def test_other_names_are_nobody(names: tuple[str, ...]) -> None:
    assert find_identity(names) is None


def test_names_beside_its_own_do_not_matter() -> None:
    assert find_identity(["localhost", "shard.a.b-c.scar"]) == TlsIdentity("shard", "a.b-c")


@pytest.mark.parametrize("given", [("cert",), ("cert", "key"), ("ca",), ("key", "ca")])
def test_half_of_it_is_an_error_that_says_what_is_missing(given: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        files_of({VARIABLES[field]: "/x" for field in given})
    assert all((variable in caught.value.message) for variable in VARIABLES.values())
    assert "none of them" in caught.value.next_step


def test_without_settings_it_is_off() -> None:
    assert files_of({}) is None
    assert files_of(role_variables(None, "shard")) is None
    assert files_of(role_variables(Path("/x"), "shard")) == role_files(Path("/x"), "shard")


@pytest.mark.parametrize("days", [-1.0, -0.001])
def test_an_expired_certificate_is_refused(tmp_path: Path, days: float) -> None:
    create_authority(tmp_path, "one", days)
    with pytest.raises(ConfigError, match="expired"):
        read_certificate(role_files(tmp_path, "shard"))


def test_files_that_do_not_fit_are_refused(authority: Path, own: Path) -> None:
    mine = role_files(own, "shard")
    theirs = role_files(authority, "shard")
    for files in (
        TlsFiles(mine.cert, theirs.key, mine.ca),
        TlsFiles(mine.cert, mine.key, theirs.ca),
        TlsFiles(mine.key, mine.key, mine.ca),
        TlsFiles(mine.cert, mine.key, mine.key),
        TlsFiles(mine.cert, mine.key, own / "nothing"),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            read_certificate(files)


def test_a_cluster_whose_name_no_certificate_can_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="My_Cluster"):
        create_authority(tmp_path, "My_Cluster")


@pytest.mark.usefixtures("looking")
def test_new_files_are_taken_over(own: Path) -> None:
    source = CertificateSource(role_files(own, "shard"))
    first = source.current()
    assert source.current() is first, "nothing has changed"
    renew_certificates(own)
    second = source.current()
    assert second is not first
    assert second.cert != first.cert
    assert source.current() is second


@pytest.mark.usefixtures("looking")
def test_what_cannot_be_used_does_not_replace_what_can(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = role_files(own, "shard")
    source = CertificateSource(files)
    first = source.current()
    kept = files.key.read_bytes()
    half = role_files(own, "worker").key.read_bytes()
    files.key.write_bytes(half)  # as between the two files of a renewal
    assert source.current() is first
    assert source.current() is first
    assert caplog.text.count("tls.not_renewed") == 1, "it is said once"
    files.key.unlink()
    assert source.current() is first
    renew_certificates(own, days=-1)
    assert source.current() is first, "an expired one is no renewal"
    files.cert.write_bytes(first.cert)
    files.key.write_bytes(kept)
    assert source.current().cert == first.cert


@pytest.mark.usefixtures("looking")
def test_a_process_does_not_change_its_role(own: Path) -> None:
    source = CertificateSource(role_files(own, "shard"))
    for kind in ("crt", "key"):
        (own / f"shard.{kind}").write_bytes((own / f"operator.{kind}").read_bytes())
    assert source.current().identity.role == "shard"


def test_files_are_not_looked_at_for_each_call(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(certificates.time, "monotonic", lambda: now[0])
    source = CertificateSource(role_files(own, "shard"))
    first = source.current()
    renew_certificates(own)
    now[0] += certificates.LOOK_SECONDS / 2
    assert source.current() is first
    now[0] += certificates.LOOK_SECONDS
    assert source.current() is not first


def test_an_authority_that_is_not_there_signs_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no authority"):
        renew_certificates(tmp_path)


@pytest.mark.usefixtures("looking")
def test_a_service_looks_at_its_files_though_nobody_connects(own: Path) -> None:
    """As it looks at its own health, once a second."""
    source = CertificateSource(role_files(own, "shard"))
    first = source._current
    renew_certificates(own)
    quiet = threading.Event()
    quiet.set()
    app = SimpleNamespace(
        member=SimpleNamespace(role=Role.DETECTOR), requests=Mock(), certificate=source, stopping=quiet
    )
    service = SimpleNamespace(ready=lambda: True, settled=None)
    App._watch_health(app, service, Mock())  # type: ignore[arg-type]
    assert source._current is not first
