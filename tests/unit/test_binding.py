"""Where a server may be reached by other machines: with TLS, or where somebody has said that it is meant."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from scar.errors import ConfigError
from scar.wire.credentials import (
    bind_server,
    use_certificate,
    use_token,
)
from scar_chaos.recorder import Recorder
from scar_local.authority import create_authority, role_files
from scar_local.private_files import replace_file

pytestmark = pytest.mark.usefixtures("nobody")
EVERYWHERE = "0.0.0.0:0"


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    made = grpc.server(ThreadPoolExecutor(1))
    yield made
    made.stop(None)


@pytest.mark.parametrize("listen", [EVERYWHERE, "[::]:0", "10.0.0.1:7070", "some-host:7070"])
def test_other_machines_reach_nothing_without_tls(server: grpc.Server, listen: str) -> None:
    with pytest.raises(ConfigError, match="without TLS") as caught:
        bind_server(server, listen)
    assert "SCAR_INSECURE=true (--insecure)" in caught.value.next_step


def test_a_token_is_no_tls(server: grpc.Server, tmp_path: Path) -> None:
    replace_file(tmp_path / "token", b"A" * 43)
    use_token(tmp_path / "token")
    with pytest.raises(ConfigError, match="without TLS"):
        bind_server(server, EVERYWHERE)


def test_this_machine_does(server: grpc.Server) -> None:
    assert bind_server(server, "127.0.0.1:0") > 0
    assert bind_server(server, "localhost:0") > 0


def test_others_do_where_it_is_meant(server: grpc.Server) -> None:
    assert bind_server(server, EVERYWHERE, insecure=True) > 0


def test_others_do_with_a_certificate(server: grpc.Server, tmp_path: Path) -> None:
    create_authority(tmp_path, "one")
    use_certificate(role_files(tmp_path, "shard"))
    assert bind_server(server, EVERYWHERE) > 0


def test_the_recorder_of_chaos_keeps_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAR_INSECURE", raising=False)
    with pytest.raises(ConfigError, match="without TLS"):
        Recorder(tmp_path, listen=EVERYWHERE)
    monkeypatch.setenv("SCAR_INSECURE", "true")
    Recorder(tmp_path, listen=EVERYWHERE).close()
