"""Redis and S3 with certificates of a private CA: reached with its file, refused without it or by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scar.errors import ConfigError, LivenessUnavailable, StoreUnavailable
from scar_cli.checks import check_redis
from scar_local import preflight
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.liveness.redis_url import with_redis_ca
from scar_runtime.store import open_store, s3
from tests.component.processes import eventually, running_redis
from tests.contract.stores import BUCKET, FaultyS3
from tests.framework.certificates import HOST, make_ca, tls_before


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_ca(tmp_path_factory.mktemp("ours") / "ca")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ca(tmp_path_factory.mktemp("other") / "ca")[0]


@pytest.fixture(scope="module")
def redis_url(ours: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as plain:
        port = urlsplit(plain).port
        assert port
        with tls_before(port, ours[1]) as tls_port:
            yield f"rediss://{HOST}:{tls_port}/0"


def ping(url: str, ca_file: Path | str) -> None:
    HeartbeatStore(with_redis_ca(url, str(ca_file)), "scar", timeout=20).ping()


def test_redis_shows_a_certificate_of_our_ca(redis_url: str, ours: tuple[Path, Path], other: Path) -> None:
    ping(redis_url, ours[0])
    ping(f"{redis_url}?health_check_interval=7", ours[0])
    for wrong in (other, ""):
        with pytest.raises(LivenessUnavailable, match="certificate verify failed"):
            ping(redis_url, wrong)


def test_a_ca_is_never_ignored(redis_url: str, ours: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not ask for TLS"):
        ping(redis_url.replace("rediss", "redis"), ours[0])
    with pytest.raises(ConfigError, match="cannot be read"):
        ping(redis_url, tmp_path / "nothing")


def test_the_command_line_trusts_what_the_environment_names(
    redis_url: str, ours: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_redis(redis_url).level == "fail"
    monkeypatch.setattr(preflight, "REDIS_SECONDS", 20.0)
    with pytest.raises(ConfigError, match="certificate verify failed"):
        preflight.check_redis(redis_url)
    monkeypatch.setenv("SCAR_REDIS_CA", str(ours[0]))
    eventually(lambda: check_redis(redis_url).level == "ok")
    preflight.check_redis(redis_url)
    assert check_redis(redis_url.replace("rediss", "redis")).level == "fail"


@pytest.mark.parametrize("server", ["moto", "weed"])
def test_s3_shows_a_certificate_of_our_ca(
    server: str,
    ours: tuple[Path, Path],
    other: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: FaultyS3 | str = request.getfixturevalue(server)
    port = urlsplit(found if isinstance(found, str) else found.url).port
    assert port
    monkeypatch.setattr(s3, "CONNECT_SECONDS", 20)
    with tls_before(port, ours[1]) as tls_port:
        url = f"s3://{BUCKET}/tls?endpoint=https://{HOST}:{tls_port}"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(ours[0]))
        store = open_store(url)
        store.create("a", b"1")
        assert store.get("a") == b"1"
        monkeypatch.setenv("AWS_CA_BUNDLE", str(other))
        with pytest.raises(StoreUnavailable, match="certificate verify failed") as refused:
            open_store(url).get("a")
        assert "AWS_CA_BUNDLE" in refused.value.next_step
        monkeypatch.delenv("AWS_CA_BUNDLE")
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            open_store(url).get("a")
