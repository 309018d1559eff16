"""Which strategies can be compared, by name, and what a job is given for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scar.errors import ConfigError
from scar.strategies import STRATEGIES, VARIANTS, variant_options
from scar.tables import Checkpoint
from scar.worker_strategies import WORKER_STRATEGIES

PERIOD = 8  # clocks between full checkpoints; rounds by priority write as many bytes in that time
UNDISTURBED = "undisturbed"
DEFAULT_STRATEGIES = ("partial", "full", "sync-chain", "ps", "ckpt", "ignr")
DROP_SUFFIX = "-drop"  # of a worker strategy: nobody takes over a dead worker's data


SERVER_SIDE = (*STRATEGIES, *VARIANTS)  # what happens when a server dies
WORKER_SIDE = (*WORKER_STRATEGIES, f"ignr{DROP_SUFFIX}")  # what happens when a worker does


def strategy_names() -> tuple[str, ...]:
    """Server-side strategies, then worker-side ones."""
    return (*SERVER_SIDE, *WORKER_SIDE)


def job_options(name: str) -> Mapping[str, Any]:
    """Options of :class:`scar.Job`; a strategy of one side is combined with the usual one of the other.

    Raises :class:`ConfigError` for an unknown name.
    """
    if name not in strategy_names():
        raise ConfigError(f"strategy {name!r} is unknown", f"Use some of {', '.join(strategy_names())}")
    on_servers = name in SERVER_SIDE
    options: dict[str, Any] = variant_options(name if on_servers else "partial")
    recovery = options["recovery"]
    worker_recovery = "ignr" if on_servers else name.removesuffix(DROP_SUFFIX)
    options["worker_recovery"] = worker_recovery
    if name.endswith(DROP_SUFFIX):
        options["share"] = "drop"
    if STRATEGIES[recovery].stores:
        # an acknowledgement waits for a round: they run all the time, and no worker waits for another
        options["consistency"] = "asp"
        options["checkpoint"] = Checkpoint("priority", 1.0, 1)
    elif STRATEGIES[recovery].rollback or WORKER_STRATEGIES[worker_recovery].rollback:
        options["checkpoint"] = Checkpoint("full", 1.0, PERIOD)
    else:
        options["checkpoint"] = Checkpoint("priority", 1 / PERIOD, PERIOD)
    return options
