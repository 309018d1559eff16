"""Training that heals itself: the SDK of SCAR. Start with :func:`join`, or with a training file (``scar train FILE``)."""

from scar.errors import ScarError
from scar.local import Local, local_state
from scar.orders import Pending
from scar.tables import (
    Blocks,
    Checkpoint,
    Init,
    Job,
    Rule,
    Table,
    adagrad,
    adam,
    add,
    assign,
    constant,
    given,
    layer,
    layer_shards,
    momentum,
    normal,
    ragged,
    rows,
    sgd,
    uniform,
    zeros,
)
from scar.training import Reader, Worker, connect, join, load_job
from scar.version import __version__

__all__ = [
    "Blocks",
    "Checkpoint",
    "Init",
    "Job",
    "Local",
    "Pending",
    "Reader",
    "Rule",
    "ScarError",
    "Table",
    "Worker",
    "__version__",
    "adagrad",
    "adam",
    "add",
    "assign",
    "connect",
    "constant",
    "given",
    "join",
    "layer",
    "layer_shards",
    "load_job",
    "local_state",
    "momentum",
    "normal",
    "ragged",
    "rows",
    "sgd",
    "uniform",
    "zeros",
]
