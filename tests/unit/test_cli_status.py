"""What `status`, `watch`, `failures` and `train` make of a look at a cluster; no process runs here."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from scar.strategies import StrategyChoice
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, detector_pb2, ps_pb2, recovery_pb2, types_pb2, worker_pb2
from scar.wire.codec import job_to_proto
from scar_admin.iteration_costs import MeasuredCost
from scar_admin.status import DONE, ClusterStatus, ProcessInfo, ask_from, merged_losses
from scar_cli import failures, status, train_display, watch

SHARDS = [
    types_pb2.Member(
        role=types_pb2.ROLE_SHARD, name=f"ps-{n}", incarnation=f"{n:012x}", address=f"127.0.0.1:700{n}"
    )
    for n in range(2)
]
WORKER = types_pb2.Member(role=types_pb2.ROLE_WORKER, name="worker-0", incarnation="f" * 12)
RECORD = recovery_pb2.FailureRecord(
    number=1,
    members=["ps-1@000000000001"],
    epoch=3,
    lost_blocks=5,
    total_blocks=10,
    sources={"object": 4, "initial": 1},
    suspect_seconds=0.2,
    detect_seconds=0.25,
    commit_seconds=0.01,
    load_seconds=0.04,
    return_seconds=2.5,
    delta_norm=1.5,
    lost_pushes=2,
    resent_pushes=3,
    waiting=["worker-1@ffffffffffff"],
)


def shard(number: int, clock: int = 40) -> ps_pb2.ShardStatus:
    table = ps_pb2.TableStatus(table="w", blocks=5, loading=number, bytes=2048)
    traffic = ps_pb2.Traffic(seconds=2.0 * number, bytes=3 << 20)
    return ps_pb2.ShardStatus(
        member=SHARDS[number], clock=clock, tables=[table], pushes=80, saved_age=0.5, traffic=traffic
    )


STATUS = ClusterStatus(
    recovery=recovery_pb2.RecoveryStatus(leader=True, epoch=3),
    job=job_to_proto(Job("mnist", tables=[Table("w", 10)])),
    epoch=types_pb2.Epoch(number=3, shards=SHARDS, workers=[WORKER]),
    checkpoint=checkpoint_pb2.CheckpointStatus(manifest=12, age=0.4),
    shards={"ps-0": shard(0), "ps-1": shard(1, 42)},
    workers={
        "worker-0": worker_pb2.WorkerStatus(
            member=WORKER, state="training", clock=41, seconds_per_clock=0.0125
        )
    },
    members={"ps-0": detector_pb2.MemberView(member=SHARDS[0], health=detector_pb2.HEALTH_ALIVE)},
    failures=(RECORD,),
    losses={38: 0.5, 39: 0.25},
    problems=("recovery: the store [s3] is down",),
)
PROCESSES = {
    "ps-0": ProcessInfo("ps-0", 11, "running", 0),
    "ps-1": ProcessInfo("ps-1", 12, "killed", 1, -9),
    "ps-2": ProcessInfo("ps-2", 13, "running", 0),
    "redis": ProcessInfo("redis", 14, "running", 0),
}


def text_of(*parts: RenderableType) -> str:
    shown = io.StringIO()
    Console(file=shown, width=160, highlight=False).print(*parts, sep="\n")
    return shown.getvalue()


def test_the_clock_is_what_every_shard_has_closed() -> None:
    assert (STATUS.number, STATUS.clock, STATUS.loss, STATUS.blocks, STATUS.loading) == (3, 40, 0.25, 10, 1)


def test_the_clock_after_the_end_is_that_of_the_last_loss() -> None:
    over = replace(STATUS, shards={"ps-0": shard(0, DONE), "ps-1": shard(1, DONE * 2)})
    assert over.clock == 40
    assert (ClusterStatus().clock, ClusterStatus().loss, ClusterStatus().number) == (0, None, 0)


def test_shards_without_blocks_do_not_hold_the_clock_back() -> None:
    idle = ps_pb2.ShardStatus(member=SHARDS[0], clock=0)
    assert replace(STATUS, shards={**STATUS.shards, "ps-2": idle}).clock == 40


def test_the_headline_says_it_all() -> None:
    assert text_of(status.headline(STATUS)).strip() == (
        "job mnist (bsp, partial) · clock 40 · loss 0.25 · epoch 3 · 1 failure · checkpoint 12, 400 ms old"
    )
    healing = replace(STATUS, job=job_to_proto(Job("mnist", [Table("w", 10)], sources="workers")))
    assert "(bsp, partial from workers)" in text_of(status.headline(healing))
    healing.job.pull_slots = 1
    assert "(bsp, partial from workers and the slots that 1 of them pulls)" in text_of(
        status.headline(healing)
    )
    chosen = StrategyChoice("partial", replicas=1, reason="it adds [least]")
    auto = replace(STATUS, job=job_to_proto(Job("mnist", [Table("w", 10)], recovery="auto", choice=chosen)))
    assert "(bsp, partial with 1 replica, chosen)" in text_of(status.headline(auto))
    assert text_of(*status.choice_line(auto)).strip() == "recovery: it adds [least]"
    assert status.choice_line(STATUS) == []
    assert "no job yet" in text_of(status.headline(ClusterStatus()))


def test_every_shard_is_listed_even_one_outside_the_epoch() -> None:
    lines = text_of(status.shard_table(STATUS, PROCESSES)).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["SHARD", "HEALTH", "CLOCK"],
        ["ps-0", "alive", "40"],
        ["ps-1", "killed", "42"],
        ["ps-2", "running", "13"],
    ]
    assert "2.0 KiB" in lines[1]
    assert "MiB/s" not in lines[1]
    assert "1.5 MiB/s" in lines[2]
    assert "127.0.0.1:7000" in lines[1]


def test_a_dead_process_is_not_called_alive_because_nobody_has_missed_it_yet() -> None:
    killed = {"ps-0": ProcessInfo("ps-0", 11, "killed", 1, -9)}
    assert status.health_text("ps-0", STATUS, PROCESSES) == "[green]alive[/]"
    assert status.health_text("ps-0", STATUS, killed) == "[red]killed[/]"
    cut = {"ps-0": ProcessInfo("ps-0", 100, "cut", 0)}
    assert status.health_text("ps-0", STATUS, cut) == "[green]alive[/], cut off"


def test_workers_and_services_are_listed() -> None:
    assert "training" in text_of(status.worker_table(STATUS, PROCESSES))
    assert "12.5 ms" in text_of(status.worker_table(STATUS, PROCESSES))
    assert "?" in text_of(status.worker_table(replace(STATUS, workers={}), PROCESSES))
    assert text_of(status.coordinator_table(STATUS, PROCESSES)).splitlines()[1].split() == [
        "redis",
        "running",
        "14",
        "0",
    ]


def test_the_data_for_programs() -> None:
    data = status.status_document(STATUS, PROCESSES)
    assert (data["job"], data["epoch"], data["clock"], data["loss"]) == ("mnist", 3, 40, 0.25)
    assert data["processes"]["ps-1"]["code"] == -9


def test_a_row_of_the_ledger() -> None:
    row = dict(zip(failures.COLUMNS, failures.failure_row(RECORD, MeasuredCost(2, 3)), strict=True))
    assert row[">BLOCKS"] == "5/10"
    assert row["FROM"] == "1 initial, 4 object"
    assert (row[">DETECT"], row[">WAIT"], row[">DOWN"]) == ("250 ms", "0 ms", "300 ms")
    assert (row[">SUSPECT"], row[">SETTLE"], row[">RETURN"]) == ("200 ms", "not yet", "2.5 s")
    assert (row[">||DELTA||"], row[">TOUCHED"], row[">RESENT"]) == ("~1.5", 2, 3)
    assert row[">COST"] == "3"
    assert row["STATE"] == "healed in epoch 3, waiting for worker-1"


def test_a_failure_that_is_not_healed_yet() -> None:
    record = recovery_pb2.FailureRecord(number=2, members=["ps-0@0"], lost_blocks=5, delta_norm=-1)
    assert failures.state_text(record) == "recovering"
    assert failures.delta_text(record) == "-"
    assert "recovering 5 blocks" in watch.failure_line(record)


def test_the_death_of_a_worker_says_that_no_block_was_lost() -> None:
    record = recovery_pb2.FailureRecord(
        number=3,
        members=["worker-1@0"],
        total_blocks=10,
        epoch=4,
        clock=20,
        strategy="ignr",
        detect_seconds=0.25,
    )
    said = "failure 3: worker-1@0: no block lost, taken out at clock 20 in 250 ms (ignr); healed in epoch 4"
    assert text_of(Text.from_markup(watch.failure_line(record))).strip() == said
    assert failures.failure_row(record, MeasuredCost())[3:5] == ("0/10", "-")


def test_the_cost_of_a_failure_informs_and_does_not_frighten() -> None:
    assert (
        failures.cost_text(RECORD) == ", 2 acknowledged pushes touched blocks that went back, ||delta|| ~1.5"
    )
    assert failures.cost_text(recovery_pb2.FailureRecord(delta_norm=-1)) == ""
    assert failures.cost_text(recovery_pb2.FailureRecord(delta_norm=0.0, delta_exact=True)) == ", ||delta|| 0"


def test_the_page_has_the_curve_and_the_problem() -> None:
    shown = text_of(watch.draw_page(STATUS, list(PROCESSES.values()), 100))
    assert "0.25" in shown
    assert "█" in shown
    assert "failure 1: ps-1@000000000001: 5 of 10 blocks back in 300 ms" in shown
    assert "problem: recovery: the store [s3] is down" in shown
    assert "no loss yet" in text_of(*watch.loss_curve(ClusterStatus(), 80))


def test_what_was_seen_last_stays_on_the_screen() -> None:
    shown = io.StringIO()
    with watch._open_display(Console(file=shown, width=100, force_terminal=True, highlight=False)) as show:
        show(replace(STATUS, losses={0: 0.75}), [])
        show(STATUS, list(PROCESSES.values()))
    _, _, left = shown.getvalue().rpartition("\x1b[?1049l")  # back to the screen of before
    assert "job mnist" in left
    assert "loss 0.25" in left
    assert "loss 0.75" not in left


def test_lines_are_printed_only_when_something_changed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = watch.ChangeLines(Console(width=200, highlight=False))
    lines.show(STATUS, list(PROCESSES.values()))
    first = capsys.readouterr().out.splitlines()
    assert len(first) == 1 + len(PROCESSES) + 1 + 1
    lines.show(STATUS, list(PROCESSES.values()))
    assert capsys.readouterr().out == ""
    lines.show(replace(STATUS, problems=()), [ProcessInfo("ps-1", 15, "running", 2)])
    assert capsys.readouterr().out == "ps-1: running, pid 15, restarts 2\n"


def test_the_line_of_a_training() -> None:
    line = train_display.status_line(STATUS, STATUS.problems)
    assert line.startswith(
        "clock 40 · loss 0.25 █▁ · checkpoint 12 · 1 failure · loading 1 block · waiting: recovery:"
    )
    recovery = recovery_pb2.RecoveryStatus(leader=True, epoch=3, recovering=["ps-1@000000000001"])
    assert "recovering 1 block ·" in train_display.status_line(
        replace(STATUS, recovery=recovery), STATUS.problems
    )
    assert train_display.status_line(ClusterStatus()) == "clock 0 · loss -"


def test_arrays_are_not_part_of_a_status() -> None:
    assert not any(isinstance(value, np.ndarray) for value in vars(STATUS).values())


def test_a_clock_that_a_rollback_made_void_has_no_loss_and_hides_no_later_one() -> None:
    losses = ClusterStatus(losses={2: 0.5, 4: 0.25}).losses_from(1)
    assert [None if math.isnan(loss) else loss for loss in losses] == [None, 0.5, None, 0.25]
    assert ClusterStatus(losses={2: 0.5}).losses_from(3) == []
    assert ClusterStatus().losses_from(0) == []


def test_the_headline_names_the_fraction_and_the_clock_of_a_loss() -> None:
    assert status.loss_text(STATUS) == "loss 0.25"
    assert status.loss_text(replace(STATUS, fractions={39: 0.5})) == "loss 0.25 (of 50.0% of the data)"
    logged = replace(STATUS, metrics={39: {"accuracy": 0.5}, 7: {"accuracy": 0.25, "[held out]": 2.0}})
    assert status.loss_text(logged) == r"loss 0.25, accuracy 0.5, \[held out] 2"
    assert status.status_document(logged, PROCESSES)["metrics"] == {"accuracy": 0.5, "[held out]": 2.0}
    late = replace(STATUS, losses={20: 0.5})
    assert status.loss_text(late) == "loss 0.5 of clock 20, later ones have none"
    assert status.status_document(replace(STATUS, fractions={39: 0.5}), PROCESSES)["loss_fraction"] == 0.5
    assert status.status_document(STATUS, PROCESSES)["loss_clock"] == 39


def test_what_one_shard_lacks_another_one_has() -> None:
    points = [(1, 3.0, 0.5), (0, 1.0, 0.0)], [(2, 4.0, 1.0), (0, 1.0, 1.0)]
    shards = [
        ps_pb2.ShardStatus(losses=[ps_pb2.LossPoint(clock=c, loss=x, fraction=f) for c, x, f in some])
        for some in points
    ]
    found = merged_losses(shards)
    assert {clock: (point.loss, point.fraction) for clock, point in found.items()} == {
        0: (1, 1),
        1: (3, 0.5),
        2: (4, 1),
    }
    assert list(found) == [0, 1, 2]
    told = [
        ps_pb2.ShardStatus(losses=[ps_pb2.LossPoint(clock=4, loss=1, metrics=metrics)])
        for metrics in ({"accuracy": 0.5}, {})
    ]
    assert merged_losses(told)[4].metrics == merged_losses(reversed(told))[4].metrics == (("accuracy", 0.5),)


def test_losses_are_asked_for_again_as_some_are_known_late() -> None:
    assert (ask_from({}), ask_from({5: 1.0}), ask_from({100: 1.0})) == (0, 0, 36)
