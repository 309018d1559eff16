"""`scar failures`: the ledger, one row a failure."""

from __future__ import annotations

import time

from rich.console import Console

from scar.v1.recovery_pb2 import FailureRecord
from scar_cli import output
from scar_cli.clusters import find, look
from scar_cli.output import Output, seconds
from scar_cli.places import Place

PHASES = (">DETECT", ">WAIT", ">COMMIT", ">LOAD", ">DOWN")
COLUMNS = (">#", "WHEN", "WHO", ">BLOCKS", "FROM", *PHASES, ">||DELTA||", ">LOST", ">RESENT", "STATE")


def run(place: Place, form: Output) -> None:
    failures = look(find(place)).failures

    def text(screen: Console) -> None:
        if not failures:
            screen.print(f"no failure so far; make one by `scar kill ps-0{place.options()}`")
            return
        screen.print(output.table(COLUMNS, map(row, failures)))
        screen.print("DETECT: last sign of life to report; WAIT: lease of a suspect; LOAD: until all blocks are served again;")
        screen.print("LOST: pushes that had been acknowledged and are not in the restored values; RESENT: to the new owner")

    output.show(form, {"failures": list(failures)}, text)


def row(record: FailureRecord) -> tuple[object, ...]:
    """Cells in the order of :data:`COLUMNS`."""
    phases = (record.detect_seconds, record.wait_seconds, record.commit_seconds, record.load_seconds)
    return (
        record.number,
        time.strftime("%H:%M:%S", time.localtime(record.created)),
        ", ".join(key.partition("@")[0] for key in record.members),
        f"{record.lost_blocks}/{record.total_blocks}",
        sources(record),
        *map(seconds, phases),
        seconds(sum(max(0.0, phase) for phase in phases)),
        delta(record),
        record.lost_pushes,
        record.resent_pushes,
        state(record),
    )


def sources(record: FailureRecord) -> str:
    """Where the lost blocks came back from."""
    return ", ".join(f"{count} {source}" for source, count in sorted(record.sources.items()) if count) or "-"


def delta(record: FailureRecord) -> str:
    """Size of the perturbation; "~" where the workers' caches held only about the lost values."""
    if record.delta_norm < 0:
        return "-"
    return f"{'' if record.delta_exact else '~'}{record.delta_norm:.4g}"


def state(record: FailureRecord) -> str:
    if not record.epoch:
        return "recovering"
    waiting = ", ".join(key.partition("@")[0] for key in record.waiting)
    return f"healed in epoch {record.epoch}" + (f", waiting for {waiting}" if waiting else "")
