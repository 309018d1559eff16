"""The token of a cluster on one machine: its file, what a call carries, and what a server makes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from scar.errors import ConfigError
from scar.wire.cluster_token import TokenChannel, carries_token, read_token, token_metadata
from scar.wire.credentials import (
    active_certificate,
    active_token,
    use_certificate,
    use_credentials,
    use_token,
)
from scar.wire.transport import open_channel
from scar_local.authority import create_authority, role_files
from scar_local.private_files import close_folder, replace_file

pytestmark = pytest.mark.usefixtures("nobody")
TOKEN = "A" * 43


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    replace_file(path, TOKEN.encode())
    return path


def test_it_is_read_from_its_file(file: Path) -> None:
    assert read_token(file) == TOKEN
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN


@pytest.mark.parametrize("content", ["", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}\x00", "ä" * 40, "A" * 600])
def test_a_file_without_a_token_is_refused(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match="cannot be used"):
        read_token(file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_open_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
        read_token(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        read_token(tmp_path / "none")
    assert "SCAR_TOKEN_FILE" in caught.value.next_step


def test_only_the_whole_token_counts() -> None:
    others = (("user-agent", "grpc"), ("key-bin", b"\x00"))
    assert carries_token([*others, *token_metadata(TOKEN)], TOKEN)
    for shown in ("", "Bearer ", TOKEN, f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}A", f"bearer {TOKEN}", "ä"):
        assert not carries_token([*others, ("authorization", shown)], TOKEN)
    assert not carries_token(others, TOKEN)


def test_a_process_has_certificates_or_a_token(file: Path, tmp_path: Path) -> None:
    create_authority(tmp_path / "tls", "one")
    files = role_files(tmp_path / "tls", "shard")
    with pytest.raises(ConfigError, match="a process has either"):
        use_credentials(files, file)
    use_token(file)
    assert active_token() == TOKEN
    use_certificate(files)
    assert active_token() == ""
    use_token(file)
    assert active_certificate() is None


def test_the_environment_names_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar.wire.credentials._process", {})
    monkeypatch.setenv("SCAR_TOKEN_FILE", str(file))
    assert active_token() == TOKEN


def test_calls_of_all_kinds_carry_it(file: Path) -> None:
    use_token(file)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with open_channel(f"127.0.0.1:{port}") as channel:
        assert isinstance(channel, TokenChannel)
        ready = grpc.channel_ready_future(channel)
        ready.result(timeout=30)
        wanted = f"Bearer {TOKEN}".encode()
        assert channel.unary_unary("/a/uu")(b"", timeout=30) == wanted
        assert channel.unary_unary("/a/uu").future(b"", timeout=30).result() == wanted
        assert list(channel.unary_stream("/a/us")(b"", timeout=30)) == [wanted]
        assert channel.stream_unary("/a/su")(iter([b""]), timeout=30) == wanted
        assert list(channel.stream_stream("/a/ss")(iter([b""]), timeout=30)) == [wanted]
    server.stop(0).wait()


class _Echo(grpc.GenericRpcHandler):
    """Answers with what the call carries. The last part of a method's name says its kind."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        kinds = {
            "uu": (grpc.unary_unary_rpc_method_handler, False),
            "us": (grpc.unary_stream_rpc_method_handler, True),
            "su": (grpc.stream_unary_rpc_method_handler, False),
            "ss": (grpc.stream_stream_rpc_method_handler, True),
        }
        make, many = kinds[details.method.rpartition("/")[2]]

        def answer(_request: object, context: grpc.ServicerContext) -> object:
            shown = dict(context.invocation_metadata())["authorization"].encode()
            return iter([shown]) if many else shown

        return make(answer)


def test_a_folder_is_taken_from_all_others(tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "local", tmp_path / "old"):
        if folder.name == "old":
            folder.mkdir(mode=0o755)
        close_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_many_users_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigError, match="shared by several users"):
        close_folder(shared)
    assert shared.stat().st_mode & 0o777 == 0o777
