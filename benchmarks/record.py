"""Ratios of an earlier run, kept in the repository, beside which those of today are shown.

A ratio is the speed of ours by that of a yardstick in one run, so it can be compared with one of another
day, and less well with one of another machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.measure import BenchRow
from scar.errors import ConfigError
from scar.parallel import count_processors

RECORD = Path("docs/results/bench.json")
TCP_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")  # on Linux


@dataclass(frozen=True)
class RecordedRow:
    """``benchmark``: the name by which it is measured again; ``made``: the day, as YYYY-MM-DD; ``load``:
    processes that wanted a core in the minute before that run began; ``cores``: of its machine; ``tcp``: how
    that controls congestion, by which plain TCP may be twice as fast.
    """

    benchmark: str
    name: str
    ours: float
    yardstick: float
    ratio: float
    unit: str
    made: str
    load: float
    cores: int
    tcp: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Names are repeated where the yardsticks differ."""
        return self.benchmark, self.name


@dataclass(frozen=True)
class BenchMachine:
    """Where it is measured: see :class:`RecordedRow`."""

    cores: int
    tcp: str

    @classmethod
    def this(cls) -> Self:
        return cls(count_processors(), TCP_CONTROL.read_text().strip() if TCP_CONTROL.exists() else "")


BenchRecord = Mapping[tuple[str, str], RecordedRow]


def recorded(benchmark: str, row: BenchRow, made: str, load: float, machine: BenchMachine) -> RecordedRow:
    figures = row.ours, row.yardstick, row.ratio, row.unit
    return RecordedRow(benchmark, row.name, *figures, made, round(load, 2), machine.cores, machine.tcp)


def ratio_change(today: float, before: float) -> float:
    """By which part the ratio is higher (+0.1: ours is 10 % faster by its yardstick) or lower than before."""
    return today / before - 1.0


def read_record(path: Path) -> BenchRecord:
    """Without a file: nothing. Raises :class:`ConfigError` for one that is none."""
    if not path.exists():
        return {}
    try:
        rows = [_row_from_json(row) for row in json.loads(path.read_text())["rows"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no record of benchmarks: {error}",
            f"Take it from the repository again, or make it anew: rm {path}, make bench RECORD={path}",
        ) from error
    return {row.key: row for row in rows}


def write_record(path: Path, known: BenchRecord, new: Sequence[RecordedRow]) -> None:
    """These rows in the place of those of the same name; others stay as they were."""
    rows = {**known, **{row.key: row for row in new}}
    text = json.dumps({"rows": [asdict(rows[key]) for key in sorted(rows)]}, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _row_from_json(data: Any) -> RecordedRow:
    row = RecordedRow(
        benchmark=str(data["benchmark"]),
        name=str(data["name"]),
        ours=float(data["ours"]),
        yardstick=float(data["yardstick"]),
        ratio=float(data["ratio"]),
        unit=str(data["unit"]),
        made=str(data["made"]),
        load=float(data["load"]),
        cores=int(data["cores"]),
        tcp=str(data.get("tcp", "")),
    )
    if not all(math.isfinite(one) for one in (row.ours, row.yardstick, row.load)) or not (
        0 < row.ratio < math.inf
    ):
        raise ValueError(f"{row.name} has a figure that is no number, or a ratio that is not above 0")
    return row
