"""Text for people and JSON for programs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from scar.errors import ConfigError
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.detector_pb2 import HEALTH_ALIVE, MemberView
from scar.v1.ps_pb2 import ObjectRef, ShareRequest, TableBlocks
from scar.v1.recovery_pb2 import FailureRecord
from scar.v1.types_pb2 import ROLE_SHARD, Member
from scar_cli.output import (
    OutputFormat,
    format_count,
    format_number,
    format_seconds,
    format_size,
    json_value,
    make_console,
    make_table,
    print_error,
    print_result,
)


def test_sizes_and_durations_are_readable() -> None:
    assert [format_size(count) for count in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]
    assert [format_seconds(value) for value in (-1, 0.0123, 1.25, 300)] == ["-", "12 ms", "1.2 s", "5 min"]
    assert [format_number(value) for value in (None, 0.4125, 1e-9)] == ["-", "0.4125", "1e-09"]


def test_json_has_every_field_and_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(
        OutputFormat.json,
        {"manifest": Manifest(number=3), "loss": math.nan, "rows": [(1, 2)]},
        lambda screen: None,
    )
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] is None
    assert found["rows"] == [[1, 2]]
    assert found["manifest"]["number"] == 3
    assert found["manifest"]["full"] is False
    assert json_value({1: ("a", True)}) == {"1": ["a", True]}


def test_json_has_numbers_as_numbers_and_blocks_as_lists() -> None:
    blocks = TableBlocks(table="w", block_ids=np.array([3, 17], "<u4").tobytes())
    record = FailureRecord(number=1, members=["ps-0@1"], sources={"object": 4}, delta_norm=math.inf)
    found = json.loads(json.dumps(json_value(record)))
    assert (found["number"], found["sources"], found["delta_norm"]) == (1, {"object": 4}, None)
    assert json_value(blocks)["block_ids"] == [3, 17]
    assert json_value(ObjectRef(key="x", bytes=2**40))["bytes"] == 2**40
    view = json_value(MemberView(member=Member(role=ROLE_SHARD, name="ps-0"), health=HEALTH_ALIVE))
    assert (view["health"], view["member"]["role"]) == ("HEALTH_ALIVE", "ROLE_SHARD")
    assert json_value(ShareRequest(key=b"abcd"))["key"] == 4  # other bytes: how many


def test_one_and_many() -> None:
    assert [format_count(n, "failure") for n in (0, 1, 2)] == ["0 failures", "1 failure", "2 failures"]
    assert format_count(2, "push", "pushes") == "2 pushes"


def test_errors_say_what_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ConfigError("the [port] is taken", "Choose another"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: the [port] is taken\nnext:  Choose another\n"


def test_no_colours_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    make_console().print("[red]text[/]")
    make_console().print(make_table(("NAME", ">COUNT"), [("ps-0", 7)]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert [line.split() for line in shown.splitlines()] == [["text"], ["NAME", "COUNT"], ["ps-0", "7"]]
