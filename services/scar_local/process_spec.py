"""One process of a cluster: how it is started, and what is known of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scar_admin.status import ProcessInfo

USAGE = 2  # exit code of a service whose settings are wrong: starting it again cannot help
FENCED = 3  # exit code of a member that was declared dead: it comes back as a new incarnation


@dataclass(frozen=True)
class Spec:
    """How to start one process. ``command``: ("module", "scar_ps") or ("program", "/path/to/server", ...).

    ``fixed``: it listens at its first address again after a restart. ``worker``: a normal end is its success,
    not a failure. ``output``: file for what it prints; at its first start it and the log are empty: nobody
    reads what another one said. ``preload``: modules that are imported once for all processes that name the
    same ones, since they take seconds.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    address_file: Path | None = None
    fixed: bool = False
    worker: bool = False
    output: Path | None = None
    preload: tuple[str, ...] = ()

    def returns(self, code: int) -> bool:
        """Whether it is started again after it ended with this code (negative: by a signal)."""
        return code < 0 or code == FENCED if self.worker else code != USAGE


class Child:
    """What its supervisor knows of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.pid = 0
        self.state = "starting"
        self.restarts = -1
        self.code: int | None = None
        self.due: float | None = 0.0  # monotonic time of the next start; None: none is planned
        self.held = False  # not started again when it ends
        self.retired = False  # nor known any more
        self.proved = False  # it has listened once, so its settings are right
        self.address = ""  # where it listens now; empty until it has said so
        self.listen = ""  # where it has to listen: its first address, when that is fixed
        self.logged = 0  # bytes in its log that an earlier life has written
        self.refusal = ""  # why the system did not start it

    @property
    def alive(self) -> bool:
        return self.state in ("running", "paused")

    def info(self, cut: Collection[str]) -> ProcessInfo:
        """``cut``: names of processes that are cut off now."""
        final = self.code is not None and self.due is None
        state = "cut" if self.state == "running" and self.spec.name in cut else self.state
        return ProcessInfo(self.spec.name, self.pid, state, max(0, self.restarts), self.code, final)
