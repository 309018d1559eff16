"""SSP, ASP: tables whose blocks workers can give back, with what they keep of their own pushes. Pure (§15).

A worker that holds a whole pull of a table keeps what it pushes to it until it has pulled it again, for some
clocks at least. While all that push to a table are such, no replica need have it.
"""

from __future__ import annotations

from collections.abc import Iterable

from scar.strategies import HOLDERS_COUNTED


class PullHolders:
    """By table and worker (member key). Nobody is a holder before its mark has said that it keeps a pull."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, int]] = {}  # table -> worker -> clock in which it pulled all of it
        self._pushing: dict[str, set[str]] = {}  # table -> who has pushed to it

    def confirm(self, worker: str, table: str, clock: int) -> None:
        """The worker keeps the whole table as it pulled it in this clock."""
        held = self._held.setdefault(table, {})
        held[worker] = max(clock, held.get(worker, clock))

    def note_push(self, worker: str, tables: Iterable[str], clock: int) -> None:
        """What it pulled long ago counts no longer: it may soon let go what it pushed since."""
        for table in tables:
            self._pushing.setdefault(table, set()).add(worker)
        for held in self._held.values():
            if held.get(worker, clock) < clock - HOLDERS_COUNTED:
                del held[worker]

    def hold(self, table: str) -> bool:
        """Whether all of it is held by everybody who pushes to it."""
        held = self._held.get(table, {})
        return bool(held) and self._pushing.get(table, set()) <= held.keys()

    def clear(self) -> None:
        """Blocks came from elsewhere, or a worker left: what is in them may be in nobody's copy."""
        self._held.clear()
        self._pushing.clear()
