"""`scar tls`, and what `scar doctor` says of certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from scar.wire.certificates import read_certificate
from scar.wire.credentials import use_certificate
from scar_cli.certificate_checks import BY_CHART, check_certificates
from scar_cli.main import main
from scar_local.authority import create_authority, renew_certificates, role_files


def scar(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["scar", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_certificates_are_made_and_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certificates"
    assert scar(monkeypatch, "tls", "init", str(folder), "--cluster", "prod", "--days", "30") == 0
    assert f"export SCAR_TLS_CERT={folder}/operator.crt" in capsys.readouterr().out
    first = read_certificate(role_files(folder, "shard"))
    assert first.identity.name == "shard.prod.scar"
    assert scar(monkeypatch, "tls", "renew", str(folder), "--days", "60") == 0
    second = read_certificate(role_files(folder, "shard"))
    assert second.identity == first.identity
    assert 29 < (second.expires - first.expires) / 86400 < 31
    assert second.ca == first.ca


def test_an_authority_is_not_replaced_by_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create_authority(tmp_path, "one")
    before = (tmp_path / "ca.crt").read_bytes()
    assert scar(monkeypatch, "tls", "init", str(tmp_path)) == 1
    assert "scar tls renew" in capsys.readouterr().err
    assert (tmp_path / "ca.crt").read_bytes() == before
    assert scar(monkeypatch, "tls", "init", str(tmp_path), "--force") == 0
    assert (tmp_path / "ca.crt").read_bytes() != before


@pytest.mark.parametrize(("days", "level"), [(30.0, "ok"), (2.0, "warn"), (-1.0, "fail")])
def test_doctor_says_when_certificates_of_a_local_cluster_expire(
    tmp_path: Path, days: float, level: str
) -> None:
    create_authority(tmp_path, "one", days)
    checks = check_certificates(tmp_path)
    assert len(checks) == 7
    assert {check.level for check in checks} == {level}
    assert all(bool(check.fix) == (level != "ok") for check in checks)


@pytest.mark.usefixtures("nobody")
def test_doctor_knows_its_own_certificate_and_that_there_is_none(tmp_path: Path) -> None:
    create_authority(tmp_path, "one", 20)
    assert "off" in check_certificates(None)[0].detail
    source = use_certificate(role_files(tmp_path, "reader"))
    assert source is not None
    renew_certificates(tmp_path, 40)
    (check,) = check_certificates(None)
    assert check.detail.startswith("reader.one.scar expires in ")
    assert check.level == "ok"


def test_doctor_says_how_they_are_renewed_where_they_are(tmp_path: Path) -> None:
    """`scar tls renew` knows files; a release has Secrets."""
    create_authority(tmp_path, "one", 2)
    assert "`scar tls renew`" in check_certificates(tmp_path)[0].fix
    of_release = check_certificates(tmp_path, BY_CHART)[0].fix
    assert "`helm upgrade`" in of_release
    assert "scar tls" not in of_release
