"""SSP and ASP: which of a worker's own pushes its copies contain; no clock says it (protocol §15). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from scar._client.core.pushes import ShardPush

NO_COPY = 1 << 62  # in the place of a pull's number: there is nothing to which a push would have to be added
KEPT_BY_CLOCKS = 1 << 61  # the same: no pull ends the need of a push


class PulledTables:
    """Pulls of one worker, by number. ``begun``: the newest.

    Whatever a shard had acknowledged when a pull began is in what it brought. So a push need not be kept once
    a later pull of its tables is: who holds that, or what is fresher, holds the push.
    """

    def __init__(self) -> None:
        self.begun = 0
        self._held: dict[str, int] = {}  # table -> newest pull that is kept as a copy; 0: it is under way

    def begin_pull(self, tables: Iterable[str]) -> int:
        """These tables are pulled, to be kept. Returns the pull's number."""
        self.begun += 1
        for table in tables:
            self._held.setdefault(table, 0)
        return self.begun

    def hold_pull(self, table: str, number: int) -> None:
        """All of the table is there, and kept."""
        self._held[table] = max(self._held[table], number)

    def contain(self, push: ShardPush) -> bool:
        """Whether it need not be kept: what is held of its tables contains it."""
        return all(self._held.get(table, NO_COPY) > push.pulls for table in push.tables)
