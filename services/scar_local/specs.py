"""How each process of a cluster is started: its command and its settings, all through ``SCAR_*`` variables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import scar
import scar_local
from scar_local.processes import Spec

HOST = "127.0.0.1"
COORDINATORS = ("recovery", "detector", "checkpoint")
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Settings:
    """What all processes of a cluster share. ``label``: its name among others. ``environment`` wins over everything."""

    directory: Path
    label: str
    redis: str
    store: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def variables(self, name: str, addresses: Mapping[str, str]) -> dict[str, str]:
        """Environment of the process ``name``; ``addresses``: coordinator -> host:port, as far as they are known."""
        known = {f"SCAR_{kind.upper()}": address for kind, address in addresses.items()}
        own = {"SCAR_NAME": name, "SCAR_CLUSTER": self.label, "SCAR_REDIS": self.redis, "SCAR_STORE": self.store}
        return {"SCAR_LISTEN": f"{HOST}:0", **known, **own, **self.environment}


def machine_variables() -> dict[str, str]:
    """One BLAS thread a process, since many processes share the cores; the import path of a checkout."""
    found = {name: os.environ.get(name, "1") for name in _ONE_THREAD}
    roots = [Path(package.__path__[0]).parent for package in (scar, scar_local)]
    paths = [str(root) for root in roots if root.name != "site-packages"] + [os.environ.get("PYTHONPATH", "")]
    return {**found, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "PYTHONUNBUFFERED": "1"}


def redis_server(settings: Settings, port: int) -> Spec:
    """``redis-server`` from PATH; fakeredis where there is none, or where a foreign program cannot be tied to this process."""
    program = shutil.which("redis-server") if sys.platform == "linux" else None
    options = ["--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no", "--dir", str(settings.directory)]
    command = ["program", program, *options] if program else ["module", "scar_local.redis", HOST, str(port)]
    return Spec("redis", command, fixed=True)


def coordinator(settings: Settings, kind: str, addresses: Mapping[str, str]) -> Spec:
    """Recovery, detector or checkpoint coordinator. It keeps its address, since the others are told only once."""
    return _service(settings, f"scar_{kind}", f"{kind}-0", addresses, fixed=True)


def shard(settings: Settings, number: int, addresses: Mapping[str, str], extra: Mapping[str, str]) -> Spec:
    return _service(settings, "scar_ps", f"ps-{number}", addresses, extra)


def worker(settings: Settings, name: str, train_file: Path, job: str, addresses: Mapping[str, str]) -> Spec:
    """It has no address file: nobody waits for it, and it may end at once. ``job`` empty: the file's."""
    variables = settings.variables(name, addresses) | {"SCAR_TRAIN": str(train_file), "SCAR_JOB": job}
    return Spec(name, ("module", "scar_worker"), variables, worker=True)


def _service(
    settings: Settings,
    module: str,
    name: str,
    addresses: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
    fixed: bool = False,
) -> Spec:
    file = settings.directory / "addresses" / name
    variables = {**settings.variables(name, addresses), **(extra or {}), "SCAR_ADDRESS_FILE": str(file)}
    return Spec(name, ("module", module), variables, file, fixed)
