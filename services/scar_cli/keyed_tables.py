"""Tables with keys, as `scar status` shows them: how full, and what became of keys, over all shards."""

from __future__ import annotations

from rich.table import Table

from scar_admin.status import ClusterStatus
from scar_cli import output

COUNTS = ("rows", "capacity", "created", "evicted", "expired", "unadmitted", "refused")


def keyed_rows(status: ClusterStatus) -> dict[str, dict[str, int]]:
    """Table -> counts by name (KeyedRows in proto/scar/v1/ps.proto), the sums of the shards that answer."""
    found: dict[str, dict[str, int]] = {}
    for shard in status.shards.values():
        for table in shard.tables:
            if table.HasField("keys"):
                sums = found.setdefault(table.table, dict.fromkeys(COUNTS, 0))
                for name in COUNTS:
                    sums[name] += getattr(table.keys, name)
    return found


def keyed_table(found: dict[str, dict[str, int]]) -> Table:
    rows = [(name, *counts.values()) for name, counts in sorted(found.items())]
    return output.make_table(("TABLE", *(f">{name.upper()}" for name in COUNTS)), rows)
