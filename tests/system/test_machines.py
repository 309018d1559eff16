"""Benchmarks between machines: what they show is of machines whose links carry all that is said."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from benchmarks.machines import growth, rows
from benchmarks.machines.network import CONGESTION, Machines, read_line
from benchmarks.machines.rows_worker import ROWS
from benchmarks.machines.scar_cluster import WIDTH

MEGABITS = 200


@pytest.fixture(autouse=True)
def _may_add_machines() -> None:
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need Linux, root, and the programs ip and tc")
    made = subprocess.run(["ip", "netns", "add", "scar-test"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no network namespace is to be had here: {made.stderr.strip()}")
    subprocess.run(["ip", "netns", "del", "scar-test"], check=True)


def test_a_clock_between_machines_takes_as_long_as_its_bytes_take_on_their_links() -> None:
    alone = growth.measure_growth(1, MEGABITS, warm_ups=1, steps=3)
    assert alone.least == pytest.approx(2 * growth.SIZE * 8 / (MEGABITS * 1e6))
    assert alone.seconds > 0.9 * alone.least, "the bytes went over the link"
    assert alone.cores > 0


def test_rows_go_over_links_of_the_rate_that_is_given() -> None:
    gigabits = 0.2
    found = rows.measure_rows("uniform", 3, gigabits)
    both_ways = 2 * ROWS * WIDTH * 4 * 8 / (gigabits * 1e9)
    assert len(found) == 3
    for ours, plain in found:
        assert plain > 0.9 * both_ways
        assert ours > plain


def test_machines_control_congestion_alike_whatever_the_host_does() -> None:
    with Machines(1) as machines:
        asked = machines.start(0, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"])
        assert read_line(asked) == f"{CONGESTION}\n"


def test_machines_leave_nothing_behind() -> None:
    with Machines(2):
        pass
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert f"scar{os.getpid()}-" not in links
