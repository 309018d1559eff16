"""The user of the services in the bundled MinIO, against a server that takes notes."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.credentials import Credentials

from scar_kube import store_user

ROOT = Credentials("root", "of all")


class AdminServer:
    """``answers``: statuses of the next requests, then 200. ``seen``: path, Authorization, body of each."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.seen: list[tuple[str, str, bytes]] = []
        notes = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:  # the name is the standard library's
                body = self.rfile.read(int(self.headers["Content-Length"]))
                notes.seen.append((self.path, self.headers["Authorization"], body))
                self.send_response(notes.answers.pop(0) if notes.answers else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def admin() -> Iterator[AdminServer]:
    server = AdminServer()
    yield server
    server.close()


def contents(packed: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_the_user_has_one_bucket_and_the_operations_of_the_store() -> None:
    found = contents(store_user.user_archive("models", "scar", "secret"))
    assert found["iam-assets/users.json"] == {"scar": {"secretKey": "secret", "status": "enabled"}}
    (name,) = found["iam-assets/policies.json"]
    assert found["iam-assets/user_mappings.json"]["scar"]["policy"] == name
    rights = {
        (action, resource)
        for statement in found["iam-assets/policies.json"][name]["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
        if statement["Effect"] == "Allow"
    }
    assert rights == {
        ("s3:ListBucket", "arn:aws:s3:::models"),
        ("s3:GetObject", "arn:aws:s3:::models/*"),
        ("s3:PutObject", "arn:aws:s3:::models/*"),
        ("s3:DeleteObject", "arn:aws:s3:::models/*"),
    }


def test_the_root_keys_sign_and_are_not_sent(admin: AdminServer) -> None:
    assert store_user.import_users(admin.url, ROOT, b"archive") == ""
    ((path, signed, body),) = admin.seen
    assert (path, body) == ("/minio/admin/v3/import-iam", b"archive")
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=root/")
    assert "of all" not in signed


def test_it_tries_until_the_server_takes_it(
    admin: AdminServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setattr(store_user, "SERVER", admin.url)
    monkeypatch.setattr(store_user, "PAUSE", 0.001)
    admin.answers = [503, 503, 403]
    assert store_user.main(["models"]) == 0
    assert len(admin.seen) == 4
    assert capsys.readouterr().err == "MinIO answers HTTP 503\nMinIO answers HTTP 403\n"


def test_a_server_that_is_not_there_yet_is_no_error() -> None:
    assert "127.0.0.1:1" in store_user.import_users("http://127.0.0.1:1", ROOT, b"")
