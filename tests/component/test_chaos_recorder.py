"""The recorder of chaos runs: what a worker says is on disk before it is answered, once, whatever happens
on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from scar.errors import ConfigError
from scar.wire.certificates import read_certificate
from scar.wire.credentials import channel_credentials, use_certificate
from scar.wire.transport import open_channel
from scar_chaos.core.counting_job import make_job
from scar_chaos.recorder import METHOD, Recorder, RecorderClient, read_history
from scar_local.authority import create_authority, role_files

WORKER = "scar-worker-0@0123456789ab"


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "history") as recorder:
        yield recorder


def raw(recorder: Recorder, worker: str, number: int, **event: int) -> bytes:
    with open_channel(recorder.address) as channel:
        request = json.dumps({"worker": worker, "number": number, "events": [event]}).encode()
        answer: bytes = channel.unary_unary(METHOD)(request, timeout=5)
        return answer


def test_what_was_written_is_the_history(recorder: Recorder) -> None:
    with RecorderClient(recorder.address, WORKER) as client:
        client.write_events({"open": 0})
        client.write_events(
            {"push": 1, "clock": 0, "table": "rows", "ids": None},
            {"push": 2, "clock": 0, "table": "pairs", "ids": [1, 3]},
        )
        client.write_events({"open": 1})
        past = read_history(recorder.folder, make_job(shards=1))
    assert [(push.number, len(push.ids)) for push in past.pushes] == [(1, 24), (2, 2)]
    assert past.acknowledged == {WORKER: 1}
    times = [at for at, _, _ in past.opened]
    assert times == sorted(times)


def test_the_answer_carries_the_orders(recorder: Recorder) -> None:
    with RecorderClient(recorder.address, WORKER) as client:
        assert client.write_events({"open": 0}) == {}
        recorder.give_orders(hold=7)
        assert client.write_events() == {"hold": 7}
        recorder.give_orders(end=9)
        assert client.write_events({"open": 1}) == {"end": 9}


def test_a_write_whose_answer_was_lost_is_written_once(recorder: Recorder) -> None:
    for number in (1, 1, 2, 1):
        raw(recorder, WORKER, number, open=number)
    lines = (recorder.folder / f"{WORKER}.jsonl").read_text().splitlines()
    assert [json.loads(line)["open"] for line in lines] == [1, 2]


@pytest.mark.parametrize("name", ["../worker-0@0123456789ab", "worker-0", "a/b@00", ""])
def test_only_members_write(recorder: Recorder, name: str) -> None:
    with pytest.raises(grpc.RpcError):
        raw(recorder, name, 1, open=0)
    assert list(recorder.folder.rglob("*.jsonl")) == []
    assert list(recorder.folder.parent.glob("*.jsonl")) == []


def test_a_taken_port_says_what_to_do(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        Recorder(tmp_path / "second", listen=recorder.address)


@pytest.mark.parametrize(
    ("authority", "role", "written"),
    [("ours", "worker", True), ("ours", "shard", False), ("other", "worker", False)],
)
def test_with_tls_only_workers_of_the_cluster_write(
    tmp_path: Path, authority: str, role: str, written: bool
) -> None:
    """One of another cluster has the same authority here, so that gRPC alone lets it in."""
    for name, cluster in (("ours", "one"), ("other", "two")):
        create_authority(tmp_path / name, cluster)
    trust_both(tmp_path / "ours", tmp_path / "other")
    use_certificate(role_files(tmp_path / "ours", "operator"))
    own = read_certificate(role_files(tmp_path / authority, role))
    name = ("grpc.ssl_target_name_override", "operator.one.scar")
    with (
        Recorder(tmp_path / "history") as recorder,
        grpc.secure_channel(recorder.address, channel_credentials(own), [name]) as channel,
    ):
        request = json.dumps({"worker": WORKER, "number": 1, "events": [{"open": 0}]}).encode()
        refusal = channel.unary_unary(METHOD).future(request, timeout=10).exception()
        assert (refusal is None) is written, refusal
        assert written or refusal.code() is grpc.StatusCode.PERMISSION_DENIED
        assert (recorder.folder / f"{WORKER}.jsonl").exists() is written


def trust_both(one: Path, other: Path) -> None:
    both = (one / "ca.crt").read_bytes() + (other / "ca.crt").read_bytes()
    for folder in (one, other):
        for path in folder.rglob("ca.crt"):
            path.write_bytes(both)
