"""All values of exactly one clock, while training goes on: what :meth:`scar.Reader.snapshot` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scar._client.pull_requests import Values
from scar.keyed_rows import KeyedValues

MOST_AHEAD = 64  # clocks


@dataclass(frozen=True)
class Snapshot:
    """``tables``: read-only, in their shapes, or :class:`scar.KeyedValues`. Each holds every update of the
    clocks below ``clock``, as shards had them in ``epoch``, and none of a later one.
    """

    job: str
    clock: int
    epoch: int
    tables: Mapping[str, Values]

    def save(self, file: str | Path, more: Mapping[str, object] | None = None) -> None:
        """Write the tables as .npz, whole or not at all. "scar.job", "scar.clock" and "scar.epoch" are in it,
        too, and ``more``.
        """
        marks: dict[str, object] = {"scar.job": self.job, "scar.clock": self.clock, "scar.epoch": self.epoch}
        _save_npz(Path(file), {**name_arrays(self.tables), **marks, **(more or {})})


def name_arrays(tables: Mapping[str, Values]) -> dict[str, Values]:
    """Arrays by name: of a table with keys "<name>.keys" and "<name>.values"."""
    arrays: dict[str, Values] = {}
    for name, table in tables.items():
        if isinstance(table, KeyedValues):
            arrays |= {f"{name}.{part}": array for part, array in table._asdict().items()}
        else:
            arrays[name] = table
    return arrays


def _save_npz(file: Path, arrays: Mapping[str, object]) -> None:
    """Whoever reads ``file`` finds the former one or this one, never a part."""
    draft = file.with_name(f".{file.name}.tmp")
    with draft.open("wb") as stream:
        np.savez(stream, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    draft.replace(file)


class ClockChoice:
    """Which clock to ask all shards for: the open one where training rests, else one that is still to come.

    Shards that have passed it before the question arrived have no copy of it, so the next is further ahead.
    Pure.
    """

    def __init__(self, wanted: int | None = None) -> None:
        self._wanted = wanted
        self._ahead = 0

    def next_clock(self, opened: int) -> int:
        """``opened``: the open clock of a shard."""
        return opened + self._ahead if self._wanted is None else self._wanted

    def note_passed(self) -> None:
        """A shard was beyond the clock."""
        self._ahead = min(MOST_AHEAD, max(1, 2 * self._ahead))

    def note_silence(self) -> None:
        """The clock did not come: training may rest, or be slow."""
        self._ahead = 0
