"""A whole SCAR cluster on one machine: the same services as on Kubernetes, each in an operating-system
process of its own.

    import scar

    with scar.LocalCluster(shards=4) as cluster:
        result = cluster.train(job, train)  # a function of this program; result.model, .history, .ledger

        cluster.start_job(job)              # or by a file, step by step
        cluster.start_workers("train.py", 2)
        cluster.kill("ps-2")                # SIGKILL; training goes on
        codes = cluster.wait(timeout=60)    # {"worker-0": 0, "worker-1": 0}

Names are loaded when they are first used: the fork server imports this package and needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scar_admin.observer import ClusterObserver
    from scar_admin.status import ClusterStatus, ProcessInfo
    from scar_local.cluster import LocalCluster
    from scar_local.directory import ClusterDirectory, ClusterState

__all__ = [
    "ClusterDirectory",
    "ClusterObserver",
    "ClusterState",
    "ClusterStatus",
    "LocalCluster",
    "ProcessInfo",
]

_MODULES = {
    "ClusterDirectory": "scar_local.directory",
    "ClusterState": "scar_local.directory",
    "ClusterStatus": "scar_admin.status",
    "LocalCluster": "scar_local.cluster",
    "ClusterObserver": "scar_admin.observer",
    "ProcessInfo": "scar_admin.status",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
