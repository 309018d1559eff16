"""Text for people and JSON for programs."""

from __future__ import annotations

import json
import math

import pytest

from scar.errors import ConfigError
from scar.v1.checkpoint_pb2 import Manifest
from scar_cli.output import Output, console, fail, number, plain, seconds, show, size, table


def test_sizes_and_durations_are_readable() -> None:
    assert [size(count) for count in (0, 1023, 1536, 3 << 20, 5 << 40)] == ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 TiB"]
    assert [seconds(value) for value in (-1, 0.0123, 1.25, 300)] == ["-", "12 ms", "1.2 s", "5 min"]
    assert [number(value) for value in (None, 0.4125, 1e-9)] == ["-", "0.4125", "1e-09"]


def test_json_has_every_field_and_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    show(Output.json, {"manifest": Manifest(number=3), "loss": math.nan, "rows": [(1, 2)]}, lambda screen: None)
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] is None
    assert found["rows"] == [[1, 2]]
    assert found["manifest"]["number"] == "3"
    assert found["manifest"]["full"] is False
    assert plain({1: ("a", True)}) == {"1": ["a", True]}


def test_errors_say_what_and_what_next(capsys: pytest.CaptureFixture[str]) -> None:
    fail(ConfigError("the [port] is taken", "Choose another"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: the [port] is taken\nnext:  Choose another\n"


def test_no_colours_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[red]text[/]")
    console().print(table(("NAME", ">COUNT"), [("ps-0", 7)]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert [line.split() for line in shown.splitlines()] == [["text"], ["NAME", "COUNT"], ["ps-0", "7"]]
