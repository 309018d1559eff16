"""`scar jobs`, and the ledger, from a store that no service serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from scar.errors import ConfigError, JobNotFound, StoreUnavailable
from scar.tables import Job, Table, sgd
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.recovery_pb2 import FailureRecord, FinishedRecord
from scar.v1.types_pb2 import ROLE_SHARD, ROLE_WORKER, Epoch, Member
from scar.wire.codec import job_to_proto
from scar_admin.iteration_costs import MeasuredCost
from scar_admin.status import ClusterStatus
from scar_cli import failures, jobs
from scar_cli.cluster_ref import ClusterRef
from scar_cli.output import OutputFormat
from scar_local import ClusterDirectory, ClusterState
from scar_local.directory import default_directory
from scar_runtime.store import open_store
from scar_runtime.store.directory import DirectoryStore
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.layout import numbered
from scar_runtime.store.records import create_record

GONE = Member(role=ROLE_SHARD, name="ps-0", incarnation="0" * 12, address="127.0.0.1:1")
WORKER = Member(role=ROLE_WORKER, name="worker-0", incarnation="f" * 12)


def declare(url: str, name: str, epoch: Epoch | None = None) -> None:
    store = open_store(url).under(name)
    create_record(store, "job", job_to_proto(Job(name, [Table("w", (10, 3), rule=sgd(0.1))])))
    create_record(
        store, numbered("epochs", 1), epoch or Epoch(number=1, job=name, shards=[GONE], workers=[WORKER])
    )
    create_record(store, numbered("manifests", 1), Manifest(number=1, clock=7, created=1.8e9))


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two jobs: one was stopped, one has finished."""
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path / 'store'}"
    declare(url, "mlr")
    declare(url, "done", Epoch(number=1, job="done", finished=1))
    create_record(
        open_store(url).under("done"), numbered("finished", 1), FinishedRecord(number=1, manifest=1, clock=91)
    )
    FailureLog(open_store(url).under("mlr")).write(
        FailureRecord(number=1, members=["ps-1@0"], epoch=2, lost_blocks=5), "a"
    )
    return url


def known(url: str, job: str) -> None:
    """The directory knows a cluster that ran here and does not any more."""
    home = ClusterDirectory(default_directory())
    home.path.mkdir(parents=True)
    home.write(ClusterState(1, "", url, job, {"recovery": "127.0.0.1:1"}, label="local-1"))


def listed(url: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    jobs.list_jobs(ClusterRef(), url, OutputFormat.json)
    return {row["job"]: row for row in json.loads(capsys.readouterr().out)["jobs"]}


def test_the_listing_says_how_far_each_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(url, capsys)
    told = {
        name: [row[key] for key in ("state", "clock", "epoch", "manifest", "failures")]
        for name, row in rows.items()
    }
    assert told == {"mlr": ["stopped", 7, 1, 1, 1], "done": ["finished", 91, 1, 1, 0]}
    files = [file for file in Path("store/mlr").rglob("*") if file.is_file()]
    assert rows["mlr"]["bytes"] == sum(file.stat().st_size for file in files) > 0
    jobs.list_jobs(ClusterRef(), url, OutputFormat.text)
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["done", "finished", "91"],
        ["mlr", "stopped", "7"],
    ]


def test_a_damaged_job_is_listed_and_can_be_removed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url).under("mlr")
    store.put(numbered("epochs", 1), b"nonsense")
    assert "damaged" in str(listed(url, capsys)["mlr"]["note"])
    jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert open_store(url).under("mlr").list() == []


