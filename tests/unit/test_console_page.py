"""What the page shows of one look, and what it remembers from look to look; no process runs here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from scar.errors import ConfigError
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, detector_pb2, ps_pb2, recovery_pb2, types_pb2, worker_pb2
from scar.wire.codec import job_to_proto
from scar_admin.observer import ClusterObserver
from scar_admin.status import DONE, ClusterStatus, ProcessInfo
from scar_cli.clusters import DirectTarget
from scar_cli.console import ConsoleCluster
from scar_console.page_model import MAX_FAILURES, MAX_ROWS, SeenBefore, page_model
from scar_console.run_view import RunView
from scar_local.directory import ClusterState


def member(name: str) -> types_pb2.Member:
    return types_pb2.Member(name=name, incarnation="a" * 12, address="127.0.0.1:7000")


def shard(name: str, blocks: int = 5, clock: int = 40) -> ps_pb2.ShardStatus:
    table = ps_pb2.TableStatus(table="w", blocks=blocks, bytes=2048)
    return ps_pb2.ShardStatus(member=member(name), clock=clock, tables=[table], saved_age=0.5, serving=True)


def record(number: int, **facts: Any) -> recovery_pb2.FailureRecord:
    return recovery_pb2.FailureRecord(
        number=number, members=["ps-1@aaaaaaaaaaaa"], lost_blocks=5, total_blocks=10, clock=30, **facts
    )


def process(name: str, state: str = "running") -> ProcessInfo:
    return ProcessInfo(name, 100, state, 0)


SPLIT = worker_pb2.TimeSplit(pull=0.0005, compute=0.01, push=0.001, wait=0.001)
STATUS = ClusterStatus(
    recovery=recovery_pb2.RecoveryStatus(leader=True, epoch=3),
    job=job_to_proto(Job("mnist", tables=[Table("w", 10)])),
    epoch=types_pb2.Epoch(number=3, shards=[member("ps-0"), member("ps-1")], workers=[member("worker-0")]),
    checkpoint=checkpoint_pb2.CheckpointStatus(leader=True, manifest=12, age=0.4, bytes=99),
    shards={"ps-0": shard("ps-0"), "ps-1": shard("ps-1", clock=42)},
    workers={"worker-0": worker_pb2.WorkerStatus(state="training", clock=41, seconds_per_clock=0.0125)},
    members={"ps-0": detector_pb2.MemberView(health=detector_pb2.HEALTH_ALIVE)},
    losses={38: 0.5, 39: 0.25},
)


def test_it_shows_who_owns_what_at_which_clock() -> None:
    page = page_model(STATUS, [process("ps-0"), process("ps-1", "killed"), process("worker-0")], SeenBefore())
    assert (page["clock"], page["loss"], page["job"]["name"]) == (40, 0.25, "mnist")
    rows = page["shards"]["rows"]
    assert [(row["name"], row["health"], row["blocks"], row["clock"]) for row in rows] == [
        ("ps-0", "alive", 5, 40),
        ("ps-1", "killed", 5, 42),
    ]
    assert [row["running"] for row in rows] == [True, False]
    assert page["workers"]["rows"][0]["state"] == "training"
    assert page["checkpoint"]["manifest"] == 12


def test_it_shows_what_is_chosen_for_rounds_and_why() -> None:
    assert page_model(STATUS, [], SeenBefore())["checkpoint"]["plan"] is None
    plan = checkpoint_pb2.RoundPlan(fraction=0.125, every=41, reason="as the budget allows")
    chosen = checkpoint_pb2.CheckpointStatus(leader=True, manifest=12, plan=plan)
    page = page_model(replace(STATUS, checkpoint=chosen), [], SeenBefore())
    assert page["checkpoint"]["plan"] == {"fraction": 0.125, "every": 41, "reason": "as the budget allows"}


def test_it_shows_why_a_strategy_was_chosen() -> None:
    assert page_model(STATUS, [], SeenBefore())["job"]["choice"] is None
    named = types_pb2.JobSpec()
    named.CopyFrom(STATUS.job)
    named.choice.reason = "partial adds least"
    page = page_model(replace(STATUS, job=named), [], SeenBefore())
    assert page["job"]["choice"] == "partial adds least"


def test_a_shard_that_does_not_answer_is_still_there() -> None:
    page = page_model(
        replace(STATUS, shards={"ps-0": shard("ps-0")}), [process("ps-2", "starting")], SeenBefore()
    )
    names = [(row["name"], row["health"], row["blocks"]) for row in page["shards"]["rows"]]
    assert names == [("ps-0", "alive", 5), ("ps-1", "?", 0), ("ps-2", "starting", 0)]


def test_who_leads_is_said_of_coordinators_alone() -> None:
    page = page_model(
        STATUS, [process("recovery-0"), process("checkpoint-0"), process("redis")], SeenBefore()
    )
    assert {row["name"]: row["leader"] for row in page["services"]} == {
        "checkpoint-0": True,
        "recovery-0": True,
        "redis": None,
    }


def test_of_a_thousand_shards_the_unwell_are_shown() -> None:
    names = [f"ps-{number}" for number in range(1000)]
    processes = [process(name, "killed" if name in ("ps-77", "ps-999") else "running") for name in names]
    shards = page_model(ClusterStatus(), processes, SeenBefore())["shards"]
    shown = [row["name"] for row in shards["rows"]]
    assert (shards["total"], len(shown)) == (1000, MAX_ROWS)
    assert {"ps-77", "ps-999"} <= set(shown)
    assert shown[:11] == names[:11], "ps-2 before ps-10"


def test_of_many_failures_the_newest_are_shown() -> None:
    failures = tuple(record(number) for number in range(1, 501))
    page = page_model(replace(STATUS, failures=failures), [], SeenBefore())
    assert page["failure_count"] == 500
    assert [one["number"] for one in page["failures"]] == list(range(501 - MAX_FAILURES, 501))


def test_numbers_that_json_lacks_are_left_out() -> None:
    broken = record(1, epoch=3, delta_norm=math.inf)
    done = replace(
        STATUS, shards={"ps-0": shard("ps-0", clock=DONE)}, failures=(broken,), losses={3: math.nan}
    )
    page = page_model(done, [], SeenBefore())
    json.dumps(page, allow_nan=False)
    assert (page["loss"], page["loss_clock"]) == (None, 3)
    assert page["shards"]["rows"][0]["clock"] is None
    assert page["failures"][0]["delta_norm"] is None


def test_a_problem_is_said_once() -> None:
    status = replace(STATUS, problems=("ps-1 does not answer: gone",))
    page = page_model(status, [], SeenBefore())
    assert page["problems"] == ["ps-1 does not answer: gone"]
    assert page["waits"] == []


def test_without_a_job_there_is_a_page() -> None:
    page = page_model(ClusterStatus(problems=("recovery does not answer: gone",)), [], SeenBefore())
    assert (page["job"], page["checkpoint"], page["failures"]) == (None, None, [])


def test_each_figure_of_a_row_is_what_its_process_says() -> None:
    busy = shard("ps-0")
    busy.pushes = 700
    busy.traffic.seconds = 4.0
    busy.traffic.bytes = 1000
    busy.tables[0].loading = 2
    busy.tables[0].unsettled = 1
    busy.replicas = 3
    worker = worker_pb2.WorkerStatus(
        state="training", clock=41, seconds_per_clock=0.0125, waited=0.5, per_clock=SPLIT
    )
    report = checkpoint_pb2.RoundReport(
        round=9,
        manifest=8,
        clock=39,
        blocks_total=10,
        blocks_saved=4,
        bytes=77,
        select_seconds=0.25,
        copy_seconds=2.0,
        stall_seconds=0.5,
        commit_seconds=0.75,
        missed=["ps-1"],
    )
    status = replace(
        STATUS,
        shards={"ps-0": busy},
        workers={"worker-0": worker},
        checkpoint=checkpoint_pb2.CheckpointStatus(
            manifest=8, objects=5, bytes=99, age=1.5, clock=39, recent=[report]
        ),
        recovery=recovery_pb2.RecoveryStatus(store="file:///there"),
    )
    before = SeenBefore(rates={"ps-0": 12.5}, oldest={"ps-0": 30, "ps-1": -1})
    page = page_model(status, [replace(process("ps-0"), restarts=6), process("worker-0")], before)
    first, other = page["shards"]["rows"]
    assert first == {
        "name": "ps-0",
        "health": "alive",
        "hindered": "",
        "running": True,
        "restarts": 6,
        "clock": 40,
        "blocks": 5,
        "copies": 3,
        "loading": 2,
        "unsettled": 1,
        "bytes": 2048,
        "traffic": 250,
        "saved_age": 0.5,
        "rate": 12.5,
        "oldest": 30,
    }
    assert (other["rate"], other["oldest"], other["running"]) == (-1.0, -1, False)
    assert page["workers"]["rows"] == [
        {
            "name": "worker-0",
            "health": "running",
            "hindered": "",
            "running": True,
            "restarts": 0,
            "state": "training",
            "clock": 41,
            "seconds_per_clock": 0.0125,
            "waited": 0.5,
            "split": [0.0005, 0.01, 0.001, 0.001],
            "straggler": False,
        }
    ]
    assert (page["shards"]["well"], page["shards"]["total"], page["workers"]["well"]) == (1, 2, 1)
    assert page["checkpoint"]["recent"] == [
        {
            "round": 9,
            "manifest": 8,
            "clock": 39,
            "blocks": 4,
            "blocks_total": 10,
            "bytes": 77,
            "select": 0.25,
            "copy": 0.5,
            "commit": 0.75,
            "missed": ["ps-1"],
            "error": "",
        }
    ]
    assert page["store"] == "file:///there"


@pytest.mark.parametrize(("state", "said"), [("paused", "frozen"), ("cut", "cut off"), ("running", "")])
def test_who_was_frozen_or_cut_off_on_purpose_is_said(state: str, said: str) -> None:
    page = page_model(STATUS, [process("ps-0", state)], SeenBefore())
    assert page["shards"]["rows"][0]["hindered"] == said
    assert page["shards"]["rows"][0]["running"]


# --- from look to look


class Looks:
    """A cluster and its observer: each look is the next of ``statuses``. Notes what was asked for."""

    can_break = ()
    cannot_break = ("because",)

    def __init__(self, *statuses: ClusterStatus) -> None:
        self._statuses: Iterator[ClusterStatus] = iter(statuses)
        self.asked: list[int] = []
        self.over = False

    def view(self) -> RunView:
        return RunView(self, cast(ClusterObserver, self))

    def observer(self) -> ClusterObserver:
        return cast(ClusterObserver, self)

    def read(self, since_clock: int = 0) -> ClusterStatus:
        self.asked.append(since_clock)
        return next(self._statuses)

    def processes(self) -> tuple[ProcessInfo, ...]:
        return ()

    def ended(self) -> bool:
        return self.over

    def store(self) -> None: ...

    def logs(self) -> None: ...

    def break_member(self, how: str, name: str) -> str:
        raise ConfigError(f"{name} stays, without {how}")


def test_a_look_asks_again_for_what_a_silent_shard_may_know() -> None:
    """Within bounds: one that is never heard costs no look of the whole run."""
    seen = replace(STATUS, losses={200: 0.125})
    silent = replace(STATUS, shards={"ps-0": shard("ps-0")}, losses={400: 0.125})
    far = replace(silent, losses={9000: 0.1})
    looks = Looks(seen, seen, silent, silent, far, far, STATUS, STATUS)
    view = looks.view()
    for _ in range(7):
        view.look()
    assert looks.asked[2:] == [200 - 64, 200 - 64, 200 - 64, 9000 - 4096, 9000 - 4096, 9000 - 64]


def test_a_step_has_what_is_new_and_a_whole_look_has_all() -> None:
    later = replace(STATUS, losses={200: 0.125})
    looks = Looks(STATUS, STATUS, later, later)
    view = looks.view()
    first = view.look()
    assert first.step == first.whole, "nobody has seen the look before"
    second = view.look()
    assert json.loads(second.step)["curve"] == {"from": 200, "clocks": [200], "losses": [0.125]}
    assert json.loads(second.whole)["curve"]["clocks"] == [38, 39, 200]
    assert set(json.loads(second.step)["state"]) == {"loss", "loss_clock", "shards"}, (
        "rates are known from now on"
    )
    third = json.loads(view.look().step)
    assert third["moments"]["from"] >= 0, "time goes on"
    del third["moments"]
    assert third == {"state": {}, "curve": None, "metrics": {}, "blocks": None, "logs": []}, "nothing is new"
    assert looks.asked == [0, 0, 0, 200 - 64]


def test_another_job_or_the_same_one_begun_anew_has_a_curve_of_its_own() -> None:
    other = replace(STATUS, job=job_to_proto(Job("other", tables=[Table("w", 10)])), losses={0: 7.0})
    anew = replace(other, epoch=types_pb2.Epoch(number=1), losses={1: 8.0})
    view = Looks(STATUS, STATUS, other, other, anew, anew).view()
    curves = [json.loads(view.look().step)["curve"] for _ in range(3)]
    assert [(curve["from"], curve["clocks"]) for curve in curves] == [(0, [38, 39]), (0, [0]), (0, [1])]


def test_a_repair_that_was_seen_has_its_clock() -> None:
    """Also of a failure that began and was repaired between two looks; not of one before the first look."""
    old = record(1, epoch=2, load_seconds=0.1)
    before = replace(STATUS, failures=(old, record(2)))
    repaired = record(2, epoch=3, load_seconds=0.2)
    quick = record(3, epoch=4, load_seconds=0.2)
    after = replace(
        STATUS, shards={"ps-0": shard("ps-0", clock=50)}, failures=(old, repaired, quick, record(4))
    )
    later = replace(after, shards={"ps-0": shard("ps-0", clock=60)})
    view = Looks(before, before, after, later).view()
    shown = [json.loads(view.look().whole)["state"]["failures"] for _ in range(3)]
    marks = [[(one["repaired"], one["healed_clock"]) for one in failures] for failures in shown]
    assert marks[0] == [(True, -1), (False, -1)]
    assert marks[1] == marks[2] == [(True, -1), (True, 50), (True, 50), (False, -1)]


def test_the_last_look_says_that_it_is_the_last() -> None:
    looks = Looks(STATUS, STATUS, STATUS)
    view = looks.view()
    assert not view.look().ended
    looks.over = True
    update = view.look()
    assert update.ended
    assert json.loads(update.whole)["state"]["ended"]


# --- what may be broken


class Fixed(DirectTarget):
    def processes(self) -> tuple[ProcessInfo, ...]:
        return (process("ps-0", "killed"), process("recovery-0", "killed"))  # nothing that a slip could hit


@pytest.mark.parametrize("how", ["kill", "freeze", "cut"])
def test_only_shards_and_workers_that_run_are_broken_from_the_page(tmp_path: Path, how: str) -> None:
    cluster = ConsoleCluster(Fixed("127.0.0.1:1", directory=tmp_path, state=ClusterState(1, "", "")))
    assert how in cluster.can_break
    with pytest.raises(ConfigError, match="breaks shards and workers, not recovery-0"):
        cluster.break_member(how, "recovery-0")
    with pytest.raises(ConfigError, match="there is no process 'ps-9'"):
        cluster.break_member(how, "ps-9")
    with pytest.raises(ConfigError, match="ps-0 does not run"):
        cluster.break_member(how, "ps-0")


def test_a_button_that_is_absent_is_accounted_for(tmp_path: Path) -> None:
    elsewhere = ConsoleCluster(Fixed("127.0.0.1:1"))
    assert elsewhere.can_break == ()
    assert "only an address is known" in elsewhere.cannot_break[0]
    state = ClusterState(1, "", "", cut_problem="this system does not let it")
    here = ConsoleCluster(Fixed("127.0.0.1:1", directory=tmp_path, state=state))
    assert here.can_break == ("kill", "freeze")
    assert here.cannot_break[0].startswith("No cut: this system does not let it. It takes Linux 5.6")
    assert json.loads(Looks(STATUS, STATUS).view().look().whole)["state"]["cannot_break"] == ["because"]
