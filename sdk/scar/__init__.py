"""Training that heals itself: the SDK of SCAR. Start with :func:`join`, or with a training file (``scar
train FILE``), or on this machine with :class:`LocalCluster`.
"""

import os
import typing

# Training code forks (torch's DataLoader, multiprocessing). With gRPC's own fork handlers, which it decides
# on when it is imported, the child of a process that has connections crashes; without them the child just
# leaves the connections alone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from scar._client.pull_requests import PullFuture
from scar.batches import BatchSampler
from scar.errors import ScarError
from scar.job_start import start
from scar.jobfile import load_job
from scar.joining import join
from scar.keyed_rows import KeyedValues, KeyPolicy
from scar.reader import Reader, connect
from scar.scripts import initialize
from scar.snapshots import Snapshot
from scar.stopping import Divergence, EarlyStopping
from scar.tables import (
    Blocks,
    Checkpoint,
    Init,
    Job,
    Rule,
    Table,
    adagrad,
    adam,
    adamw,
    add,
    assign,
    constant,
    given,
    given_rows,
    keys,
    layer,
    layer_shards,
    momentum,
    normal,
    ragged,
    rmsprop,
    rows,
    sgd,
    uniform,
    zeros,
)
from scar.training import Worker
from scar.update_rules import ftrl, rule
from scar.version import __version__
from scar.weight_files import init_from
from scar.worker_state import WorkerState, worker_state_table

__all__ = [
    "BatchSampler",
    "Blocks",
    "Checkpoint",
    "Divergence",
    "EarlyStopping",
    "Init",
    "Job",
    "KeyPolicy",
    "KeyedValues",
    "PullFuture",
    "Reader",
    "Rule",
    "ScarError",
    "Snapshot",
    "Table",
    "Worker",
    "WorkerState",
    "__version__",
    "adagrad",
    "adam",
    "adamw",
    "add",
    "assign",
    "connect",
    "constant",
    "ftrl",
    "given",
    "given_rows",
    "init_from",
    "initialize",
    "join",
    "keys",
    "layer",
    "layer_shards",
    "load_job",
    "momentum",
    "normal",
    "ragged",
    "rmsprop",
    "rows",
    "rule",
    "sgd",
    "start",
    "uniform",
    "worker_state_table",
    "zeros",
]

if typing.TYPE_CHECKING:
    from scar_local.cluster import LocalCluster as LocalCluster
else:

    def __getattr__(name: str) -> object:
        """``LocalCluster``, when it is first used: it needs the services, which a worker's image may lack."""
        if name != "LocalCluster":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from scar.errors import ConfigError

        try:
            return import_module("scar_local").LocalCluster
        except ImportError as error:
            raise ConfigError(
                f"scar.LocalCluster needs the services: {error}", "Run: pip install 'scar-ps[cli]'"
            ) from error