def test_one_job(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.show_job(ClusterRef(), "mlr", url, OutputFormat.text)
    shown = capsys.readouterr().out
    assert "w      10x3   float32  sgd, lr 0.1" in shown
    jobs.show_job(ClusterRef(), "mlr", url, OutputFormat.json)
    data = json.loads(capsys.readouterr().out)
    assert data["tables"][0]["blocks"] == 10
    assert sum(data["bytes_of"].values()) == data["bytes"]
    with pytest.raises(JobNotFound, match="no job 'nmf'") as caught:
        jobs.show_job(ClusterRef(), "nmf", url, OutputFormat.text)
    assert "It has done, mlr" in caught.value.next_step


def test_removing_frees_every_byte_and_touches_no_other_job(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size, other = listed(url, capsys)["mlr"]["bytes"], open_store(url).under("done").list()
    jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert f"removed job mlr: 4 objects, {size} B freed" in capsys.readouterr().out
    assert open_store(url).list() == [f"done/{key}" for key in other]


def test_without_a_terminal_nobody_can_be_asked(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be undone") as caught:
        jobs.remove_job(ClusterRef(), "mlr", url, yes=False)
    assert "--yes" in caught.value.next_step
    assert len(open_store(url).under("mlr").list()) == 4


def test_a_removal_that_was_cut_short_can_be_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = DirectoryStore.delete

    def failing(self: DirectoryStore, key: str) -> None:
        if key.startswith("epochs"):
            raise StoreUnavailable("the power is gone")
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "delete", failing)
        with pytest.raises(StoreUnavailable):
            jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert open_store(url).under("mlr").list() == ["epochs/00000001", "job"]
    jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert open_store(url).under("mlr").list() == []


class Shard(ps_pb2_grpc.ShardControlServicer):
    def Status(self, request: ps_pb2.ShardStatusRequest, context: grpc.ServicerContext) -> ps_pb2.ShardStatus:
        return ps_pb2.ShardStatus(member=GONE)


@pytest.fixture
def address() -> Iterator[str]:
    """A shard that is there."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    ps_pb2_grpc.add_ShardControlServicer_to_server(Shard(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait(5)


def test_a_job_whose_shards_answer_is_not_removed(
    url: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    living = Member(role=ROLE_SHARD, name="ps-0", incarnation=GONE.incarnation, address=address)
    other = Member(role=ROLE_SHARD, name="ps-0", incarnation="1" * 12, address=address)
    declare(url, "busy", Epoch(number=1, job="busy", shards=[living], workers=[WORKER]))
    declare(url, "left", Epoch(number=1, job="left", shards=[other], workers=[WORKER]))
    rows = listed(url, capsys)
    assert [rows[name]["state"] for name in ("busy", "left")] == ["running", "stopped"]
    with pytest.raises(ConfigError, match="a cluster has job 'busy', and trains it"):
        jobs.remove_job(ClusterRef(), "busy", url, yes=True)
    assert len(open_store(url).under("busy").list()) == 3


def test_the_ledger_is_read_from_the_store_when_no_cluster_runs(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failures.show_failures(ClusterRef(), "mlr", url, OutputFormat.json)
    assert json.loads(capsys.readouterr().out)["failures"][0]["members"] == ["ps-1@0"]
    known(url, "mlr")
    failures.show_failures(
        ClusterRef(), "", "", OutputFormat.text
    )  # which of the two jobs, the directory knows
    assert "ps-1" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="2 jobs"):
        failures.show_failures(ClusterRef(), "", url, OutputFormat.text)


@pytest.mark.parametrize("answering", [["ps-0", "ps-1"], ["ps-0"]])
def test_costs_say_which_shards_told_no_losses(
    answering: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another loss may change what a failure has cost."""
    shards = [Member(role=ROLE_SHARD, name=f"ps-{number}") for number in range(2)]
    status = ClusterStatus(
        epoch=Epoch(number=3, shards=shards),
        shards=dict.fromkeys(answering, ps_pb2.ShardStatus()),
        failures=(FailureRecord(number=1),),
    )
    monkeypatch.setattr(failures, "cluster_exists", lambda ref: True)
    monkeypatch.setattr(failures, "find_cluster", lambda ref: None)
    monkeypatch.setattr(failures, "read_status", lambda target: status)
    failures.show_failures(ClusterRef(), "", "", OutputFormat.json)
    silent = json.loads(capsys.readouterr().out)["silent"]
    assert silent == [name for name in ("ps-0", "ps-1") if name not in answering]
    failures.show_failures(ClusterRef(), "", "", OutputFormat.text)
    assert ("ps-1 did not answer: COST is by the losses" in capsys.readouterr().out) == bool(silent)


def test_a_rollback_is_shown_as_what_it_is() -> None:
    record = FailureRecord(
        number=2,
        clock=41,
        restored_clock=37,
        strategy="rollback",
        rollback="the loss of clock 40 is nan, says w",
    )
    assert failures.failure_row(record, MeasuredCost())[2] == "rollback"
    assert failures.rollback_text(record) == (
        "#2 rolled back from clock 41 to what was saved by clock 37: the loss of clock 40 is nan, says w"
    )


def test_a_job_whose_owner_beats_is_not_removed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shards cannot be reached from here, but it says in the store that it lives."""
    monkeypatch.setattr(jobs, "OWNER_BEAT_SECONDS", 0.01)
    store = open_store(url).under("mlr")
    store.put("owner-beat", b"0")
    beats = iter(range(1, 1000))
    monkeypatch.setattr(jobs.time, "sleep", lambda _seconds: store.put("owner-beat", b"%d" % next(beats)))
    with pytest.raises(ConfigError, match="another cluster trains"):
        jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert store.list()
    monkeypatch.setattr(jobs.time, "sleep", lambda _seconds: None)
    jobs.remove_job(ClusterRef(), "mlr", url, yes=True)
    assert not store.list()
